"""Looks up offsets, deletes the oldest records, and lists the producers of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.requests import AdminRequests, AskedBroker, BrokerIds, by_topic, outcome
from headrace.client.admin.types import Isolation, ListedOffset, OffsetSpec, ProducerState, Results
from headrace.client.errors import HeadraceError, UnsupportedByBroker
from headrace.client.retry import Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api

_TIMESTAMPS = {"latest": -1, "earliest": -2, "max_timestamp": -3, "earliest_local": -4, "latest_tiered": -5}
#: The version from which on a special timestamp is supported. An older broker would take it for a time.
_SINCE_VERSION = {-3: 7, -4: 8, -5: 9}
_ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}


class RecordsAdmin:
    """The records of partitions."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, ListedOffset]:
        """Looks up an offset of each partition: ``earliest``, ``latest``, ``max_timestamp``, or at a time.

        :param specs: a name, or a time in milliseconds, by partition.
        :param isolation: with ``read_committed``, ``latest`` is the start of the oldest open transaction.
        """
        timestamps = {at: _TIMESTAMPS[spec] if isinstance(spec, str) else spec for at, spec in specs.items()}

        async def ask(
            broker: AskedBroker, keys: list[TopicPartition]
        ) -> Mapping[TopicPartition, ListedOffset | HeadraceError]:
            version = broker.connection.version_of(Api.LIST_OFFSETS)
            if any(version < _SINCE_VERSION.get(timestamps[at], 0) for at in keys):
                raise UnsupportedByBroker(message=f"{broker.node} supports only earliest, latest and times")
            asked = {
                topic: [
                    {"partition_index": index, "timestamp": timestamps[TopicPartition(topic, index)]}
                    for index in partitions
                ]
                for topic, partitions in by_topic(keys).items()
            }
            answer = await broker.ask(
                Api.LIST_OFFSETS,
                replica_id=-1,
                isolation_level=_ISOLATION_LEVELS[isolation],
                topics=[{"name": topic, "partitions": partitions} for topic, partitions in asked.items()],
                timeout=int(broker.timeout_ms),
            )
            return {
                TopicPartition(topic.name, int(found.partition_index)): outcome(
                    found.error_code, _offset(found), f"the partition {topic.name}-{found.partition_index}"
                )
                for topic in answer.topics
                for found in topic.partitions
            }

        return await self._requests.fan_out(specs, self._requests.leaders, ask, timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, int]:
        """Deletes the records before an offset; -1 means all. Returns the new first offset of each partition."""

        async def ask(broker: AskedBroker, keys: list[TopicPartition]) -> Mapping[TopicPartition, int | HeadraceError]:
            asked = {
                topic: [
                    {"partition_index": index, "offset": before[TopicPartition(topic, index)]} for index in partitions
                ]
                for topic, partitions in by_topic(keys).items()
            }
            answer = await broker.ask(
                Api.DELETE_RECORDS,
                topics=[{"name": topic, "partitions": partitions} for topic, partitions in asked.items()],
                timeout=int(broker.timeout_ms),
            )
            return {
                TopicPartition(topic.name, int(found.partition_index)): outcome(
                    found.error_code, int(found.low_watermark), f"the partition {topic.name}-{found.partition_index}"
                )
                for topic in answer.topics
                for found in topic.partitions
            }

        return await self._requests.fan_out(before, self._requests.leaders, ask, timeout_ms)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Returns the idempotent producers that partitions remember.

        :param broker_id: the broker to ask. Without it, the leader of each partition.
        """

        async def at_broker(keys: list[TopicPartition], deadline: Deadline) -> BrokerIds[TopicPartition]:
            assert broker_id is not None
            return dict.fromkeys(keys, (await self._requests.brokers([broker_id], deadline))[broker_id])

        async def ask(
            broker: AskedBroker, keys: list[TopicPartition]
        ) -> Mapping[TopicPartition, _Producers | HeadraceError]:
            answer = await broker.ask(
                Api.DESCRIBE_PRODUCERS,
                topics=[{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(keys).items()],
            )
            return {
                TopicPartition(topic.name, int(found.partition_index)): outcome(
                    found.error_code,
                    tuple(map(_producer, found.active_producers)),
                    f"the partition {topic.name}-{found.partition_index}",
                    found.error_message,
                )
                for topic in answer.topics
                for found in topic.partitions
            }

        return await self._requests.fan_out(
            partitions, self._requests.leaders if broker_id is None else at_broker, ask, timeout_ms
        )


_Producers = tuple[ProducerState, ...]


def _offset(found: Any) -> ListedOffset:
    return ListedOffset(int(found.offset), int(found.timestamp), int(getattr(found, "leader_epoch", -1)))


def _producer(found: Any) -> ProducerState:
    return ProducerState(
        int(found.producer_id),
        int(found.producer_epoch),
        int(found.last_sequence),
        int(found.last_timestamp),
        int(found.coordinator_epoch),
        int(found.current_txn_start_offset),
    )
