"""Answers the requests of producers to the transaction coordinator: start, add partitions, end a transaction.

Nothing here waits. A new producer id comes from ZooKeeper, which takes a round trip. So where one is needed,
:class:`ProducerIdNeeded` is raised before anything has changed, and the caller calls again with a new producer id.
"""

from collections.abc import Callable, Iterable, Iterator
from logging import getLogger
from typing import NamedTuple

from headrace.protocol.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
)
from headrace.replication.coordinator import ShardedCoordinator
from headrace.transactions.metadata import LAST_EPOCH, NONE, VERSION_2, TopicPartition, TransactionMetadata
from headrace.transactions.shard import TransactionContext, TransactionShard
from headrace.transactions.states import COMPLETE_STATES, IDLE, TransactionState

logger = getLogger(__name__)


class ProducerIdNeeded(Exception):
    """The caller has to call again with a new producer id."""


class ProducerIdentity(NamedTuple):
    """The producer id and the epoch that a producer sends with each write."""

    producer_id: int
    producer_epoch: int


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    """The transactional ids that this broker coordinates."""

    def __init__(self, context: TransactionContext, partition_count: Callable[[], int]) -> None:
        """``partition_count`` returns the number of partitions that ``__transaction_state`` has or will have."""
        super().__init__("transactions", partition_count, lambda journal: TransactionShard(context, journal))
        self._context = context

    def shard_for(self, name: str) -> TransactionShard:
        """
        :raises InvalidRequest: if the transactional id is empty.
        :raises KafkaError: if this broker does not coordinate the id, or not yet.
        """
        if not name:
            raise InvalidRequest("the transactional id is empty")
        return super().shard_for(name)

    # -- a producer starts ------------------------------------------------------------------------------------------

    def start_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        known: ProducerIdentity | None = None,
        fresh_producer_id: int | None = None,
    ) -> ProducerIdentity:
        """Starts a producer. Returns its identity. Fences an older producer of the id, and aborts its transaction.

        :param known: the identity that the producer has, if it starts again after an error (KIP-360).
        :raises ProducerFenced: if a newer producer has started since.
        :raises ConcurrentTransactions: if the last transaction is being ended; the client asks again.
        """
        shard = self.shard_for(transactional_id)
        now_ms = self._context.clock.wall_ms()
        current = shard.get(transactional_id)
        if current is None:
            producer_id = _required(fresh_producer_id)
            shard.write(
                TransactionMetadata(transactional_id, producer_id, 0, timeout_ms, TransactionState.EMPTY, now_ms)
            )
            return ProducerIdentity(producer_id, 0)
        is_repeated = known is not None and _is_repeated_start(current, known)
        if current.state in COMPLETE_STATES:
            raise ConcurrentTransactions(f"the last transaction of {transactional_id!r} is being ended")
        if current.state is TransactionState.ONGOING:
            if current.producer_epoch + 1 >= LAST_EPOCH:
                _required(fresh_producer_id)  # the abort uses up the epochs
            shard.abort_and_fence(current)
            current = shard.get(transactional_id)
            if current is None or current.state not in IDLE:
                raise ConcurrentTransactions(f"the transaction of {transactional_id!r} is being aborted")
        if is_repeated:
            following = current.with_timeout(timeout_ms, now_ms)
        elif current.is_epoch_exhausted:
            fresh = _required(fresh_producer_id)
            following = current.with_producer_id(fresh, timeout_ms, now_ms, same_producer=known is not None)
        else:
            following = current.with_next_epoch(timeout_ms, now_ms, same_producer=known is not None)
        shard.write(following)
        return ProducerIdentity(following.producer_id, following.producer_epoch)

    # -- partitions -------------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
    ) -> None:
        """Adds partitions to the producer's transaction. The first partitions begin it.

        :raises ConcurrentTransactions: if the last transaction is being ended; the client asks again.
        """
        shard = self.shard_for(transactional_id)
        current = _current(shard, transactional_id, producer)
        added = frozenset(partitions)
        if current.state is TransactionState.ONGOING and added <= current.partitions:
            return
        now_ms = self._context.clock.wall_ms()
        shard.write(current.with_partitions(added, now_ms, client_version=client_version))

    def missing_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Those of the partitions that the producer's transaction does not have."""
        current = _current(self.shard_for(transactional_id), transactional_id, producer)
        return frozenset(partitions) - current.partitions

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        client_version: int = 0,
        fresh_producer_id: int | None = None,
    ) -> ProducerIdentity:
        """Commits or aborts the producer's transaction. Returns the identity that the producer uses from then on.

        :raises InvalidTxnState: if there is no transaction, or it was ended the other way.
        """
        shard = self.shard_for(transactional_id)
        current = shard.get(transactional_id)
        if current is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id!r}")
        is_repeated = client_version >= VERSION_2 and current.was_ended_by(*producer)
        if not is_repeated:
            _check_identity(current, producer)
        if not _has_something_to_end(current, is_commit, client_version, is_repeated):
            return ProducerIdentity(*current.client_identity)
        next_producer_id = NONE
        if client_version >= VERSION_2 and current.is_epoch_exhausted:
            next_producer_id = _required(fresh_producer_id)
        prepared = current.prepared(
            self._context.clock.wall_ms(),
            is_commit=is_commit,
            client_version=client_version,
            next_producer_id=next_producer_id,
        )
        shard.write(prepared)
        return ProducerIdentity(*prepared.client_identity)

    # -- administration ---------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionMetadata:
        found = self.shard_for(transactional_id).get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
        return found

    def transactions(self) -> Iterator[TransactionMetadata]:
        """All transactional ids that this broker coordinates.

        :raises CoordinatorLoadInProgress: if a partition is still being loaded.
        """
        if self.is_loading:
            raise CoordinatorLoadInProgress("a partition of __transaction_state is being loaded; try again")
        for shard in self.shards():
            yield from shard

    def expire(self, expiration_ms: int) -> int:
        """Deletes the ids that have had no transaction for this time. Returns how many were deleted."""
        return sum(shard.expire(expiration_ms) for shard in self.shards())


