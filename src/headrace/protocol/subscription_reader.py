"""Reads the bytes that consumers of the classic protocol send one another, from both sides of the wire.

Strings have an int16 before them, arrays and bytes an int32; -1 is null. A coordinator hands these bytes on unread but
in a few places, so every length here is the word of a stranger.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TypeVar

_INT16 = Struct(">h")
_INT32 = Struct(">i")

T = TypeVar("T")


class Unreadable(Exception):
    """The bytes are none of a consumer's."""


class SubscriptionReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def string(self) -> str:
        return self._take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        size_bytes = self.int16()
        return None if size_bytes < 0 else self._take(size_bytes).decode()

    def nullable_bytes(self) -> bytes | None:
        size_bytes = self.int32()
        return None if size_bytes < 0 else self._take(size_bytes)

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.int32())]

    def partitions(self) -> list[tuple[str, list[int]]]:
        """Of topics, in the order of the bytes."""
        return [(self.string(), [self.int32() for _ in range(self.int32())]) for _ in range(self.int32())]

    def _take(self, size_bytes: int) -> bytes:
        if size_bytes < 0 or self._at + size_bytes > len(self._data):
            raise Unreadable("something ends behind the bytes")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]


def read_guarded(data: bytes, read: Callable[[SubscriptionReader], T]) -> T:
    """
    :raises Unreadable: if the bytes are not what is read.
    """
    try:
        return read(SubscriptionReader(data))
    except (StructError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None
