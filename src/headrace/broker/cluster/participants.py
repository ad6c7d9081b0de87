"""The participants of transactions in a cluster: another broker may coordinate a transaction or lead its partitions.

Whether a transaction has a partition is asked of its coordinator (KIP-890). The answer comes when what it depends on is
committed at the coordinator, on this broker as on another. Another broker is asked by AddPartitionsToTxn: with
``verify_only`` for clients that add their partitions themselves, without it to add the partitions. One request carries
all questions that have gathered for a broker, and each transactional id once.

While this broker waits for the answer, the transaction may end and its marker may be written here. A write behind the
marker would belong to no transaction, and would stay open for ever. Clients of older versions keep their epoch from one
transaction to the next, so only the marker itself shows that the transaction has ended. Therefore :class:`_Guard` notes
whether a marker came (Kafka calls this a verification guard).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.links import NoAnswer
from headrace.broker.cluster.outbox import Outbox
from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.broker.coordinators.participants import Refusals, TransactionParticipants, not_added
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
)
from headrace.transactions.metadata import VERSION_2, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.cluster.links import Links
    from headrace.broker.cluster.markers import ClusterMarkers
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.replication.partitions import Partitions
    from headrace.transactions.coordinator import ProducerIdentity

_TIMEOUT_MS = 10_000
#: How long the answer to EndTxn waits until all partitions have their markers.
_MARKERS_WAIT_S = 1.0
_PURPOSE = "transactions"
_NO_LEADER = -1


@dataclass(eq=False, slots=True)
class _Question:
    """Whether a transaction has some partitions."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: frozenset[TopicPartition]
    adds: bool
    answer: asyncio.Future[Refusals] = field(repr=False)

    def fits_with(self, other: _Question) -> bool:
        """Whether one entry of a request can ask both questions, which have the same transactional id."""
        return self.producer == other.producer and self.adds == other.adds


class _Guard:
    """Notes whether a marker of one producer was written to one partition, while the coordinator is asked."""

    __slots__ = ("is_broken", "leader_epoch")

    def __init__(self, leader_epoch: int | None) -> None:
        self.leader_epoch = leader_epoch
        self.is_broken = False


