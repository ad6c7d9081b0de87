"""Prepares the topic that a view is published to: creates it compacted, refuses another one, and reads it back.

A topic that does not exist is created with ``cleanup.policy=compact`` and the broker's defaults for everything else. A
topic that is not compacted would lose rows, or grow without end, so it is refused, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from hashlib import blake2b

from headrace.client.admin.sync_admin import Admin
from headrace.client.config import ClientConfig, ConsumerConfig
from headrace.client.consumer.sync_consumer import Consumer
from headrace.client.errors import HeadraceError, TopicExists, UnknownTopic
from headrace.client.types import ConsumedRecord, OffsetAndMetadata, TopicPartition

COMPACTED = "compact"
_POLICY = "cleanup.policy"
_POLL_MS = 1_000


class PublishRefused(HeadraceError):
    """The view cannot be published so. The message says what to change."""


class PublishedTopic:
    """:param client: the options of the project's clients, by Kafka's names."""

    def __init__(self, client: Mapping[str, str], topic: str) -> None:
        self._client = {**client, "enable.metrics.push": "false"}
        self.name = topic

    @property
    def group(self) -> str:
        """The consumer group, and the transactional id, under which the position of the publisher is stored."""
        return f"headrace-publish-{self.name}"

    def prepare(self) -> str:
        """Creates the topic if it does not exist.

        :return: the topic's id, which another topic of the same name would not have.
        :raises PublishRefused: if the topic is not compacted.
        """
        with Admin(ClientConfig.select(self._client)) as admin:
            try:
                found = admin.describe_topic(self.name)
            except UnknownTopic:
                with suppress(TopicExists):  # somebody else has created it at this moment
                    admin.create_topic(self.name, configs={_POLICY: COMPACTED})
                found = admin.describe_topic(self.name)
            policy = policy_of(admin, self.name)
        if policy != COMPACTED:
            raise PublishRefused(not_compacted(self.name, policy))
        return str(found.id)

    def committed(self) -> OffsetAndMetadata | None:
        """The position that the last committed transaction has stored."""
        with Admin(ClientConfig.select(self._client)) as admin:
            found = admin.list_group_offsets(self.group, require_stable=True)
        return found.get(TopicPartition(self.name, 0))

    def contents(self) -> dict[bytes, bytes]:
        """By key, a hash of the value that the topic has now. Reads the whole topic."""
        found: dict[bytes, bytes] = {}
        for record in self._records():
            key = record.key or b""
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = value_hash(record.value)
        return found

    def has_records(self) -> bool:
        """Whether the topic has a record that was committed."""
        with closing(self._records()) as records:
            return next(records, None) is not None

    def _records(self) -> Generator[ConsumedRecord]:
        """All records that are committed now."""
        options = ConsumerConfig.select(self._client) | {
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
        }
        with Consumer(config={**options, "auto.offset.reset": "earliest"}) as consumer:
            partitions = [TopicPartition(self.name, each.partition) for each in consumer.partitions_for(self.name)]
            ends = consumer.end_offsets(*partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(consumer.position(place) < ends[place] for place in partitions):
                yield from consumer.poll(_POLL_MS)


def value_hash(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()


def policy_of(admin: Admin, topic: str) -> str:
    """The ``cleanup.policy`` of a topic."""
    entry = admin.describe_config("topic", topic)[_POLICY]
    return entry.value or ""


def not_compacted(topic: str, policy: str) -> str:
    return (
        f"the topic {topic} has {_POLICY}={policy}, and a view can be published to a compacted topic only: choose "
        f"another topic, which is then created, or run 'headrace configs --alter --entity-type topics --entity-name "
        f"{topic} --add-config {_POLICY}={COMPACTED}'"
    )
