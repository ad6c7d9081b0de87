"""Reads and writes the bytes that consumers of the classic protocol exchange through the coordinator.

The coordinator of a classic group does not look into these bytes, except to know which topics are in use. It reads and
writes all of them when a group migrates to the consumer protocol or back (KIP-848).
``protocol/wire/consumer_protocol.py`` has the layout of the bytes; here partitions are sets by topic.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.consumer_protocol import (
    Assignment,
    Unreadable,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    decode_version,
    encode_assignment,
)

__all__ = ["Unreadable"]


class Subscription(NamedTuple):
    """The fields of a subscription that the coordinator uses."""

    topic_names: frozenset[str]
    #: The partitions that the member owns, by the names of their topics.
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if the bytes are not a subscription.
    """
    found = decode_subscription(data)
    return Subscription(frozenset(found.topics), _by_topic(found.owned), found.rack_id)


def read_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """The partitions of an assignment, by the names of their topics. Empty bytes are an empty assignment.

    :raises Unreadable: if the bytes are not an assignment.
    """
    return _by_topic(decode_assignment(data).partitions)


def version_of(data: bytes) -> int:
    """The version of a subscription.

    :raises Unreadable: if the bytes are not a subscription.
    """
    return decode_version(data)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of several subscriptions together. None if the topics of one subscription cannot be read.

    Only the version and the topics are read, so a subscription whose other fields are damaged still counts.
    """
    try:
        return frozenset(name for data in subscriptions for name in decode_subscribed_topics(data))
    except Unreadable:
        return None


def write_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    """The bytes of an assignment, from partitions by the names of their topics."""
    assigned = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
    return encode_assignment(Assignment(tuple(assigned)), version)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for topic, number in partitions:
        found[topic].add(number)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
