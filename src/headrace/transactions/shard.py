"""The transactional ids of one partition of ``__transaction_state``.

Their state changes by records only: :meth:`TransactionShard.write` appends one and then takes it in, and loading takes
in all that are in the log. What a crash leaves is therefore a prefix of what would have happened:

=================================  ====================================================================
the log's last record of the id     after a restart
=================================  ====================================================================
Empty, CompleteCommit/Abort         nothing is under way
Ongoing                             still ongoing: its producer goes on, or the timeout aborts it
PrepareCommit, PrepareAbort         its markers are written (again), and Complete behind them
=================================  ====================================================================

A transaction's end is three steps: the Prepare record, a marker in each partition, the Complete record. Once the first
is committed it is decided and its producer is told so; before that no marker is written, for a coordinator that loads a
log without the record would decide otherwise. What cannot be written then is tried again until it is. An id waits for
one thing at most, its timeout or such a new try, and so has one timer at most.
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
from headrace.transactions.metadata import TopicPartition, TxnMetadata, key_of, metadata_of
from headrace.transactions.states import COMPLETED, IDLE, State

logger = getLogger(__name__)

#: After how long what failed is tried again.
RETRY_MS = 100


@dataclass(frozen=True, slots=True)
class TransactionContext:
    clock: Clock
    timer: Timer
    markers: MarkerSender


class TransactionShard:
    def __init__(self, context: TransactionContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._transactions: dict[str, TxnMetadata] = {}
        self._timers: dict[str, TimerTask] = {}
        self._settling: dict[str, list[Callable[[], None]]] = {}
        self._is_active = False

    @property
    def index(self) -> int:
        return self._journal.index

    def __iter__(self) -> Iterator[TxnMetadata]:
        return iter(list(self._transactions.values()))

    def get(self, transactional_id: str) -> TxnMetadata | None:
        return self._transactions.get(transactional_id)

    # -- records ----------------------------------------------------------------------------------------------------

    def load(self) -> Iterator[int]:
        """Takes in the log, a batch a step; each step gives how many records it had. Then goes on where it ended."""
        for header, records in self._journal.batches():
            if not header.is_control:
                for record in records:
                    self._load_record(record.key, record.value)
            yield len(records)
        self._is_active = True
        for metadata in self:
            self._go_on(metadata)

    def _load_record(self, key: bytes | None, value: bytes | None) -> None:
        record = None if key is None else decode(InternalTopic.TRANSACTION_STATE, key, value)
        if record is None:
            return  # of a type that only newer brokers know
        self._take_in(record.key.transactional_id, None if record.value is None else metadata_of(record))

    def write(self, metadata: TxnMetadata) -> None:
        """
        :raises StorageError: if it could not be written. Then nothing has changed.
        """
        self._journal.write([metadata.record()])
        self._take_in(metadata.transactional_id, metadata)

    def forget(self, transactional_id: str) -> None:
        """The id is expired."""
        self._journal.write([(key_of(transactional_id), None)])
        self._take_in(transactional_id, None)

    def _take_in(self, transactional_id: str, metadata: TxnMetadata | None) -> None:
        before = self._transactions.get(transactional_id)
        if metadata is None or metadata.state is State.DEAD:
            self._transactions.pop(transactional_id, None)
            self._disarm(transactional_id)
            return
        self._transactions[transactional_id] = metadata
        if self._settling and metadata.state not in COMPLETED:
            self._settled(transactional_id)
        if self._is_active and (before is None or before.state is not metadata.state):
            self._go_on(metadata)

    def unload(self) -> None:
        """We do not lead the partition any more."""
        self._is_active = False
        for transactional_id in list(self._timers):
            self._disarm(transactional_id)
        for transactional_id in list(self._settling):
            self._settled(transactional_id)

    def when_settled(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Calls ``then`` once the id has no transaction that is being ended, or this shard has gone."""
        metadata = self._transactions.get(transactional_id)
        if metadata is None or metadata.state not in COMPLETED:
            then()
        else:
            self._settling.setdefault(transactional_id, []).append(then)

    def _settled(self, transactional_id: str) -> None:
        for then in self._settling.pop(transactional_id, ()):
            then()

    # -- what happens by itself -------------------------------------------------------------------------------------

    def _go_on(self, metadata: TxnMetadata) -> None:
        """The id has come to this state: whatever follows from that without a request."""
        self._disarm(metadata.transactional_id)
        if metadata.state is State.ONGOING:
            self._arm_timeout(metadata)
        elif metadata.state in COMPLETED:
            self._journal.when_committed(partial(self._decided, metadata))

    def _decided(self, metadata: TxnMetadata) -> None:
        if self._is_current(metadata):
            self._send_markers(metadata, metadata.partitions)

    def _is_current(self, metadata: TxnMetadata) -> bool:
        return self._is_active and self._transactions.get(metadata.transactional_id) is metadata

    def _arm(self, transactional_id: str, delay_ms: int, action: partial[None]) -> None:
        self._timers[transactional_id] = self._context.timer.schedule(delay_ms, action)

    def _disarm(self, transactional_id: str) -> None:
        task = self._timers.pop(transactional_id, None)
        if task is not None:
            task.cancel()

    def _arm_timeout(self, metadata: TxnMetadata) -> None:
        delay_ms = metadata.expires_at_ms - self._context.clock.wall_ms()
        self._arm(metadata.transactional_id, delay_ms, partial(self._timed_out, metadata.transactional_id))

    def _timed_out(self, transactional_id: str) -> None:
        self._timers.pop(transactional_id, None)
        metadata = self._transactions[transactional_id]
        assert metadata.state is State.ONGOING
        logger.info("the transaction of %r is aborted: it took over %d ms", transactional_id, metadata.timeout_ms)
        try:
            self.abort_over_its_head(metadata)
        except (KafkaError, OSError) as error:
            logger.warning("the timed-out transaction of %r cannot be aborted yet: %s", transactional_id, error)
            self._arm(transactional_id, RETRY_MS, partial(self._timed_out, transactional_id))

    def abort_over_its_head(self, metadata: TxnMetadata) -> None:
        """Ends a transaction that its producer did not end, and shuts that producer out."""
        now_ms = self._context.clock.wall_ms()
        fenced = metadata.fenced(now_ms)
        self.write(fenced.prepared(now_ms, is_commit=False, client_version=metadata.client_version))

    def _send_markers(self, metadata: TxnMetadata, partitions: frozenset[TopicPartition]) -> None:
        marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is State.PREPARE_COMMIT,
            self._journal.epoch,
        )
        self._context.markers.send(marker, partitions, partial(self._markers_sent, metadata))

    def _markers_sent(self, metadata: TxnMetadata, unsent: frozenset[TopicPartition]) -> None:
        if not self._is_current(metadata):
            return
        if not unsent:
            try:
                self.write(metadata.completed(self._context.clock.wall_ms()))
            except (KafkaError, OSError) as error:
                logger.warning("the end of %r's transaction cannot be noted yet: %s", metadata.transactional_id, error)
            else:
                return
        self._arm(metadata.transactional_id, RETRY_MS, partial(self._try_again, metadata, unsent))

    def _try_again(self, metadata: TxnMetadata, unsent: frozenset[TopicPartition]) -> None:
        self._timers.pop(metadata.transactional_id, None)
        self._send_markers(metadata, unsent)

    # -- expiry -----------------------------------------------------------------------------------------------------

    def expire(self, expiration_ms: int) -> int:
        """Forgets the ids that had no transaction for so long; how many."""
        now_ms = self._context.clock.wall_ms()
        expired = [
            metadata for metadata in self if metadata.state in IDLE and metadata.updated_ms + expiration_ms <= now_ms
        ]
        for metadata in expired:
            self.forget(metadata.transactional_id)
        return len(expired)
