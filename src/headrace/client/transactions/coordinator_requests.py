"""The requests that a transactional producer sends to its coordinators.

A broker learns in one of two ways which partitions belong to a transaction. Before KIP-890 the producer adds each
partition (AddPartitionsToTxn) before it sends the first record there, and the group of a consumer (AddOffsetsToTxn)
before it commits the group's offsets. In a cluster with ``transaction.version`` 2, the first Produce in version 12 adds
its partition, TxnOffsetCommit in version 5 adds its group, and the response to EndTxn in version 5 contains the next
epoch of the producer. So no late record of an old transaction can become part of a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import error_for
from headrace.client.transactions.producer_ids import ProducerIdAndEpoch, request_transactional_producer_id
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int]

_OUTDATED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state})
_OUTDATED_HINT = (
    ": another producer of that transactional.id has taken over, or the coordinator has aborted the transaction "
    "because it lasted longer than transaction.timeout.ms; close this producer and make another"
)
#: The highest versions for transactions before KIP-890, and for those of KIP-890.
_VERSIONS_1 = {Api.PRODUCE: 11, Api.END_TXN: 4, Api.TXN_OFFSET_COMMIT: 4}
_VERSIONS_2 = {Api.PRODUCE: 12, Api.END_TXN: 5, Api.TXN_OFFSET_COMMIT: 5}
#: Later versions are for requests between brokers.
_ADD_PARTITIONS_VERSION = 3
_FEATURE = "transaction.version"


class CoordinatorRequests:
    """Sends the requests of one transactional id. Each method raises :class:`HeadraceError` if the request fails."""

    def __init__(self, cluster: Cluster, transactional_id: str, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        #: Whether the cluster has transactions of KIP-890; see :meth:`find_version`.
        self.is_version_2 = False

    async def find_version(self) -> None:
        """Asks the coordinator whether the cluster has ``transaction.version`` 2."""
        connection = await self._cluster.coordinator("transaction", self._transactional_id)
        self.is_version_2 = connection.features.get(_FEATURE, 0) >= 2 and connection.supports(
            Api.END_TXN, _VERSIONS_2[Api.END_TXN]
        )

    def version_of(self, api: Api) -> int:
        """Returns the highest version of an API that the transaction may use."""
        return (_VERSIONS_2 if self.is_version_2 else _VERSIONS_1)[api]

    async def init_producer_id(self, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        return await request_transactional_producer_id(
            self._cluster, self._transactional_id, self._transaction_timeout_ms, producer
        )

    async def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Iterable[tuple[str, int]]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        identity = {f"v3_and_below_{name}": value for name, value in self._identity(producer).items()}
        answer = await self._cluster.ask_coordinator(
            Api.ADD_PARTITIONS_TO_TXN, "transaction", self._transactional_id, version=_ADD_PARTITIONS_VERSION,
            codes=_partition_codes, **identity,
            v3_and_below_topics=[{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        )  # fmt: skip
        refused = [code for code in _partition_codes(answer) if code is not ErrorCode.none]
        # If the coordinator refuses one partition, it does not attempt the others. Only the refusal gives the reason.
        reasons = [code for code in refused if code is not ErrorCode.operation_not_attempted] or refused
        if reasons:
            self._check(reasons[0], f"adding {', '.join(topics)} to the transaction")

    async def add_group(self, producer: ProducerIdAndEpoch, group_id: str) -> None:
        answer = await self._cluster.ask_coordinator(
            Api.ADD_OFFSETS_TO_TXN, "transaction", self._transactional_id, **self._identity(producer), group_id=group_id
        )
        self._check(answer.error_code, f"adding the group {group_id!r} to the transaction")

    async def commit_offsets(
        self, producer: ProducerIdAndEpoch, offsets: Offsets, group: ConsumerGroupMetadata
    ) -> None:
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), position in offsets.items():
            offset = OffsetAndMetadata(position) if isinstance(position, int) else position
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition, "committed_offset": offset.offset,
                    "committed_leader_epoch": offset.leader_epoch, "committed_metadata": offset.metadata,
                }
            )  # fmt: skip
        answer = await self._cluster.ask_coordinator(
            Api.TXN_OFFSET_COMMIT, "group", group.group_id, version=self.version_of(Api.TXN_OFFSET_COMMIT),
            codes=_offset_codes, **self._identity(producer), group_id=group.group_id,
            generation_id=group.generation_id, member_id=group.member_id, group_instance_id=group.group_instance_id,
            topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        )  # fmt: skip
        for code in _offset_codes(answer):
            self._check(code, f"committing offsets of the group {group.group_id!r} in the transaction")

    async def end(self, producer: ProducerIdAndEpoch, *, is_commit: bool) -> ProducerIdAndEpoch | None:
        """Commits or aborts the transaction. Returns the producer's next id and epoch, if the response has them."""
        answer = await self._cluster.ask_coordinator(
            Api.END_TXN, "transaction", self._transactional_id, version=self.version_of(Api.END_TXN),
            **self._identity(producer), committed=is_commit,
        )  # fmt: skip
        self._check(answer.error_code, f"{'committing' if is_commit else 'aborting'} the transaction")
        producer_id, epoch = int(getattr(answer, "producer_id", -1)), int(getattr(answer, "producer_epoch", -1))
        return (producer_id, epoch) if producer_id >= 0 else None

    def _identity(self, producer: ProducerIdAndEpoch) -> dict[str, Any]:
        return {
            "transactional_id": self._transactional_id,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
        }

    def _check(self, code: ErrorCode, what: str) -> None:
        if code is not ErrorCode.none:
            hint = _OUTDATED_HINT if code in _OUTDATED else ""
            raise error_for(code, f"{what} of {self._transactional_id!r}{hint}")


def _partition_codes(answer: Any) -> list[ErrorCode]:
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def _offset_codes(answer: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]
