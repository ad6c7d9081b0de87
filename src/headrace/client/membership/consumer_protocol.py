"""The bytes that consumers of the classic protocol send one another through JoinGroup and SyncGroup.

::

    subscription: version int16, topics [string], user_data bytes, owned [topic string, partitions [int32]] (from 1 on),
                  generation int32 (from 2 on), rack string (from 3 on)
    assignment:   version int16, [topic string, partitions [int32]], user_data bytes

    user data of "sticky":             owned [topic string, partitions [int32]], generation int32 (older: no generation)
    user data of "cooperative-sticky": generation int32

Strings have an int16 before them, arrays and bytes an int32; -1 is null. A reader takes what it knows of a higher
version and ignores what follows, so a group may be upgraded member by member. "sticky" tells what a member had in its
user data, because an eager member has given everything up before it joins; a cooperative member still owns it, and says
so in the subscription itself.
"""

from collections import defaultdict
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.client.types import TopicPartition
from headrace.protocol.subscription_reader import SubscriptionReader, Unreadable, read_guarded

__all__ = ["Unreadable"]

HIGHEST_VERSION = 3
NO_GENERATION = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Subscription(NamedTuple):
    """What a member tells the leader of its group. Owned partitions and topics keep the order of the bytes."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None


class Assignment(NamedTuple):
    """What the leader gives a member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class StickyUserData(NamedTuple):
    owned: tuple[TopicPartition, ...]
    generation: int = NO_GENERATION


# ---------------------------------------------------------------------------------------------------------- writing


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Topics are sorted, as other clients do: the coordinator compares bytes to see whether a member changed."""
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


def decode_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if it is none.
    """
    return read_guarded(data, _read_subscription)


def decode_assignment(data: bytes) -> Assignment:
    """Nothing at all is what a coordinator sends to a member that the leader forgot.

    :raises Unreadable: if it is none.
    """
    return read_guarded(data, _read_assignment) if data else Assignment(())


def decode_sticky_user_data(data: bytes | None) -> StickyUserData:
    """Both layouts. A stranger's user data count as no memory, as they must not keep the group from its assignment."""
    try:
        return read_guarded(data, _read_sticky) if data else StickyUserData(())
    except Unreadable:
        return StickyUserData(())


def decode_cooperative_user_data(data: bytes | None) -> int:
    """The generation, or -1."""
    return int(_INT32.unpack_from(data)[0]) if data is not None and len(data) >= _INT32.size else NO_GENERATION


def _read_subscription(reader: SubscriptionReader) -> Subscription:
    version = reader.int16()
    if version < 0:
        raise Unreadable(f"no subscription has the version {version}")
    return Subscription(
        topics=tuple(reader.strings()),
        user_data=reader.nullable_bytes(),
        owned=_owned(reader) if version >= 1 else (),
        generation=reader.int32() if version >= 2 else NO_GENERATION,
        rack_id=reader.nullable_string() if version >= 3 else None,
    )


def _read_assignment(reader: SubscriptionReader) -> Assignment:
    version = reader.int16()
    if version < 0:
        raise Unreadable(f"no assignment has the version {version}")
    return Assignment(_owned(reader), reader.nullable_bytes())


def _read_sticky(reader: SubscriptionReader) -> StickyUserData:
    owned = _owned(reader)
    return StickyUserData(owned, NO_GENERATION if reader.is_at_end else reader.int32())


def _owned(reader: SubscriptionReader) -> tuple[TopicPartition, ...]:
    return tuple([TopicPartition(topic, number) for topic, numbers in reader.partitions() for number in numbers])
