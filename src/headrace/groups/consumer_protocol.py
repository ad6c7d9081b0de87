"""The bytes that consumers of the classic protocol exchange through the coordinator, where it must read or write them.

::

    subscription: version int16, topics [string], user_data bytes, owned [topic string, partitions [int32]] (from 1 on),
                  generation int32 (from 2 on), rack string (from 3 on)
    assignment:   version int16, [topic string, partitions [int32]], user_data bytes

Strings have an int16 before them, arrays and bytes an int32; -1 is null.
"""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from headrace.protocol.subscription_reader import SubscriptionReader, Unreadable, read_guarded

__all__ = ["Unreadable"]

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NULL = _INT32.pack(-1)


class Subscription(NamedTuple):
    topic_names: frozenset[str]
    #: By topics' names.
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if it is none.
    """
    return read_guarded(data, _read_subscription)


def read_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """Partitions by topics' names; none for no bytes at all.

    :raises Unreadable: if it is none.
    """
    return read_guarded(data, _read_assignment) if data else {}


def version_of(data: bytes) -> int:
    return read_guarded(data, SubscriptionReader.int16)


def write_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(partitions)))
    for name in sorted(partitions):
        encoded = name.encode()
        out += _INT16.pack(len(encoded)) + encoded + _INT32.pack(len(partitions[name]))
        for partition in sorted(partitions[name]):
            out += _INT32.pack(partition)
    return bytes(out + _NULL)


def _read_subscription(reader: SubscriptionReader) -> Subscription:
    version = reader.int16()
    names = frozenset(reader.strings())
    reader.nullable_bytes()  # user data
    owned = _partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()
    return Subscription(names, owned, reader.nullable_string() if version >= 3 else None)


def _read_assignment(reader: SubscriptionReader) -> Mapping[str, frozenset[int]]:
    reader.int16()
    return _partitions(reader)


def _partitions(reader: SubscriptionReader) -> dict[str, frozenset[int]]:
    return {topic: frozenset(numbers) for topic, numbers in reader.partitions()}
