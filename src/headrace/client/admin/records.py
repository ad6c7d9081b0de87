"""Records of partitions: where they begin and end, who wrote them last, and deleting the oldest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.base import AdminBase, Places, Target, by_topic, outcome
from headrace.client.admin.types import Isolation, ListedOffset, OffsetSpec, ProducerState, Results
from headrace.client.errors import HeadraceError, UnsupportedByBroker
from headrace.client.retry import Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api

_TIMESTAMPS = {"latest": -1, "earliest": -2, "max_timestamp": -3, "earliest_local": -4, "latest_tiered": -5}
#: An older broker would take these for times.
_SINCE_VERSION = {-3: 7, -4: 8, -5: 9}
_ISOLATION_LEVELS: dict[Isolation, int] = {"read_uncommitted": 0, "read_committed": 1}


class RecordsAdmin(AdminBase):
    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation: Isolation = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, ListedOffset]:
        """The offset that each partition has at ``earliest``, ``latest``, ``max_timestamp``, or at a time.

        :param isolation: with ``read_committed``, the latest is where the oldest open transaction begins.
        """
        timestamps = {at: _TIMESTAMPS[spec] if isinstance(spec, str) else spec for at, spec in specs.items()}

        async def ask(
            target: Target, its: list[TopicPartition]
        ) -> Mapping[TopicPartition, ListedOffset | HeadraceError]:
            version = target.connection.version_of(Api.LIST_OFFSETS)
            if any(version < _SINCE_VERSION.get(timestamps[at], 0) for at in its):
                raise UnsupportedByBroker(message=f"{target.node} knows only earliest, latest and times")
            asked = {
                topic: [
                    {"partition_index": index, "timestamp": timestamps[TopicPartition(topic, index)]}
                    for index in partitions
                ]
                for topic, partitions in by_topic(its).items()
            }
            answer = await target.ask(
                Api.LIST_OFFSETS,
                replica_id=-1,
                isolation_level=_ISOLATION_LEVELS[isolation],
                topics=[{"name": topic, "partitions": partitions} for topic, partitions in asked.items()],
                timeout=int(target.timeout_ms),
            )
            return {
                TopicPartition(topic.name, int(found.partition_index)): outcome(
                    found.error_code, _offset(found), f"the partition {topic.name}-{found.partition_index}"
                )
                for topic in answer.topics
                for found in topic.partitions
            }

        return await self._fan_out(specs, self._leaders, ask, timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, int]:
        """Deletes the records below an offset, -1 being the end; gives the offset that each partition begins at now."""

        async def ask(target: Target, its: list[TopicPartition]) -> Mapping[TopicPartition, int | HeadraceError]:
            asked = {
                topic: [
                    {"partition_index": index, "offset": before[TopicPartition(topic, index)]} for index in partitions
                ]
                for topic, partitions in by_topic(its).items()
            }
            answer = await target.ask(
                Api.DELETE_RECORDS,
                topics=[{"name": topic, "partitions": partitions} for topic, partitions in asked.items()],
                timeout=int(target.timeout_ms),
            )
            return {
                TopicPartition(topic.name, int(found.partition_index)): outcome(
                    found.error_code, int(found.low_watermark), f"the partition {topic.name}-{found.partition_index}"
                )
                for topic in answer.topics
                for found in topic.partitions
            }

        return await self._fan_out(before, self._leaders, ask, timeout_ms)

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """The idempotent producers that partitions remember.

        :param broker_id: which replica to ask; without, the leader of each.
        """

        async def at_broker(its: list[TopicPartition], deadline: Deadline) -> Places[TopicPartition]:
            assert broker_id is not None
            return dict.fromkeys(its, (await self._brokers([broker_id], deadline))[broker_id])

        async def ask(target: Target, its: list[TopicPartition]) -> Mapping[TopicPartition, _Producers | HeadraceError]:
            answer = await target.ask(
                Api.DESCRIBE_PRODUCERS,
                topics=[{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(its).items()],
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

        return await self._fan_out(partitions, self._leaders if broker_id is None else at_broker, ask, timeout_ms)


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
