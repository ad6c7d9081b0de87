"""The topics in which coordinators keep their state: made on first use, compacted, in Kafka's layout.

A group or a transactional id belongs to one partition, by the hash of its name, and so to that partition's leader.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.controller.topics import NewTopic
from headrace.protocol.errors import TopicAlreadyExists
from headrace.replication.journal import Journal

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
#: How long whoever looks for a coordinator waits, in a cluster, for its topic; then it is told to ask again.
_MAKING_MS = 5_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """Under which settings the topic is made."""

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
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._making = asyncio.Lock()

    def exists(self, name: str) -> bool:
        return self._broker.metadata.get(name) is not None

    def partition_count(self, name: str) -> int:
        """Of the topic if it is there, else what it will have."""
        topic = self._broker.metadata.get(name)
        return (
            self._broker.config.int(f"{_KINDS[name].prefix}.num.partitions") if topic is None else len(topic.partitions)
        )

    async def ensure(self, name: str) -> None:
        """Makes the topic if it is not there. Of replicas it gets as many as there are brokers for."""
        if not self.exists(name):
            async with self._making:  # who comes meanwhile is answered when it is there
                if not self.exists(name):
                    await self._make(name)

    async def _make(self, name: str) -> None:
        kind, config = _KINDS[name], self._broker.config
        factor = config.int(f"{kind.prefix}.replication.factor")
        replicas = min(factor, len(self._broker.metadata.nodes))
        configs = {**kind.configs, "segment.bytes": str(config.int(f"{kind.prefix}.segment.bytes"))}
        if name == TRANSACTIONS and self._broker.cluster is not None:
            in_sync = config.int("transaction.state.log.min.isr")
            # With fewer replicas than were wanted, one may still go.
            configs["min.insync.replicas"] = str(in_sync if replicas == factor else min(in_sync, max(1, replicas - 1)))
        new = NewTopic(name, config.int(f"{kind.prefix}.num.partitions"), replicas, configs=configs)
        with suppress(TopicAlreadyExists):  # somebody makes it as any other topic
            await self._broker.topics.create(new)
        if self._broker.cluster is not None:
            await self._broker.cluster.topics.wait_for({name: new.num_partitions}, _MAKING_MS)

    def journal(self, name: str, index: int) -> Journal:
        broker = self._broker
        return Journal(
            broker.partitions.leader(name, index),
            broker.clock,
            on_write=lambda: broker.delayed_fetch.check_and_complete((name, index)),
        )