class ClusterParticipants(TransactionParticipants):
    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        partitions: Partitions,
        links: Links,
        service: TransactionService,
        markers: ClusterMarkers,
    ) -> None:
        self.marker_sender = self._markers = markers
        self._broker_id = broker_id
        self._metadata = metadata
        self._partitions = partitions
        self._links = links
        self._service = service
        self._guards: dict[tuple[str, int, int], set[_Guard]] = {}
        self._outbox: Outbox[_Question] = Outbox(self._ask)

    async def refusals(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> Refusals:
        asked = frozenset(partitions)
        guards = {partition: self._guard(partition, producer.producer_id) for partition in asked}
        try:
            refusals = await self._refusals(transactional_id, producer, asked, adds=adds)
        finally:
            for partition, guard in guards.items():
                self._unguard(partition, producer.producer_id, guard)
        for (topic, index), guard in guards.items():
            if guard.is_broken or guard.leader_epoch != self._leader_epoch(topic, index):
                error = InvalidTxnState(f"the transaction of {transactional_id!r} has ended in {topic}-{index}")
                refusals.setdefault((topic, index), error)
        return {partition: _for_retry(error) for partition, error in refusals.items()}

    def marker_written(self, topic: str, index: int, producer_id: int) -> None:
        for guard in self._guards.get((topic, index, producer_id), ()):
            guard.is_broken = True

    async def wait_until_ended(self, transactional_id: str) -> None:
        coordinator = self._service.coordinator
        shard = coordinator.active(coordinator.index_of(transactional_id))
        if shard is None:
            return
        # Without asyncio.timeout: a request that has not waited yet is not a task, and from Python 3.12 on asyncio's
        # timeouts work in tasks only.
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(None)

        shard.when_completed(transactional_id, end)
        timeout = loop.call_later(_MARKERS_WAIT_S, end)
        await done
        timeout.cancel()

    async def close(self) -> None:
        await self._markers.close()
        await self._outbox.close()

    def _guard(self, partition: TopicPartition, producer_id: int) -> _Guard:
        guard = _Guard(self._leader_epoch(*partition))
        self._guards.setdefault((*partition, producer_id), set()).add(guard)
        return guard

    def _unguard(self, partition: TopicPartition, producer_id: int, guard: _Guard) -> None:
        guards = self._guards[*partition, producer_id]
        guards.discard(guard)
        if not guards:
            del self._guards[*partition, producer_id]

    def _leader_epoch(self, topic: str, index: int) -> int | None:
        partition = self._partitions.get(topic, index)
        return None if partition is None else partition.leader_epoch

    async def _refusals(
        self, transactional_id: str, producer: ProducerIdentity, asked: frozenset[TopicPartition], *, adds: bool
    ) -> Refusals:
        try:
            coordinator_id = await self._coordinator_id(transactional_id)
            if coordinator_id == self._broker_id:
                return await self._ask_here(transactional_id, producer, asked, adds=adds)
            if coordinator_id == _NO_LEADER:
                raise CoordinatorNotAvailable(f"no broker coordinates {transactional_id!r} now")
        except KafkaError as error:
            return dict.fromkeys(asked, error)
        answer: asyncio.Future[Refusals] = asyncio.get_running_loop().create_future()
        self._outbox.put(coordinator_id, _Question(transactional_id, producer, asked, adds, answer))
        return await answer

    async def _coordinator_id(self, transactional_id: str) -> int:
        await self._service.placement.learn_partition_count()
        index = self._service.coordinator.index_of(transactional_id)
        topic = self._metadata.get(TRANSACTIONS)
        if topic is None or index >= len(topic.partitions):
            return _NO_LEADER
        return topic.partitions[index].leader_id

    # -- the coordinator is this broker

    async def _ask_here(
        self, transactional_id: str, producer: ProducerIdentity, asked: frozenset[TopicPartition], *, adds: bool
    ) -> Refusals:
        coordinator = self._service.coordinator
        missing: frozenset[TopicPartition] = frozenset()
        if adds:
            coordinator.add_partitions(transactional_id, producer, asked, client_version=VERSION_2)
        else:
            missing = coordinator.missing_partitions(transactional_id, producer, asked)
        await self._service.replicated(transactional_id)
        return {partition: not_added(partition, transactional_id) for partition in missing}

    # -- the coordinator is another broker

    async def _ask(self, broker_id: int, questions: list[_Question]) -> None:
        """If several producers have the same transactional id, a further request asks for the later ones."""
        while questions:
            by_id: dict[str, list[_Question]] = defaultdict(list)
            later = []
            for question in questions:
                group = by_id[question.transactional_id]
                if not group or question.fits_with(group[0]):
                    group.append(question)
                else:
                    later.append(question)
            await self._ask_once(broker_id, by_id)
            questions = later

    async def _ask_once(self, broker_id: int, by_id: Mapping[str, list[_Question]]) -> None:
        codes: dict[tuple[str, str, int], int] = {}
        try:
            answer = await self._links.ask_while_alive(
                broker_id,
                Api.ADD_PARTITIONS_TO_TXN,
                {"transactions": [_request_entry(group) for group in by_id.values()]},
                timeout_ms=_TIMEOUT_MS,
                purpose=_PURPOSE,
            )
            codes = _codes(answer)
        except NoAnswer:
            pass  # all questions get COORDINATOR_NOT_AVAILABLE, below
        finally:
            for group in by_id.values():
                for question in group:
                    if not question.answer.done():
                        question.answer.set_result(_refusals(question, codes))


def _request_entry(group: list[_Question]) -> dict[str, object]:
    topics: dict[str, set[int]] = defaultdict(set)
    for question in group:
        for topic, index in question.partitions:
            topics[topic].add(index)
    first = group[0]
    return {
        "transactional_id": first.transactional_id,
        "producer_id": first.producer.producer_id,
        "producer_epoch": first.producer.producer_epoch,
        "verify_only": not first.adds,
        "topics": [{"name": name, "partitions": sorted(indexes)} for name, indexes in topics.items()],
    }


def _codes(answer: Any) -> dict[tuple[str, str, int], int]:
    return {
        (each.transactional_id, topic.name, result.partition_index): result.partition_error_code
        for each in answer.results_by_transaction
        for topic in each.topic_results
        for result in topic.results_by_partition
    }


def _refusals(question: _Question, codes: Mapping[tuple[str, str, int], int]) -> Refusals:
    refusals: Refusals = {}
    name = question.transactional_id
    for topic, index in question.partitions:
        code = codes.get((name, topic, index), ErrorCode.coordinator_not_available)
        if code == ErrorCode.transaction_abortable:
            refusals[topic, index] = not_added((topic, index), name)
        elif code != ErrorCode.none:
            kind = _kind_of(code)
            refusals[topic, index] = kind(f"the coordinator of {name!r} says {ErrorCode(code).name}")
    return refusals


def _kind_of(code: int) -> type[KafkaError]:
    return next((kind for kind in KafkaError.__subclasses__() if kind.code == code), CoordinatorNotAvailable)


def _for_retry(error: KafkaError) -> KafkaError:
    """A client of this broker must not look for another coordinator: it has to send the same request here again."""
    if isinstance(error, CoordinatorNotAvailable | NotCoordinator):
        return CoordinatorLoadInProgress(f"the transaction's coordinator is not ready: {error}")
    return error
