"""Jute: ZooKeeper's encoding of values. No I/O.

Everything is big endian and has no tags: both sides know the order of the fields.

=========  ====================================================================
boolean    one byte, 0 or 1
int, long  4 or 8 bytes, signed
buffer     int length, then that many bytes; length -1 is null
ustring    a buffer that holds UTF-8
vector     int count, then that many values; count -1 is null
=========  ====================================================================

The reader checks every length. A length that is impossible, or larger than the rest of the data, is :class:`Malformed`.
"""

from collections.abc import Callable, Iterable
from struct import Struct, error
from typing import TypeVar

T = TypeVar("T")

_INT = Struct(">i")
_LONG = Struct(">q")
_NULL = _INT.pack(-1)


class Malformed(Exception):
    """The bytes cannot be decoded. The bytes after them cannot be decoded either."""


class Reader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def remaining_bytes(self) -> int:
        return len(self._data) - self._position

    def take_if(self, expected: bytes) -> bool:
        """Skips ``expected`` if it comes next; returns whether it did."""
        if not self._data.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def boolean(self) -> bool:
        return self._take(1) != b"\0"

    def int32(self) -> int:
        return self._number(_INT)

    def int64(self) -> int:
        return self._number(_LONG)

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length < -1:
            raise Malformed(f"a buffer has the impossible length {length}")
        return None if length == -1 else self._take(length)

    def string(self) -> str | None:
        data = self.buffer()
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8") from None

    def vector(self, read_one: Callable[["Reader"], T], *, max_count: int | None = None) -> list[T]:
        """A list of values; empty for null. Every value has at least one byte, so a count that is too large is
        rejected.
        """
        count = self.int32()
        if count > self.remaining_bytes or count < -1 or (max_count is not None and count > max_count):
            raise Malformed(f"a vector has {count} values in {self.remaining_bytes} bytes")
        return [read_one(self) for _ in range(count)]

    def _number(self, layout: Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._position)
        except error:
            raise Malformed("the frame ends inside a number") from None
        self._position += layout.size
        return int(value)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise Malformed(f"{length} bytes are announced, but only {self.remaining_bytes} are left")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def buffer(data: bytes | None) -> bytes:
    return _NULL if data is None else _INT.pack(len(data)) + data


def string(text: str | None) -> bytes:
    return _NULL if text is None else buffer(text.encode())


def vector(encoded: Iterable[bytes]) -> bytes:
    values = list(encoded)
    return _INT.pack(len(values)) + b"".join(values)


def integer(value: int) -> bytes:
    return _INT.pack(value)
