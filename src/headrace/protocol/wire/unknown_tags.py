"""Removes tagged fields that a schema does not have from a message.

A newer peer may add tagged fields to a version that we know, and we must skip them (KIP-482). kio raises KeyError
instead. Then the message is rewritten without those fields, and read again. That is rare, so this module follows the
schema directly, without generated code.
"""

from dataclasses import fields

from headrace.protocol.wire.schema_fields import FieldKind
from headrace.protocol.wire.varints import LARGEST_LENGTH, LARGEST_TAG, put_uvarint, read_uvarint


def without_unknown_tags(schema: type, message: memoryview) -> bytes:
    """The message with only those tagged fields that the schema has.

    :raises ValueError: if the message ends too early, or its version is not flexible.
    """
    walk = _Walk(message)
    try:
        walk.entity(schema)
    except IndexError:
        raise ValueError("the message ends inside a field") from None
    return bytes(walk.out) + bytes(message[walk.at :])


class _Walk:
    """Copies a message, field by field, without the unknown tagged fields."""

    def __init__(self, message: memoryview) -> None:
        self.message = message
        self.at = 0
        self.out = bytearray()

    def entity(self, schema: type) -> None:
        if not schema.__flexible__:  # type: ignore[attr-defined]
            raise ValueError(f"{schema.__name__} has no tagged fields")
        tagged: dict[int, FieldKind] = {}
        for field in fields(schema):
            kind = FieldKind(field)
            if kind.tag is None:
                self._field(kind)
            else:
                tagged[kind.tag] = kind
        self._tags(tagged)

    def _tags(self, known: dict[int, FieldKind]) -> None:
        kept: list[tuple[int, bytes]] = []
        for _ in range(self._uvarint()):
            tag, size_bytes = self._uvarint(LARGEST_TAG), self._uvarint()
            content = self.message[self.at : self.at + size_bytes]
            if len(content) < size_bytes:
                raise IndexError
            self.at += size_bytes
            if tag in known:
                inner = _Walk(content)
                inner._field(known[tag])
                kept.append((tag, bytes(inner.out) + bytes(content[inner.at :])))
        put_uvarint(self.out, len(kept))
        for tag, data in kept:
            put_uvarint(self.out, tag)
            put_uvarint(self.out, len(data))
            self.out += data

    def _field(self, kind: FieldKind) -> None:
        if kind.is_array:
            count = self._uvarint()
            put_uvarint(self.out, count)
            for _ in range(count - 1):
                self._element(kind)
        elif kind.entity is not None and kind.is_nullable:
            marker = self.message[self.at]
            self._copy(1)
            if marker < 0x80:
                self.entity(kind.entity)
        else:
            self._element(kind)

    def _element(self, kind: FieldKind) -> None:
        if kind.entity is not None:
            self.entity(kind.entity)
        elif (width := kind.element_bytes) is not None:
            self._copy(width)
        else:
            size_bytes = self._uvarint()
            put_uvarint(self.out, size_bytes)
            self._copy(max(0, size_bytes - 1))

    def _copy(self, size_bytes: int) -> None:
        if self.at + size_bytes > len(self.message):
            raise IndexError
        self.out += self.message[self.at : self.at + size_bytes]
        self.at += size_bytes

    def _uvarint(self, largest: int = LARGEST_LENGTH) -> int:
        value, self.at = read_uvarint(self.message, self.at, largest)
        return value
