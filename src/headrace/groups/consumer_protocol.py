"""The bytes that consumers of the classic protocol exchange through the coordinator, where it must read or write them.

::

    subscription: version int16, topics [string], user_data bytes, owned [topic string, partitions [int32]] (from 1 on),
                  generation int32 (from 2 on), rack string (from 3 on)
    assignment:   version int16, [topic string, partitions [int32]], user_data bytes

Strings have an int16 before them, arrays and bytes an int32; -1 is null.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NULL = _INT32.pack(-1)

T = TypeVar("T")


class Unreadable(Exception):
    """The bytes are none of a consumer's."""


class Subscription(NamedTuple):
    topic_names: frozenset[str]
    #: By topics' names.
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if it is none.
    """
    return _guarded(data, _read_subscription)


def read_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """Partitions by topics' names; none for no bytes at all.

    :raises Unreadable: if it is none.
    """
    return _guarded(data, _read_assignment) if data else {}


def version_of(data: bytes) -> int:
    return _guarded(data, _Reader.int16)


def write_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(partitions)))
    for name in sorted(partitions):
        encoded = name.encode()
        out += _INT16.pack(len(encoded)) + encoded + _INT32.pack(len(partitions[name]))
        for partition in sorted(partitions[name]):
            out += _INT32.pack(partition)
    return bytes(out + _NULL)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def _take(self, size_bytes: int) -> bytes:
        if size_bytes < 0 or self._at + size_bytes > len(self._data):
            raise Unreadable("something ends behind the bytes")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]

    def string(self) -> str:
        return self._take(self.int16()).decode()

    def nullable_string(self) -> str | None:
        size_bytes = self.int16()
        return None if size_bytes < 0 else self._take(size_bytes).decode()

    def skip_bytes(self) -> None:
        size_bytes = self.int32()
        if size_bytes > 0:
            self._take(size_bytes)

    def partitions(self) -> dict[str, frozenset[int]]:
        return {self.string(): frozenset(self.int32() for _ in range(self.int32())) for _ in range(self.int32())}


def _guarded(data: bytes, read: Callable[[_Reader], T]) -> T:
    try:
        return read(_Reader(data))
    except (StructError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from None


def _read_subscription(reader: _Reader) -> Subscription:
    version = reader.int16()
    names = frozenset(reader.string() for _ in range(reader.int32()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.int32()
    return Subscription(names, owned, reader.nullable_string() if version >= 3 else None)


def _read_assignment(reader: _Reader) -> Mapping[str, frozenset[int]]:
    reader.int16()
    return reader.partitions()
