"""Transactions: what a producer with a ``transactional.id`` may do when, and what it tells the coordinator.

::

    UNINITIALIZED --init--> READY --begin--> IN_TRANSACTION --commit, abort--> ENDING --> READY
                                                   | a record failed, or the coordinator said so
                                                   v
                                               ABORTABLE --abort--> ENDING --> READY
    ENDING --no answer in time--> UNHEARD --the same call again--> ENDING
    any --fenced, or a failure that no abort mends--> FATAL

The table ``NEXT`` is the specification; a call that does not fit raises and changes nothing.

There are two ways in which a broker learns which partitions belong to a transaction. Before KIP-890 the producer adds
each one (AddPartitionsToTxn) before the first record for it goes out, and the group of a consumer (AddOffsetsToTxn)
before its offsets. Where the cluster has ``transaction.version`` 2, the first Produce in version 12 adds its partition
by itself, TxnOffsetCommit in version 5 its group, and the answer to EndTxn in version 5 gives the producer its next
epoch, so that nothing of an old transaction can slip into a new one.

A transaction in which numbered records were lost cannot simply go on with the next number: after its abort the epoch is
raised by InitProducerId (KIP-360), where EndTxn has not done that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    HeadraceError,
    KafkaTimeout,
    ProducerFenced,
    TransactionError,
    error_for,
)
from headrace.client.producer.core import ProducerCore
from headrace.client.producer.identity import ask_transactional_id
from headrace.client.producer.partition_queue import NO_PRODUCER
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

if TYPE_CHECKING:
    from headrace.client.producer.sender import Sender

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[tuple[str, int], OffsetAndMetadata | int]
GroupPlace = ConsumerGroupMetadata | str


class State(Enum):
    UNINITIALIZED = "has not called init_transactions()"
    READY = "has begun no transaction"
    IN_TRANSACTION = "is in a transaction"
    ABORTABLE = "is in a transaction that failed and can only be aborted"
    ENDING = "is ending a transaction"
    UNHEARD = "does not know whether its transaction has ended; make the same call again"
    FATAL = "has failed for good and can only be closed"


class Call(Enum):
    INIT = auto()
    BEGIN = auto()
    SEND_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()
    ENDED = auto()
    NOT_HEARD = auto()
    FAILED = auto()
    FENCED = auto()


_S, _C = State, Call
#: What follows from each state by each call. What is not here is not allowed.
NEXT: dict[tuple[State, Call], State] = {
    (_S.UNINITIALIZED, _C.INIT): _S.READY,
    (_S.READY, _C.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _C.SEND_OFFSETS): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _C.COMMIT): _S.ENDING,
    (_S.IN_TRANSACTION, _C.ABORT): _S.ENDING,
    (_S.ABORTABLE, _C.ABORT): _S.ENDING,
    (_S.ENDING, _C.ENDED): _S.READY,
    (_S.ENDING, _C.NOT_HEARD): _S.UNHEARD,
    (_S.UNHEARD, _C.COMMIT): _S.ENDING,
    (_S.UNHEARD, _C.ABORT): _S.ENDING,
    (_S.UNHEARD, _C.FAILED): _S.UNHEARD,
    (_S.IN_TRANSACTION, _C.FAILED): _S.ABORTABLE,
    (_S.ABORTABLE, _C.FAILED): _S.ABORTABLE,
    (_S.ENDING, _C.FAILED): _S.ABORTABLE,
    (_S.READY, _C.FAILED): _S.READY,
    **{(state, _C.FENCED): _S.FATAL for state in State},
    (_S.FATAL, _C.FAILED): _S.FATAL,
}

_FATAL = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transactional_id_authorization_failed, ErrorCode.invalid_txn_state, ErrorCode.unsupported_version,
        ErrorCode.invalid_transaction_timeout, ErrorCode.cluster_authorization_failed,
    }
)  # fmt: skip
_OUTDATED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state})
_HINT = (
    ": another producer of that transactional.id has taken over, or the coordinator has aborted the transaction since "
    "it lasted longer than transaction.timeout.ms; close this producer and make another"
)
#: The last versions of before KIP-890, and those that it came with.
_VERSIONS_1 = {Api.PRODUCE: 11, Api.END_TXN: 4, Api.TXN_OFFSET_COMMIT: 4}
_VERSIONS_2 = {Api.PRODUCE: 12, Api.END_TXN: 5, Api.TXN_OFFSET_COMMIT: 5}
#: Later ones are for brokers among themselves.
_ADD_PARTITIONS_VERSION = 3
_FEATURE = "transaction.version"


class Transactions:
    """Of one producer, on its event loop. The sender asks it before it sends (``transaction_gate.py``)."""

    sender: Sender

    def __init__(self, config: ProducerConfig, cluster: Cluster, core: ProducerCore) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self._config = config
        self._cluster = cluster
        self._core = core
        self._accumulator = core.accumulator
        self.state = State.UNINITIALIZED
        self.error: Exception | None = None
        self.is_version_2 = False
        self._partitions: set[tuple[str, int]] = set()
        #: Something at a broker belongs to the transaction, so that it has to be ended there.
        self._is_begun_there = False
        self._calls = asyncio.Lock()
        #: How the transaction is being ended, or was when no answer came.
        self._unheard: Call | None = None
        self._refuse()

    # ------------------------------------------------------------------------------------------------------- states

    def _go(self, call: Call) -> None:
        following = NEXT.get((self.state, call))
        if following is None:
            if self.error is not None:
                raise self.error.with_traceback(None)
            raise TransactionError(f"the producer {self.transactional_id!r} {self.state.value}")
        self.state = following
        self._refuse()

    def _refuse(self) -> None:
        """Records are taken in a transaction only."""
        if self._accumulator.is_closed:
            return
        if self.state is State.IN_TRANSACTION:
            self._core.refuse(None)
        elif self.error is not None:
            self._core.refuse(self.error)
        else:
            self._core.refuse(TransactionError(f"the producer {self.transactional_id!r} {self.state.value}"))

    def _fail(self, error: Exception) -> None:
        is_fatal = isinstance(error, ProducerFenced) or (isinstance(error, BrokerError) and error.code in _FATAL)
        if self.state is State.FATAL:
            return
        self.error = error
        self._go(Call.FENCED if is_fatal else Call.FAILED)
        self.sender.drop(TransactionError(f"the transaction failed before the record was sent: {error}"))

    # ------------------------------------------------------------------------------------------- what the user calls

    async def init(self) -> None:
        async with self._calls:
            if (self.state, Call.INIT) not in NEXT:
                self._go(Call.INIT)
            try:
                await self._get_producer(NO_PRODUCER)
                connection = await self._cluster.coordinator("transaction", self.transactional_id)
            except HeadraceError as error:
                if isinstance(error, BrokerError) and error.code in _FATAL:
                    self._fail(error)
                raise
            self.is_version_2 = connection.features.get(_FEATURE, 0) >= 2 and connection.speaks(
                Api.END_TXN, _VERSIONS_2[Api.END_TXN]
            )
            self._go(Call.INIT)

    def begin(self) -> None:
        if self._calls.locked():
            raise TransactionError(f"the producer {self.transactional_id!r} is busy with another call")
        self._go(Call.BEGIN)

    async def send_offsets(self, offsets: Offsets, group: GroupPlace) -> None:
        async with self._calls:
            self._go(Call.SEND_OFFSETS)
            place = ConsumerGroupMetadata(group) if isinstance(group, str) else group
            if not offsets:
                return
            try:
                if not self.is_version_2:
                    await self._add_group(place.group_id)
                self._is_begun_there = True
                await self._commit_offsets(offsets, place)
            except HeadraceError as error:
                self._fail(error)
                raise

    async def commit(self) -> None:
        async with self._calls:
            self._begin_ending(Call.COMMIT)
            with self._ending():
                await self.sender.flush()
                if self.error is not None:
                    raise self.error.with_traceback(None)
                await self._end(is_commit=True)

    async def abort(self) -> None:
        async with self._calls:
            self._begin_ending(Call.ABORT)
            with self._ending():
                self.sender.drop(TransactionError("the transaction was aborted before the record was sent"))
                await self.sender.flush()
                self.error = None
                await self._end(is_commit=False)

    def _begin_ending(self, call: Call) -> None:
        if self.state is State.UNHEARD and call is not self._unheard:
            raise TransactionError(f"the producer {self.transactional_id!r} {self.state.value}")
        self._go(call)
        self._unheard = call

    @contextmanager
    def _ending(self) -> Iterator[None]:
        self._accumulator.is_transaction_completing = True
        try:
            yield
        except (BrokerUnreachable, KafkaTimeout, asyncio.CancelledError) as error:
            if self.state is State.ENDING:
                if error is self.error:
                    self._fail(error)
                else:
                    self._go(Call.NOT_HEARD)
            raise
        except HeadraceError as error:
            if self.state is State.ENDING:
                self._fail(error)
            raise
        finally:
            self._accumulator.is_transaction_completing = False

    # ------------------------------------------------------------------------------------------ what the sender asks

    @property
    def produce_version(self) -> int:
        return (_VERSIONS_2 if self.is_version_2 else _VERSIONS_1)[Api.PRODUCE]

    def unadmitted(self) -> bool:
        waiting = self._waiting()
        if waiting and self.is_version_2:
            self._admit(waiting)
            return False
        return bool(waiting)

    def _waiting(self) -> set[tuple[str, int]]:
        return {
            place
            for place, queue in self._accumulator.queues.items()
            if queue.batches and place not in self._partitions
        }

    def _admit(self, places: Iterable[tuple[str, int]]) -> None:
        for place in places:
            self._accumulator.queues[place].is_admitted = True
            self._partitions.add(place)
        self._is_begun_there = True

    async def admit(self) -> None:
        with self._accumulator.lock:
            waiting = self._waiting()
        if not waiting or self.state in (State.FATAL, State.ABORTABLE):
            return
        try:
            await self._add_partitions(waiting)
        except HeadraceError as error:
            self._fail(error)
            return
        with self._accumulator.lock:
            self._admit(waiting)

    def batch_failed(self, error: Exception) -> None:
        """A batch was given up, so the transaction cannot be committed."""
        if self.state in (State.IN_TRANSACTION, State.ABORTABLE):
            self._fail(error)
        elif self.state is State.ENDING and self.error is None:
            self.error = error

    # ------------------------------------------------------------------------------------------------------ requests

    @property
    def _identity(self) -> dict[str, Any]:
        producer_id, epoch = self._accumulator.producer
        return {"transactional_id": self.transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

    async def _get_producer(self, producer: tuple[int, int]) -> None:
        found = await ask_transactional_id(
            self._cluster, self.transactional_id, self._config.transaction_timeout_ms, producer
        )
        with self._accumulator.lock:
            self._accumulator.set_producer(*found)

    async def _add_partitions(self, places: Iterable[tuple[str, int]]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(places):
            topics.setdefault(topic, []).append(partition)
        identity = {f"v3_and_below_{name}": value for name, value in self._identity.items()}
        answer = await self._cluster.ask_coordinator(
            Api.ADD_PARTITIONS_TO_TXN, "transaction", self.transactional_id, version=_ADD_PARTITIONS_VERSION,
            codes=_partition_codes, **identity,
            v3_and_below_topics=[{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        )  # fmt: skip
        refused = [code for code in _partition_codes(answer) if code is not ErrorCode.none]
        # Where one partition is refused, the others are not attempted: the reason is what counts.
        reasons = [code for code in refused if code is not ErrorCode.operation_not_attempted] or refused
        if reasons:
            self._check(reasons[0], f"adding {', '.join(topics)} to the transaction")

    async def _add_group(self, group_id: str) -> None:
        answer = await self._cluster.ask_coordinator(
            Api.ADD_OFFSETS_TO_TXN, "transaction", self.transactional_id, **self._identity, group_id=group_id
        )
        self._check(answer.error_code, f"adding the group {group_id!r} to the transaction")

    async def _commit_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), position in offsets.items():
            place = OffsetAndMetadata(position) if isinstance(position, int) else position
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition, "committed_offset": place.offset,
                    "committed_leader_epoch": place.leader_epoch, "committed_metadata": place.metadata,
                }
            )  # fmt: skip
        answer = await self._cluster.ask_coordinator(
            Api.TXN_OFFSET_COMMIT, "group", group.group_id, version=self._version_of(Api.TXN_OFFSET_COMMIT),
            codes=_offset_codes, **self._identity, group_id=group.group_id, generation_id=group.generation_id,
            member_id=group.member_id, group_instance_id=group.group_instance_id,
            topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        )  # fmt: skip
        for code in _offset_codes(answer):
            self._check(code, f"committing offsets of the group {group.group_id!r} in the transaction")

    async def _end(self, *, is_commit: bool) -> None:
        needs_epoch = any(queue.is_unresolved for queue in self._accumulator.queues.values())
        producer = self._accumulator.producer
        if self._is_begun_there:
            answer = await self._cluster.ask_coordinator(
                Api.END_TXN, "transaction", self.transactional_id, version=self._version_of(Api.END_TXN),
                **self._identity, committed=is_commit,
            )  # fmt: skip
            self._check(answer.error_code, f"{'committing' if is_commit else 'aborting'} the transaction")
            producer_id, epoch = int(getattr(answer, "producer_id", -1)), int(getattr(answer, "producer_epoch", -1))
            if producer_id >= 0:
                needs_epoch = False
                with self._accumulator.lock:
                    self._accumulator.set_producer(producer_id, epoch)
        if needs_epoch:
            await self._get_producer(producer)
        with self._accumulator.lock:
            for queue in self._accumulator.queues.values():
                queue.is_admitted = False
        self._partitions.clear()
        self._is_begun_there = False
        self._go(Call.ENDED)

    def _version_of(self, api: Api) -> int:
        return (_VERSIONS_2 if self.is_version_2 else _VERSIONS_1)[api]

    def _check(self, code: ErrorCode, what: str) -> None:
        if code is not ErrorCode.none:
            raise error_for(code, f"{what} of {self.transactional_id!r}{_HINT if code in _OUTDATED else ''}")


def _partition_codes(answer: Any) -> list[ErrorCode]:
    return [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def _offset_codes(answer: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]
