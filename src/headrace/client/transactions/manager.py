"""Runs the transactions of a producer with a ``transactional.id``.

The table in ``states.py`` says which call is allowed in which state. A call that is not allowed raises an error and
changes nothing. ``coordinator_requests.py`` sends the requests.

If a numbered batch of a transaction was lost, the next transaction must not go on with the next sequence number. After
the abort the manager raises the epoch by InitProducerId (KIP-360), unless the response to EndTxn has done so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import (
    BrokerError,
    BrokerUnreachable,
    HeadraceError,
    KafkaTimeout,
    ProducerFenced,
    TransactionError,
)
from headrace.client.transactions.coordinator_requests import CoordinatorRequests, Offsets
from headrace.client.transactions.prepared import PreparedTransaction
from headrace.client.transactions.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.client.transactions.states import NEXT, TransactionEvent, TransactionState
from headrace.client.types import ConsumerGroupMetadata
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

if TYPE_CHECKING:
    from headrace.client.producer.record_buffer import RecordBuffer
    from headrace.client.producer.sender import Sender

#: The metadata of a consumer's group, or only the group's name.
GroupOrName = ConsumerGroupMetadata | str

_FATAL = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transactional_id_authorization_failed, ErrorCode.invalid_txn_state, ErrorCode.unsupported_version,
        ErrorCode.invalid_transaction_timeout, ErrorCode.cluster_authorization_failed,
    }
)  # fmt: skip


class TransactionManager:
    """The transactions of one producer, on the producer's event loop.

    The sender asks the manager before it sends a batch: see :meth:`must_add_partitions`.
    """

    #: Set by the producer, once it has made its sender.
    sender: Sender

    def __init__(self, config: ProducerConfig, cluster: Cluster, record_buffer: RecordBuffer) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self._requests = CoordinatorRequests(cluster, config.transactional_id, config.transaction_timeout_ms)
        self._record_buffer = record_buffer
        self._accumulator = record_buffer.accumulator
        self._epochs = record_buffer.accumulator.epochs
        self.state = TransactionState.UNINITIALIZED
        self.error: Exception | None = None
        self._partitions: set[tuple[str, int]] = set()
        #: Whether a broker has seen a part of the transaction, so that the coordinator must end it.
        self._is_known_to_brokers = False
        self._calls = asyncio.Lock()
        #: COMMIT or ABORT: the way in which the transaction is being ended.
        self._ending_by: TransactionEvent | None = None
        self._update_refusal()

    # ------------------------------------------------------------------------------------------------------- states

    def _transition(self, event: TransactionEvent) -> None:
        following = NEXT.get((self.state, event))
        if following is None:
            if self.error is not None:
                raise self.error.with_traceback(None)
            raise self._state_error()
        self.state = following
        self._update_refusal()

    def _state_error(self) -> TransactionError:
        return TransactionError(f"the producer {self.transactional_id!r} {self.state.value}")

    def _update_refusal(self) -> None:
        """Makes the producer refuse records unless a transaction is open."""
        if self._accumulator.is_closed:
            return
        if self.state is TransactionState.IN_TRANSACTION:
            self._record_buffer.refuse(None)
        elif self.error is not None:
            self._record_buffer.refuse(self.error)
        else:
            self._record_buffer.refuse(self._state_error())

    def _fail(self, error: Exception) -> None:
        is_fatal = isinstance(error, ProducerFenced) or (isinstance(error, BrokerError) and error.code in _FATAL)
        if self.state is TransactionState.FATAL:
            return
        self.error = error
        self._transition(TransactionEvent.FENCED if is_fatal else TransactionEvent.FAILED)
        self.sender.drop(TransactionError(f"the transaction failed before the record was sent: {error}"))

    # ------------------------------------------------------------------------------------------- the user's calls

    async def init(self) -> None:
        async with self._calls:
            if (self.state, TransactionEvent.INIT) not in NEXT:
                self._transition(TransactionEvent.INIT)
            try:
                await self._renew_producer_id(NO_PRODUCER)
                await self._requests.find_version()
            except HeadraceError as error:
                if isinstance(error, BrokerError) and error.code in _FATAL:
                    self._fail(error)
                raise
            self._transition(TransactionEvent.INIT)

    def begin(self) -> None:
        if self._calls.locked():
            raise TransactionError(f"the producer {self.transactional_id!r} is busy with another call")
        self._transition(TransactionEvent.BEGIN)

    async def send_offsets(self, offsets: Offsets, group: GroupOrName) -> None:
        async with self._calls:
            self._transition(TransactionEvent.SEND_OFFSETS)
            member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
            if not offsets:
                return
            try:
                if not self._requests.is_version_2:
                    await self._requests.add_group(self._epochs.producer, member.group_id)
                self._is_known_to_brokers = True
                await self._requests.commit_offsets(self._epochs.producer, offsets, member)
            except HeadraceError as error:
                self._fail(error)
                raise

    async def commit(self) -> None:
        async with self._calls:
            self._begin_ending(TransactionEvent.COMMIT)
            with self._ending():
                await self.sender.flush()
                if self.error is not None:
                    raise self.error.with_traceback(None)
                await self._end(is_commit=True)

    async def abort(self) -> None:
        async with self._calls:
            self._begin_ending(TransactionEvent.ABORT)
            with self._ending():
                self.sender.drop(TransactionError("the transaction was aborted before the record was sent"))
                await self.sender.flush()
                self.error = None
                await self._end(is_commit=False)

    def prepared(self) -> PreparedTransaction:
        """Returns what another client needs to end the open transaction. All records must be acknowledged.

        :raises HeadraceError: if a record could not be delivered.
        """
        if self.error is not None:
            raise self.error
        producer_id, epoch = self._epochs.producer
        return PreparedTransaction(self.transactional_id, producer_id, epoch, self._requests.is_version_2)

    def _begin_ending(self, event: TransactionEvent) -> None:
        if self.state is TransactionState.UNKNOWN_RESULT and event is not self._ending_by:
            raise self._state_error()
        self._transition(event)
        self._ending_by = event

    @contextmanager
    def _ending(self) -> Iterator[None]:
        self._accumulator.is_transaction_completing = True
        try:
            yield
        except (BrokerUnreachable, KafkaTimeout, asyncio.CancelledError) as error:
            if self.state is TransactionState.ENDING:
                if error is self.error:
                    self._fail(error)
                else:
                    self._transition(TransactionEvent.NO_ANSWER)
            raise
        except HeadraceError as error:
            if self.state is TransactionState.ENDING:
                self._fail(error)
            raise
        finally:
            self._accumulator.is_transaction_completing = False

    async def _end(self, *, is_commit: bool) -> None:
        needs_epoch = any(queue.is_unresolved for queue in self._accumulator.queues.values())
        before = self._epochs.producer
        if self._is_known_to_brokers:
            following = await self._requests.end(before, is_commit=is_commit)
            if following is not None:
                needs_epoch = False
                with self._accumulator.lock:
                    self._epochs.set_producer(*following)
        if needs_epoch:
            await self._renew_producer_id(before)
        with self._accumulator.lock:
            for queue in self._accumulator.queues.values():
                queue.is_in_transaction = False
        self._partitions.clear()
        self._is_known_to_brokers = False
        self._transition(TransactionEvent.ENDED)

    async def _renew_producer_id(self, producer: ProducerIdAndEpoch) -> None:
        found = await self._requests.init_producer_id(producer)
        with self._accumulator.lock:
            self._epochs.set_producer(*found)

    # ------------------------------------------------------------------------------------------ the sender's calls

    @property
    def produce_version(self) -> int:
        """The highest version of Produce that the sender may use."""
        return self._requests.version_of(Api.PRODUCE)

    def must_add_partitions(self) -> bool:
        """Whether the coordinator must get new partitions before their records are sent.

        The accumulator's lock is held. With ``transaction.version`` 2 no request is needed: a partition belongs to the
        transaction from its first Produce request on.
        """
        waiting = self._partitions_to_add()
        if waiting and self._requests.is_version_2:
            self._mark_added(waiting)
            return False
        return bool(waiting)

    async def add_partitions(self) -> None:
        """Adds the partitions that have records, and are not in the transaction yet."""
        with self._accumulator.lock:
            waiting = self._partitions_to_add()
        if not waiting or self.state in (TransactionState.FATAL, TransactionState.ABORTABLE):
            return
        try:
            await self._requests.add_partitions(self._epochs.producer, waiting)
        except HeadraceError as error:
            self._fail(error)
            return
        with self._accumulator.lock:
            self._mark_added(waiting)

    def _partitions_to_add(self) -> set[tuple[str, int]]:
        return {
            partition
            for partition, queue in self._accumulator.queues.items()
            if queue.batches and partition not in self._partitions
        }

    def _mark_added(self, partitions: Iterable[tuple[str, int]]) -> None:
        for partition in partitions:
            self._accumulator.queues[partition].is_in_transaction = True
            self._partitions.add(partition)
        self._is_known_to_brokers = True

    def batch_failed(self, error: Exception) -> None:
        """Notes that a batch failed, so that the transaction cannot be committed."""
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE):
            self._fail(error)
        elif self.state is TransactionState.ENDING and self.error is None:
            self.error = error
