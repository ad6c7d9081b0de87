"""What is known of a transactional id: who may write under it, and how far its transaction is. Values, never changed.

Each method is one step of the life of a transactional id and gives the next value; ``states.NEXT`` says which steps
there are. A value becomes a record of ``__transaction_state`` and comes back from one, but for
``last_producer_epoch``: that serves a client whose answer was lost, and is not kept over a restart, as in Kafka.

Epochs fence. Whoever holds an older epoch than this is refused. The epoch rises

- when a producer starts (InitProducerId), so that an older one with the same id is shut out;
- when a transaction is aborted over its producer's head (a newer producer, the timeout);
- with clients of transaction version 2 (KIP-890) at the end of every transaction, so that what they wrote late, for
  the transaction that has ended, cannot land in the next.

Epochs are 15 bits. When they are used up the id gets another producer id, with epoch 0.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalRecord, RecordType, encode_key, encode_value
from headrace.transactions.states import BY_NUMBER, COMPLETED, NEXT, State

TopicPartition = tuple[str, int]

NONE = -1
#: The last epoch that a client sees: one more must be left, to fence it.
LAST_EPOCH = 2**15 - 2
#: What clients since KIP-890 speak: the epoch rises with each transaction, and a write adds its partition by itself.
VERSION_2 = 2


@dataclass(frozen=True, slots=True)
class TxnMetadata:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    #: When the transaction began; -1 while there was none.
    started_ms: int = NONE
    partitions: frozenset[TopicPartition] = frozenset()
    #: The producer id before this one, when epochs were used up.
    previous_producer_id: int = NONE
    #: The producer id after this one, while a transaction ends with the last epoch.
    next_producer_id: int = NONE
    client_version: int = 0
    #: The epoch before the last rise, if it was the same producer that asked for it.
    last_producer_epoch: int = NONE

    # -- what it says

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def expires_at_ms(self) -> int:
        """When an ongoing transaction times out."""
        return self.started_ms + self.timeout_ms

    @property
    def client_identity(self) -> tuple[int, int]:
        """The producer id and epoch with which its producer goes on."""
        if self.next_producer_id != NONE:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def is_known_as(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer with that id may start anew under this one (KIP-360)."""
        return producer_id == self.producer_id or (producer_id == self.previous_producer_id and epoch >= LAST_EPOCH)

    def was_ended_by(self, producer_id: int, epoch: int) -> bool:
        """Whether these are from before the rise of the epoch that came with the end of the last transaction."""
        if self.client_version < VERSION_2:
            return False
        if producer_id == self.producer_id:
            return epoch == self.producer_epoch - 1
        return producer_id == self.previous_producer_id and epoch == LAST_EPOCH and self.producer_epoch == 0

    # -- steps

    def with_next_epoch(self, timeout_ms: int, now_ms: int, *, same_producer: bool) -> "TxnMetadata":
        """A producer starts. It is the ``same_producer`` if it knows the epoch that it has now."""
        return self._to(
            State.EMPTY,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if same_producer else NONE,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NONE,
        )

    def with_producer_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, same_producer: bool) -> "TxnMetadata":
        """The same, where the epochs are used up."""
        return replace(
            self.with_next_epoch(timeout_ms, now_ms, same_producer=same_producer),
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0,
        )

    def with_timeout(self, timeout_ms: int, now_ms: int) -> "TxnMetadata":
        """A producer starts with the epoch that it was given already; its answer was lost."""
        return self._to(State.EMPTY, now_ms, timeout_ms=timeout_ms, partitions=frozenset(), started_ms=NONE)

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, *, client_version: int
    ) -> "TxnMetadata":
        """Partitions are added; the first of them begin the transaction."""
        is_begun = self.state is State.ONGOING
        return self._to(
            State.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions) if is_begun else frozenset(partitions),
            started_ms=self.started_ms if is_begun else now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> "TxnMetadata":
        """Its producer is shut out; an abort follows."""
        return self._to(
            State.PREPARE_EPOCH_FENCE, now_ms, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NONE
        )

    def prepared(
        self, now_ms: int, *, is_commit: bool, client_version: int, next_producer_id: int = NONE
    ) -> "TxnMetadata":
        """It is decided how the transaction ends. Markers carry the epoch of this value."""
        is_fenced = self.state is State.PREPARE_EPOCH_FENCE
        rises = client_version >= VERSION_2 and not is_fenced
        is_begun = is_fenced or self.state is State.ONGOING
        return self._to(
            State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1 if rises else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if rises else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            partitions=self.partitions if is_begun else frozenset(),
            started_ms=self.started_ms if is_begun else now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "TxnMetadata":
        """All partitions have the marker."""
        producer_id, producer_epoch = self.client_identity
        return self._to(
            COMPLETED[self.state],
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=self.producer_id if producer_id != self.producer_id else self.previous_producer_id,
            next_producer_id=NONE,
            partitions=frozenset(),
        )

    def _to(self, state: State, now_ms: int, **changes: object) -> "TxnMetadata":
        assert state in NEXT[self.state], f"{self.transactional_id}: {self.state.label} cannot become {state.label}"
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]

    # -- records

    def record(self) -> tuple[bytes, bytes]:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(self.partitions):
            topics[topic].append(index)
        value = encode_value(
            RecordType.TRANSACTION,
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.number,
            transaction_partitions=None
            if self.state is State.EMPTY
            else [{"topic": topic, "partition_ids": indexes} for topic, indexes in topics.items()],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )
        return key_of(self.transactional_id), value


def key_of(transactional_id: str) -> bytes:
    return encode_key(RecordType.TRANSACTION, transactional_id=transactional_id)


def metadata_of(record: InternalRecord) -> TxnMetadata:
    """
    :raises CorruptMessage: if it names a state that there is not.
    """
    value = record.value
    state = BY_NUMBER.get(value.transaction_status)
    if state is None:
        raise CorruptMessage(f"{record.key.transactional_id} is in an unknown state {value.transaction_status}")
    return TxnMetadata(
        transactional_id=record.key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
