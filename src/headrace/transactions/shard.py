"""Holds the transactional ids of one partition of ``__transaction_state``.

The state changes only by records: :meth:`TransactionShard.write` appends a record and then applies it, and loading
applies all records of the log. So a crash leaves a prefix of what would have happened:

=================================  ====================================================================
the last record of the id           after a restart
=================================  ====================================================================
Empty, CompleteCommit/Abort         no transaction is under way
Ongoing                             the transaction continues: its producer ends it, or the timeout aborts it
PrepareCommit, PrepareAbort         the coordinator writes the markers (again), and then the Complete record
=================================  ====================================================================

A transaction ends in three steps: the Prepare record, a marker in each partition, the Complete record. Once the
Prepare record is committed, the end is decided and the producer gets its response. Before that no marker is written,
because a coordinator that loads a log without the Prepare record might decide differently. A write that fails then is
repeated until it succeeds. A transactional id waits for at most one thing, its timeout or such a repetition, so it
has at most one timer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from logging import getLogger

from headrace.protocol.errors import KafkaError
from headrace.protocol.internal_records import InternalTopic, decode
from headrace.replication.journal import Journal
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer, TimerTask
from headrace.transactions.markers import Marker, MarkerSender
from headrace.transactions.metadata import TopicPartition, TransactionMetadata, metadata_from_record, record_key
from headrace.transactions.states import COMPLETE_STATES, IDLE, TransactionState

logger = getLogger(__name__)

#: The delay before a failed write is repeated.
RETRY_MS = 100


@dataclass(frozen=True, slots=True)
class TransactionContext:
    """The parts of their broker that the shards use."""

    clock: Clock
    timer: Timer
    markers: MarkerSender


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, context: TransactionContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers: dict[str, TimerTask] = {}
        #: For each id whose transaction is being ended, the functions to call when it has ended.
        self._on_completed: dict[str, list[Callable[[], None]]] = {}
        self._is_active = False

    @property
    def index(self) -> int:
        return self._journal.index

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(list(self._transactions.values()))

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        return self._transactions.get(transactional_id)

    # -- records ----------------------------------------------------------------------------------------------------

    def load(self) -> Iterator[int]:
        """Applies the log, one batch per step, and then continues each transaction from its last record.

        Each step yields the number of records of its batch.
        """
        for header, records in self._journal.batches():
            if not header.is_control:
                for record in records:
                    self._load_record(record.key, record.value)
            yield len(records)
        self._is_active = True
        for metadata in self:
            self._start_work(metadata)

    def _load_record(self, key: bytes | None, value: bytes | None) -> None:
        record = None if key is None else decode(InternalTopic.TRANSACTION_STATE, key, value)
        if record is None:
            return  # a type of record that only newer brokers have
        self._apply(record.key.transactional_id, None if record.value is None else metadata_from_record(record))

    def write(self, metadata: TransactionMetadata) -> None:
        """Appends the record of a value and applies it.

        :raises StorageError: if the record could not be appended. Then nothing has changed.
        """
        self._journal.write([metadata.record()])
        self._apply(metadata.transactional_id, metadata)

    def delete(self, transactional_id: str) -> None:
        """Deletes a transactional id, in the log and in memory."""
        self._journal.write([(record_key(transactional_id), None)])
        self._apply(transactional_id, None)

    def _apply(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        before = self._transactions.get(transactional_id)
        if metadata is None or metadata.state is TransactionState.DEAD:
            self._transactions.pop(transactional_id, None)
            self._stop_timer(transactional_id)
            return
        self._transactions[transactional_id] = metadata
        if self._on_completed and metadata.state not in COMPLETE_STATES:
            self._call_on_completed(transactional_id)
        if self._is_active and (before is None or before.state is not metadata.state):
            self._start_work(metadata)

    def unload(self) -> None:
        """Stops all work: this broker does not lead the partition any more."""
        self._is_active = False
        for transactional_id in list(self._timers):
            self._stop_timer(transactional_id)
        for transactional_id in list(self._on_completed):
            self._call_on_completed(transactional_id)

    def when_completed(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Calls ``then`` once the id has no transaction that is being ended, or this shard was unloaded."""
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.state not in COMPLETE_STATES:
            then()
        else:
            self._on_completed.setdefault(transactional_id, []).append(then)

    def _call_on_completed(self, transactional_id: str) -> None:
        for then in self._on_completed.pop(transactional_id, ()):
            then()

    # -- work without a request: timeouts and markers ---------------------------------------------------------------

    def _start_work(self, metadata: TransactionMetadata) -> None:
        """Starts the work that follows from a state without a request: the timeout, or the markers."""
        self._stop_timer(metadata.transactional_id)
        if metadata.state is TransactionState.ONGOING:
            self._start_timeout(metadata)
        elif metadata.state in COMPLETE_STATES:
            self._journal.when_committed(partial(self._prepare_committed, metadata))

    def _prepare_committed(self, metadata: TransactionMetadata) -> None:
        if self._is_current(metadata):
            self._send_markers(metadata, metadata.partitions)

    def _is_current(self, metadata: TransactionMetadata) -> bool:
        return self._is_active and self._transactions.get(metadata.transactional_id) is metadata

    def _start_timer(self, transactional_id: str, delay_ms: int, action: partial[None]) -> None:
        self._timers[transactional_id] = self._context.timer.schedule(delay_ms, action)

    def _stop_timer(self, transactional_id: str) -> None:
        task = self._timers.pop(transactional_id, None)
        if task is not None:
            task.cancel()

    def _start_timeout(self, metadata: TransactionMetadata) -> None:
        delay_ms = metadata.expires_at_ms - self._context.clock.wall_ms()
        self._start_timer(metadata.transactional_id, delay_ms, partial(self._timed_out, metadata.transactional_id))

    def _timed_out(self, transactional_id: str) -> None:
        self._timers.pop(transactional_id, None)
        metadata = self._transactions[transactional_id]
        assert metadata.state is TransactionState.ONGOING
        logger.info(
            "the transaction of %r is aborted: it took longer than its timeout of %d ms",
            transactional_id,
            metadata.timeout_ms,
        )
        try:
            self.abort_and_fence(metadata)
        except (KafkaError, OSError) as error:
            logger.warning(
                "cannot abort the timed-out transaction of %r yet, next try in %d ms: %s",
                transactional_id,
                RETRY_MS,
                error,
            )
            self._start_timer(transactional_id, RETRY_MS, partial(self._timed_out, transactional_id))

    def abort_and_fence(self, metadata: TransactionMetadata) -> None:
        """Aborts a transaction that its producer has not ended, and fences the producer."""
        now_ms = self._context.clock.wall_ms()
        fenced = metadata.fenced(now_ms)
        self.write(fenced.prepared(now_ms, is_commit=False, client_version=metadata.client_version))

    def _send_markers(self, metadata: TransactionMetadata, partitions: frozenset[TopicPartition]) -> None:
        marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            self._journal.epoch,
        )
        self._context.markers.send(marker, partitions, partial(self._markers_sent, metadata))

    def _markers_sent(self, metadata: TransactionMetadata, unsent: frozenset[TopicPartition]) -> None:
        if not self._is_current(metadata):
            return
        if not unsent:
            try:
                self.write(metadata.completed(self._context.clock.wall_ms()))
            except (KafkaError, OSError) as error:
                logger.warning(
                    "cannot write the Complete record of the transaction of %r yet, next try in %d ms: %s",
                    metadata.transactional_id,
                    RETRY_MS,
                    error,
                )
            else:
                return
        self._start_timer(metadata.transactional_id, RETRY_MS, partial(self._send_markers_again, metadata, unsent))

    def _send_markers_again(self, metadata: TransactionMetadata, unsent: frozenset[TopicPartition]) -> None:
        self._timers.pop(metadata.transactional_id, None)
        self._send_markers(metadata, unsent)

    # -- expiry -----------------------------------------------------------------------------------------------------

    def expire(self, expiration_ms: int) -> int:
        """Deletes the ids that have had no transaction for this time. Returns how many were deleted."""
        now_ms = self._context.clock.wall_ms()
        expired = [
            metadata for metadata in self if metadata.state in IDLE and metadata.updated_ms + expiration_ms <= now_ms
        ]
        for metadata in expired:
            self.delete(metadata.transactional_id)
        return len(expired)
