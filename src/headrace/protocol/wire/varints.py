"""Reads and writes the variable-length integers of Kafka's protocol.

A varint is a sequence of bytes. Each byte carries seven bits of the value, the lowest bits first; a set high bit says
that another byte follows::

    value    bytes
    0        00
    127      7f
    128      80 01
    300      ac 02

Messages use *unsigned* varints for compact lengths, array counts and tags (KIP-482). Kafka reads at most five bytes
into a signed 32-bit integer, so a length of 2**31 and more would be negative there. Here a varint of more than five
bytes is an error, and so is a length of 2**31 and more. A tag may use all 32 bits.

The messages of protobuf, which clients push as metrics, have unsigned varints of at most ten bytes.

Records use *signed* varints (zigzag: 0, -1, 1, -2 become 0, 1, 2, 3), of at most ten bytes, whose value has 64 bits.

A varint that goes past the end of the buffer raises IndexError. Nearly all varints have one byte, so callers that read
many of them test for one byte themselves and call :func:`read_long_uvarint` only for the rest.
"""

from collections.abc import Sequence
from typing import NoReturn

from headrace.protocol.errors import InvalidRecord

LARGEST_LENGTH = 2**31 - 1
LARGEST_TAG = 2**32 - 1
#: The fifth byte holds the bits from 28 on.
_LAST_SHIFT = 28
#: The tenth byte of a varint of protobuf holds the bits from 63 on.
PROTOBUF_LAST_SHIFT = 63
#: Ten bytes have 70 bits. Readers of protobuf ignore those above 64.
LARGEST_OF_PROTOBUF = 2**70 - 1
_MASK_64 = 0xFFFF_FFFF_FFFF_FFFF
_LAST_SIGNED_SHIFT = 63


class BadVarint(ValueError):
    """An unsigned varint has too many bytes, or its value is too large."""


def read_uvarint(
    data: bytes | memoryview, at: int, largest: int = LARGEST_LENGTH, last_shift: int = _LAST_SHIFT
) -> tuple[int, int]:
    """Reads an unsigned varint; returns the value, and the position of the byte that follows.

    :param last_shift: the lowest bit of the last byte that a varint may have. By default the fifth byte is the last.
    :raises BadVarint: if the varint has more bytes, or its value is larger than ``largest``.
    :raises IndexError: if the data end before the varint does.
    """
    byte = data[at]
    return (byte, at + 1) if byte < 0x80 else read_long_uvarint(data, at + 1, largest, last_shift)


def read_long_uvarint(
    data: bytes | memoryview, at: int, largest: int = LARGEST_LENGTH, last_shift: int = _LAST_SHIFT
) -> tuple[int, int]:
    """As :func:`read_uvarint`, for a varint whose first byte, at ``at - 1``, says that more bytes follow."""
    value, shift = data[at - 1] & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > largest:
                raise BadVarint(f"an unsigned varint is {value}; the largest allowed value is {largest}")
            return value, at
        if shift == last_shift:
            raise BadVarint(f"an unsigned varint has more than {last_shift // 7 + 1} bytes")
        shift += 7


def put_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """Reads a signed varint of a record; returns the value, and the position of the byte that follows.

    :raises InvalidRecord: if the varint has more than ten bytes.
    :raises IndexError: if the data end before the varint does.
    """
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            result &= _MASK_64
            return (result >> 1) ^ -(result & 1), at + 1
        shift += 7
        if shift > _LAST_SIGNED_SHIFT:
            _too_long()


def write_varint(value: int) -> bytes:
    """The bytes of a signed varint."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    packed = bytearray()
    while rest >= 0x80:
        packed.append(rest & 0x7F | 0x80)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)


def _too_long() -> NoReturn:
    raise InvalidRecord("a varint of a record has more than 10 bytes")


_ONE_BYTE: Sequence[bytes] = [bytes((value,)) for value in range(0x80)]
