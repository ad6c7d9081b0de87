"""Reads and writes the DER encoding of ASN.1, as far as certificates and stores need it.

An element is a tag (1 byte), a length (1 byte, or up to 5 bytes) and its content. The content of a constructed element
is a row of elements. Input comes from peers, so every length is checked against what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER = 0x02, 0x03, 0x04, 0x06
SEQUENCE, SET = 0x30, 0x31

#: An identifier with more bytes is not shown: nobody has such an identifier.
_MAX_IDENTIFIER_BYTES = 64


class DerError(ValueError):
    """The bytes are not what they have to be."""


class Element(NamedTuple):
    tag: int
    content: bytes
    #: The whole element, with tag and length.
    encoded: bytes

    def elements(self) -> Iterator[Element]:
        """Yields the elements inside.

        :raises DerError: if the content is not a row of elements.
        """
        rest = self.content
        while rest:
            element = read_element(rest)
            rest = rest[len(element.encoded) :]
            yield element

    def expect(self, tag: int) -> Element:
        """
        :raises DerError: if the element has another tag.
        """
        if self.tag != tag:
            raise DerError(f"tag {self.tag:#04x} in place of {tag:#04x}")
        return self


def read_element(data: bytes) -> Element:
    """Returns the element at the start of the bytes.

    :raises DerError: if there is no whole element.
    """
    if len(data) < 2 or data[0] & 0x1F == 0x1F:
        raise DerError("no element")
    length, start = data[1], 2
    if length >= 0x80:
        start += length & 0x7F
        if length == 0x80 or start > 6 or len(data) < start:
            raise DerError("no length")
        length = int.from_bytes(data[2:start], "big")
    end = start + length
    if len(data) < end:
        raise DerError("an element ends after its container")
    return Element(data[0], data[start:end], data[:end])


def encoded(tag: int, content: bytes) -> bytes:
    """Returns an element with its tag and its length."""
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def object_identifier(content: bytes) -> str:
    """Returns the content of an OBJECT IDENTIFIER with dots.

    :raises DerError: if it is not valid.
    """
    if not content or len(content) > _MAX_IDENTIFIER_BYTES or content[-1] & 0x80:
        raise DerError("not an object identifier")
    parts: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(value)
            value = 0
    first = min(parts[0] // 40, 2)
    return ".".join(map(str, (first, parts[0] - 40 * first, *parts[1:])))
