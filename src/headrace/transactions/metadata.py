"""Holds the value of a transactional id: its producer, its epoch, and its transaction. Values are never changed.

Each method of the second part is one step of a transactional id and returns the next value; ``states.NEXT`` says
which steps are allowed. A value is written as a record of ``__transaction_state`` and read back from one, except
``last_producer_epoch``: this field serves a client whose response was lost, and does not survive a restart, as in
Kafka.

Epochs fence producers: a request with an older epoch is rejected. The epoch rises

- when a producer starts (InitProducerId), so that an older producer with the same id is fenced;
- when the coordinator aborts a transaction without its producer (a newer producer starts, or the timeout passes);
- at the end of every transaction of a client with transaction version 2 (KIP-890), so that a late write for a
  transaction that has ended cannot become part of the next transaction.

An epoch has 15 bits. When all epochs are used up, the id gets a new producer id with epoch 0.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalRecord, RecordType, encode_key, encode_value
from headrace.transactions.states import BY_NUMBER, COMPLETE_STATES, NEXT, TransactionState

TopicPartition = tuple[str, int]

#: In a field that has no value.
NONE = -1
#: The last epoch that a client gets. One more epoch is needed to fence the client.
LAST_EPOCH = 2**15 - 2
#: The transaction version of KIP-890: the epoch rises with each transaction, and a write adds its partition by itself.
VERSION_2 = 2


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The value of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    #: When the transaction began; -1 if there is none.
    started_ms: int = NONE
    partitions: frozenset[TopicPartition] = frozenset()
    #: The producer id before this one, if its epochs were used up.
    previous_producer_id: int = NONE
    #: The next producer id, while a transaction with the last epoch ends.
    next_producer_id: int = NONE
    client_version: int = 0
    #: The epoch before the last rise, if the same producer caused the rise.
    last_producer_epoch: int = NONE

    # -- questions

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def expires_at_ms(self) -> int:
        """The wall time at which an ongoing transaction times out."""
        return self.started_ms + self.timeout_ms

    @property
    def client_identity(self) -> tuple[int, int]:
        """The producer id and the epoch that the producer uses after the present transaction."""
        if self.next_producer_id != NONE:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def may_restart_as(self, producer_id: int, epoch: int) -> bool:
        """Tells whether a producer with this producer id may start again under the transactional id (KIP-360)."""
        return producer_id == self.producer_id or (producer_id == self.previous_producer_id and epoch >= LAST_EPOCH)

    def was_ended_by(self, producer_id: int, epoch: int) -> bool:
        """Tells whether the last transaction was ended by a producer with this id and epoch, which raised the epoch."""
        if self.client_version < VERSION_2:
            return False
        if producer_id == self.producer_id:
            return epoch == self.producer_epoch - 1
        return producer_id == self.previous_producer_id and epoch == LAST_EPOCH and self.producer_epoch == 0

    # -- steps

    def with_next_epoch(self, timeout_ms: int, now_ms: int, *, same_producer: bool) -> "TransactionMetadata":
        """A producer starts. ``same_producer`` means that the producer named the present epoch."""
        return self._transition_to(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if same_producer else NONE,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NONE,
        )

    def with_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, same_producer: bool
    ) -> "TransactionMetadata":
        """A producer starts, and gets a new producer id because all epochs are used up."""
        return replace(
            self.with_next_epoch(timeout_ms, now_ms, same_producer=same_producer),
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0,
        )

    def with_timeout(self, timeout_ms: int, now_ms: int) -> "TransactionMetadata":
        """A producer starts again with the epoch that it got before, because the response was lost."""
        return self._transition_to(
            TransactionState.EMPTY, now_ms, timeout_ms=timeout_ms, partitions=frozenset(), started_ms=NONE
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, *, client_version: int
    ) -> "TransactionMetadata":
        """Partitions are added to the transaction. The first partitions begin it."""
        is_begun = self.state is TransactionState.ONGOING
        return self._transition_to(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions) if is_begun else frozenset(partitions),
            started_ms=self.started_ms if is_begun else now_ms,
            client_version=client_version,
        )

    def fenced(self, now_ms: int) -> "TransactionMetadata":
        """The producer is fenced. An abort follows."""
        return self._transition_to(
            TransactionState.PREPARE_EPOCH_FENCE,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=NONE,
        )

    def prepared(
        self, now_ms: int, *, is_commit: bool, client_version: int, next_producer_id: int = NONE
    ) -> "TransactionMetadata":
        """The end of the transaction is decided. The markers have the epoch of this value."""
        is_fenced = self.state is TransactionState.PREPARE_EPOCH_FENCE
        rises = client_version >= VERSION_2 and not is_fenced
        is_begun = is_fenced or self.state is TransactionState.ONGOING
        return self._transition_to(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1 if rises else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if rises else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            partitions=self.partitions if is_begun else frozenset(),
            started_ms=self.started_ms if is_begun else now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """The transaction has ended: all partitions have the marker."""
        producer_id, producer_epoch = self.client_identity
        return self._transition_to(
            COMPLETE_STATES[self.state],
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            previous_producer_id=self.producer_id if producer_id != self.producer_id else self.previous_producer_id,
            next_producer_id=NONE,
            partitions=frozenset(),
        )

    def _transition_to(self, state: TransactionState, now_ms: int, **changes: object) -> "TransactionMetadata":
        assert state in NEXT[self.state], f"{self.transactional_id}: {self.state.label} cannot become {state.label}"
        return replace(self, state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]

    # -- records

    def record(self) -> tuple[bytes, bytes]:
        """The key and the value of the record in ``__transaction_state``."""
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
            if self.state is TransactionState.EMPTY
            else [{"topic": topic, "partition_ids": indexes} for topic, indexes in topics.items()],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.client_version,
        )
        return record_key(self.transactional_id), value


def record_key(transactional_id: str) -> bytes:
    return encode_key(RecordType.TRANSACTION, transactional_id=transactional_id)


def metadata_from_record(record: InternalRecord) -> TransactionMetadata:
    """
    :raises CorruptMessage: if the record has a state that does not exist.
    """
    value = record.value
    state = BY_NUMBER.get(value.transaction_status)
    if state is None:
        raise CorruptMessage(
            f"the record of the transactional id {record.key.transactional_id!r} has the unknown state "
            f"{value.transaction_status}"
        )
    return TransactionMetadata(
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
