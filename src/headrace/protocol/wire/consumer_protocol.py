"""Reads and writes the bytes that consumers of the classic protocol send one another through JoinGroup and SyncGroup.

::

    subscription: version int16, topics [string], user_data bytes, owned [topic string, partitions [int32]] (from 1 on),
                  generation int32 (from 2 on), rack string (from 3 on)
    assignment:   version int16, [topic string, partitions [int32]], user_data bytes

    user data of "sticky":             owned [topic string, partitions [int32]], generation int32 (older: no generation)
    user data of "cooperative-sticky": generation int32

An int16 precedes strings, an int32 precedes arrays and bytes; -1 is null. A reader reads the fields that it knows of a
higher version and ignores the bytes behind them, so a group can be upgraded member by member. "sticky" puts the
partitions that a member owned into its user data, because an eager member has given up all partitions before it joins.
A cooperative member still owns its partitions, and lists them in the subscription itself.

A coordinator passes these bytes on, and reads them in a few places only. So nobody has checked a length before it is
read here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.reader import WireReader

HIGHEST_VERSION = 3
NO_GENERATION = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")

T = TypeVar("T")


class Unreadable(Exception):
    """The bytes are not those of a consumer."""


class Subscription(NamedTuple):
    """The subscription that a member sends to its group's leader. Topics and partitions keep their order."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


class Assignment(NamedTuple):
    """The partitions that the leader of a group gives to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class StickyUserData(NamedTuple):
    """The partitions that a member of a "sticky" group owned before it joined, and in which generation."""

    owned: tuple[TopicPartition, ...]
    generation: int = NO_GENERATION


# ---------------------------------------------------------------------------------------------------------- writing


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Sorts the topics, as other clients do: the coordinator compares bytes to see whether a member has changed."""
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(subscription.topics)))
    for topic in sorted(subscription.topics):
        out += _string(topic)
    out += _bytes(subscription.user_data)
    if version >= 1:
        out += _partitions(subscription.owned)
    if version >= 2:
        out += _INT32.pack(subscription.generation)
    if version >= 3:
        out += _string(subscription.rack_id)
    return bytes(out)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    return _INT16.pack(version) + _partitions(assignment.partitions) + _bytes(assignment.user_data)


def encode_sticky_user_data(data: StickyUserData) -> bytes:
    return _partitions(data.owned) + _INT32.pack(data.generation)


def encode_cooperative_user_data(generation: int) -> bytes:
    return _INT32.pack(generation)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    out = bytearray(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += _string(topic) + _INT32.pack(len(numbers))
        out += b"".join(map(_INT32.pack, numbers))
    return bytes(out)


# ---------------------------------------------------------------------------------------------------------- reading


class _Reader(WireReader):
    __slots__ = ()

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.data)

    def int16(self) -> int:
        return self.unpack(_INT16)[0]

    def int32(self) -> int:
        return self.unpack(_INT32)[0]

    def string(self) -> str:
        return str(self.slice(self.int16()), "utf-8")

    def nullable_string(self) -> str | None:
        size_bytes = self.int16()
        return None if size_bytes < 0 else str(self.slice(size_bytes), "utf-8")

    def nullable_bytes(self) -> bytes | None:
        size_bytes = self.int32()
        return None if size_bytes < 0 else bytes(self.slice(size_bytes))

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.int32())]

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Topics with their partitions, in the order of the bytes."""
        found: list[TopicPartition] = []
        for _ in range(self.int32()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.int32())]
        return tuple(found)


def _read_guarded(data: bytes, read: Callable[[_Reader], T]) -> T:
    """
    :raises Unreadable: if the bytes end too early, or a string is not UTF-8.
    """
    try:
        return read(_Reader(memoryview(data)))
    except (StructError, ValueError) as error:
        raise Unreadable(str(error)) from None


def decode_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if the bytes are not a subscription.
    """
    return _read_guarded(data, _read_subscription)


def decode_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription. The fields behind the topics are not read, and may be damaged.

    :raises Unreadable: if the topics cannot be read.
    """
    return _read_guarded(data, _read_topics)


def decode_assignment(data: bytes) -> Assignment:
    """No bytes at all are an empty assignment: a coordinator sends them to a member that the leader has left out.

    :raises Unreadable: if the bytes are not an assignment.
    """
    return _read_guarded(data, _read_assignment) if data else Assignment(())


def decode_sticky_user_data(data: bytes | None) -> StickyUserData:
    """Reads both layouts. User data that cannot be read count as empty, so that one member with foreign user data does
    not keep the whole group from an assignment."""
    try:
        return _read_guarded(data, _read_sticky) if data else StickyUserData(())
    except Unreadable:
        return StickyUserData(())


def decode_cooperative_user_data(data: bytes | None) -> int:
    """The generation, or -1."""
    return int(_INT32.unpack_from(data)[0]) if data is not None and len(data) >= _INT32.size else NO_GENERATION


def decode_version(data: bytes) -> int:
    """The version of a subscription or an assignment.

    :raises Unreadable: if there are fewer than two bytes.
    """
    return _read_guarded(data, _Reader.int16)


def _read_topics(reader: _Reader) -> tuple[str, ...]:
    reader.int16()
    return tuple(reader.strings())


def _read_subscription(reader: _Reader) -> Subscription:
    version = reader.int16()
    if version < 0:
        raise Unreadable(f"no subscription has the version {version}")
    return Subscription(
        topics=tuple(reader.strings()),
        user_data=reader.nullable_bytes(),
        owned=reader.partitions() if version >= 1 else (),
        generation=reader.int32() if version >= 2 else NO_GENERATION,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def _read_assignment(reader: _Reader) -> Assignment:
    version = reader.int16()
    if version < 0:
        raise Unreadable(f"no assignment has the version {version}")
    return Assignment(reader.partitions(), reader.nullable_bytes())


def _read_sticky(reader: _Reader) -> StickyUserData:
    owned = reader.partitions()
    return StickyUserData(owned, NO_GENERATION if reader.is_at_end else reader.int32())
