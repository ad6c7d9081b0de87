"""Whether a transaction has a partition: asked of its coordinator, which may be another broker (KIP-890).

Local or not, the answer comes when what it rests on is committed at the coordinator. Another broker is asked by
AddPartitionsToTxn: with ``verify_only`` for clients that add their partitions themselves, else to have them added.
What has gathered for a broker goes in one request, which has each transactional id once.

While we wait for an answer the transaction may end, and its marker be written here: a write that came behind the marker
would belong to nothing, and stay open for good. With clients that do not raise their epoch at each end only the marker
itself tells; so it is noted whether one came (:class:`_Guard`; Kafka calls it a verification guard).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.links import NoAnswer
from headrace.broker.cluster.outbox import Outbox, ask_while_it_lives
from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidTxnState,
    KafkaError,
    TransactionAbortable,
)
from headrace.transactions.metadata import VERSION_2, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.transactions.coordinator import Identity

_TIMEOUT_MS = 10_000
_PURPOSE = "transactions"
_NO_LEADER = -1

#: Why a partition may not be written to; those that may are not in it.
Refusals = dict[TopicPartition, KafkaError]


@dataclass(eq=False, slots=True)
class _Question:
    transactional_id: str
    producer: Identity
    partitions: frozenset[TopicPartition]
    adds: bool
    answer: asyncio.Future[Refusals] = field(repr=False)

    def goes_with(self, other: _Question) -> bool:
        return self.producer == other.producer and self.adds == other.adds


class _Guard:
    """Of one partition and producer, while we wait."""

    __slots__ = ("is_broken", "leader_epoch")

    def __init__(self, leader_epoch: int | None) -> None:
        self.leader_epoch = leader_epoch
        self.is_broken = False


class TxnPartitions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._guards: dict[tuple[str, int, int], set[_Guard]] = {}
        self._outbox: Outbox[_Question] = Outbox(self._ask)

    async def refusals(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> Refusals:
        """The partitions that the producer's transaction does not have, and why; with ``adds`` they are added first.

        It holds for as long as nothing is awaited.
        """
        wanted = frozenset(partitions)
        guards = {partition: self._guard(partition, producer.producer_id) for partition in wanted}
        try:
            refusals = await self._refusals(transactional_id, producer, wanted, adds=adds)
        finally:
            for partition, guard in guards.items():
                self._unguard(partition, producer.producer_id, guard)
        for (topic, index), guard in guards.items():
            if guard.is_broken or guard.leader_epoch != self._leader_epoch(topic, index):
                error = InvalidTxnState(f"the transaction of {transactional_id!r} has ended in {topic}-{index}")
                refusals.setdefault((topic, index), error)
        return refusals

    def marker_written(self, topic: str, index: int, producer_id: int) -> None:
        for guard in self._guards.get((topic, index, producer_id), ()):
            guard.is_broken = True

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
        partition = self._broker.partitions.get(topic, index)
        return None if partition is None else partition.leader_epoch

    async def _refusals(
        self, transactional_id: str, producer: Identity, wanted: frozenset[TopicPartition], *, adds: bool
    ) -> Refusals:
        try:
            leader_id = await self._coordinator_id(transactional_id)
            if leader_id == self._broker.broker_id:
                return await self._ask_here(transactional_id, producer, wanted, adds=adds)
            if leader_id == _NO_LEADER:
                raise CoordinatorNotAvailable(f"nobody coordinates {transactional_id!r} now")
        except KafkaError as error:
            return dict.fromkeys(wanted, error)
        question = _Question(transactional_id, producer, wanted, adds, self._broker.loop.create_future())
        self._outbox.put(leader_id, question)
        return await question.answer

    async def close(self) -> None:
        await self._outbox.close()

    async def _coordinator_id(self, transactional_id: str) -> int:
        service = self._broker.transactions
        await service.learn_partition_count()
        index = service.coordinator.index_of(transactional_id)
        topic = self._broker.metadata.get(TRANSACTIONS)
        if topic is None or index >= len(topic.partitions):
            return _NO_LEADER
        return topic.partitions[index].leader_id

    async def _ask_here(
        self, transactional_id: str, producer: Identity, wanted: frozenset[TopicPartition], *, adds: bool
    ) -> Refusals:
        service = self._broker.transactions
        missing: frozenset[TopicPartition] = frozenset()
        if adds:
            service.coordinator.add_partitions(transactional_id, producer, wanted, client_version=VERSION_2)
        else:
            missing = service.coordinator.missing_partitions(transactional_id, producer, wanted)
        await service.replicated(transactional_id)
        return {partition: _not_added(partition, transactional_id) for partition in missing}

    # -- elsewhere

    async def _ask(self, broker_id: int, questions: list[_Question]) -> None:
        """Of several producers with one transactional id, the later ones are asked for in a further request."""
        while questions:
            by_id: dict[str, list[_Question]] = defaultdict(list)
            later = []
            for question in questions:
                group = by_id[question.transactional_id]
                if not group or question.goes_with(group[0]):
                    group.append(question)
                else:
                    later.append(question)
            await self._ask_once(broker_id, by_id)
            questions = later

    async def _ask_once(self, broker_id: int, by_id: Mapping[str, list[_Question]]) -> None:
        codes: dict[tuple[str, str, int], int] = {}
        try:
            answer = await ask_while_it_lives(
                self._broker,
                broker_id,
                Api.ADD_PARTITIONS_TO_TXN,
                {"transactions": [_asked(group) for group in by_id.values()]},
                timeout_ms=_TIMEOUT_MS,
                purpose=_PURPOSE,
            )
            codes = _codes(answer)
        except NoAnswer:
            pass  # told to all, below
        finally:
            for group in by_id.values():
                for question in group:
                    if not question.answer.done():
                        question.answer.set_result(_refusals(question, codes))


def _asked(group: list[_Question]) -> dict[str, object]:
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
            refusals[topic, index] = _not_added((topic, index), name)
        elif code != ErrorCode.none:
            kind = _kind_of(code)
            refusals[topic, index] = kind(f"the coordinator of {name!r} says {ErrorCode(code).name}")
    return refusals


def _kind_of(code: int) -> type[KafkaError]:
    return next((kind for kind in KafkaError.__subclasses__() if kind.code == code), CoordinatorNotAvailable)


def _not_added(partition: TopicPartition, transactional_id: str) -> KafkaError:
    topic, index = partition
    return TransactionAbortable(f"{topic}-{index} was not added to the transaction of {transactional_id!r}")
