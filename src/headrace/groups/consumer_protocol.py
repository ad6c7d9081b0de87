"""Reads and writes the bytes of the classic consumer protocol for the coordinator, which needs topics as sets of
partitions. ``protocol/wire/consumer_protocol.py`` has the layout of the bytes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.consumer_protocol import (
    Assignment,
    Unreadable,
    decode_assignment,
    decode_subscription,
    decode_version,
    encode_assignment,
)

__all__ = ["Unreadable"]


class Subscription(NamedTuple):
    topic_names: frozenset[str]
    #: The partitions by the names of their topics.
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None = None


def read_subscription(data: bytes) -> Subscription:
    """
    :raises Unreadable: if the bytes are not a subscription.
    """
    found = decode_subscription(data)
    return Subscription(frozenset(found.topics), _by_topic(found.owned), found.rack_id)


def read_assignment(data: bytes) -> Mapping[str, frozenset[int]]:
    """The assigned partitions by the names of their topics; empty if there are no bytes at all.

    :raises Unreadable: if the bytes are not an assignment.
    """
    return _by_topic(decode_assignment(data).partitions)


def version_of(data: bytes) -> int:
    """The version of a subscription.

    :raises Unreadable: if the bytes are not a subscription.
    """
    return decode_version(data)


def write_assignment(version: int, partitions: Mapping[str, frozenset[int]]) -> bytes:
    assigned = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
    return encode_assignment(Assignment(tuple(assigned)), version)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for topic, number in partitions:
        found[topic].add(number)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
