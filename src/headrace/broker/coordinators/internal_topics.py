"""The internal topics, in which coordinators keep their state: created on first use, compacted, in Kafka's layout.

A group or a transactional id belongs to one partition, by the hash of its name, and so to the leader of that partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from headrace.controller.topic_rules import NewTopic
from headrace.protocol.errors import TopicAlreadyExists
from headrace.replication.journal import Journal

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.topics import Topics
    from headrace.replication.journal import WhenCommitted
    from headrace.replication.partition import Partition
    from headrace.runtime.clock import Clock
    from headrace.runtime.purgatory import Purgatory

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
#: How long a client that looks for a coordinator waits until the new topic has leaders. Then it has to ask again.
_CREATION_WAIT_MS = 5_000


class _Kind(NamedTuple):
    """The prefix of the broker settings of an internal topic, and the settings that the topic is created with."""

    prefix: str
    configs: dict[str, str]


_KINDS = {
    GROUPS: _Kind("offsets.topic", {"cleanup.policy": "compact", "compression.type": "producer"}),
    TRANSACTIONS: _Kind(
        "transaction.state.log",
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
}


class InternalTopics:
    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataCache,
        topics: Callable[[], Topics],
        delayed_fetch: Purgatory[tuple[str, int]],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._topics = topics
        self._delayed_fetch = delayed_fetch
        self._creating = asyncio.Lock()

    def exists(self, name: str) -> bool:
        return self._metadata.get(name) is not None

    def partition_count(self, name: str) -> int:
        """The number of partitions that the topic has. If it does not exist: the number that it will have."""
        topic = self._metadata.get(name)
        return self._config.int(f"{_KINDS[name].prefix}.num.partitions") if topic is None else len(topic.partitions)

    async def ensure(self, name: str) -> None:
        """Creates the topic if it does not exist. It gets fewer replicas than configured if there are fewer brokers."""
        if not self.exists(name):
            async with self._creating:  # requests that come meanwhile are answered when the topic exists
                if not self.exists(name):
                    await self._create(name)

    async def _create(self, name: str) -> None:
        kind, config, topics = _KINDS[name], self._config, self._topics()
        factor = config.int(f"{kind.prefix}.replication.factor")
        replicas = min(factor, len(self._metadata.nodes))
        configs = {**kind.configs, "segment.bytes": str(config.int(f"{kind.prefix}.segment.bytes"))}
        if name == TRANSACTIONS and topics.are_replicated:
            in_sync = config.int("transaction.state.log.min.isr")
            # With fewer replicas than configured, the topic must still work when one of them fails.
            configs["min.insync.replicas"] = str(in_sync if replicas == factor else min(in_sync, max(1, replicas - 1)))
        new = NewTopic(name, config.int(f"{kind.prefix}.num.partitions"), replicas, configs=configs)
        with suppress(TopicAlreadyExists):  # a client creates it as any other topic
            await topics.create(new)
        await topics.wait_until_applied({name: new.num_partitions}, _CREATION_WAIT_MS)

    def journal(self, partition: Partition, wait: WhenCommitted | None = None) -> Journal:
        """The journal of a partition that this broker leads. A write to it wakes the consumers of the partition."""
        key = partition.log.topic, partition.log.partition
        return Journal(partition, self._clock, on_write=lambda: self._delayed_fetch.check_and_complete(key), wait=wait)