def _required(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdNeeded
    return producer_id


def _check_identity(current: TransactionMetadata, producer: ProducerIdentity) -> None:
    name = current.transactional_id
    if producer.producer_id != current.producer_id:
        raise InvalidProducerIdMapping(
            f"the producer id of the transactional id {name!r} is {current.producer_id}, not {producer.producer_id}"
        )
    if producer.producer_epoch != current.producer_epoch:
        raise ProducerFenced(
            f"the producer epoch of the transactional id {name!r} is {current.producer_epoch}, "
            f"not {producer.producer_epoch}"
        )


def _current(shard: TransactionShard, transactional_id: str, producer: ProducerIdentity) -> TransactionMetadata:
    """The present value of the id.

    :raises KafkaError: if the producer may not continue with the id.
    """
    current = shard.get(transactional_id)
    if current is None:
        raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id!r}")
    _check_identity(current, producer)
    if current.state in COMPLETE_STATES:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id!r} is being ended")
    return current


def _is_repeated_start(current: TransactionMetadata, known: ProducerIdentity) -> bool:
    """Tells whether a producer that starts again got its next identity already, in a response that was lost.

    :raises ProducerFenced: if a newer producer has started since.
    """
    if current.may_restart_as(*known):
        if known.producer_epoch == current.producer_epoch and known.producer_id == current.producer_id:
            return False
        if known.producer_epoch == current.last_producer_epoch and current.state is not TransactionState.ONGOING:
            return True
    raise ProducerFenced(
        f"the transactional id {current.transactional_id!r} has a newer producer than the one with producer id "
        f"{known.producer_id} and epoch {known.producer_epoch}"
    )


def _has_something_to_end(
    current: TransactionMetadata, is_commit: bool, client_version: int, is_repeated: bool
) -> bool:
    """Tells whether there is a transaction to end. False if it was ended the same way already.

    :raises InvalidTxnState: if there is no transaction, or it was ended the other way.
    """
    name, state = current.transactional_id, current.state
    if state is TransactionState.ONGOING:
        if is_repeated:
            raise ProducerFenced(f"the transactional id {name!r} has begun another transaction since")
        return True
    is_ended_so = state is (TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
    if state is (TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT):
        raise ConcurrentTransactions(f"the transaction of {name!r} is being ended")
    if client_version < VERSION_2:
        if is_ended_so:
            return False
    elif is_repeated:
        if is_ended_so:
            return False
        if state is TransactionState.EMPTY:
            raise ProducerFenced(f"the transactional id {name!r} has a newer producer")
    elif not is_commit and state in IDLE:
        return True  # the producer does not know whether it has begun one; KIP-890 lets it abort
    word = "commit" if is_commit else "abort"
    raise InvalidTxnState(f"the transactional id {name!r} has no transaction to {word}: its state is {state.label}")
