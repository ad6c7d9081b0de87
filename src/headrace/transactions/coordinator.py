"""What producers ask a transaction coordinator: to start, to add partitions, to end; and what others ask about them.

Nothing here waits. Where a new producer id is needed, which takes a round to the znode tree, :class:`ProducerIdNeeded`
is raised before anything has changed, and the caller comes again with one.
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
from headrace.transactions.metadata import LAST_EPOCH, NONE, VERSION_2, TopicPartition, TxnMetadata
from headrace.transactions.shard import TransactionContext, TransactionShard
from headrace.transactions.states import COMPLETED, IDLE, State

logger = getLogger(__name__)


class ProducerIdNeeded(Exception):
    """Ask again with a new producer id."""


class Identity(NamedTuple):
    """With what a producer signs its writes."""

    producer_id: int
    producer_epoch: int


class TransactionCoordinator(ShardedCoordinator[TransactionShard]):
    def __init__(self, context: TransactionContext, partition_count: Callable[[], int]) -> None:
        """``partition_count`` is that of ``__transaction_state``, or what it will have."""
        super().__init__("transactions", partition_count, lambda journal: TransactionShard(context, journal))
        self._context = context

    def shard_for(self, name: str) -> TransactionShard:
        """
        :raises InvalidRequest: if the transactional id is empty.
        :raises KafkaError: if it is not coordinated here, or not yet.
        """
        if not name:
            raise InvalidRequest("a transactional id may not be empty")
        return super().shard_for(name)

    # -- a producer starts ------------------------------------------------------------------------------------------

    def start_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        known: Identity | None = None,
        fresh_producer_id: int | None = None,
    ) -> Identity:
        """
        A producer's identity from now on. An older producer of the id is shut out, and its transaction is aborted.

        :param known: what the producer was given before, if it starts anew after an error (KIP-360).
        :raises ProducerFenced: if it knows something that is not true any more.
        :raises ConcurrentTransactions: if the last transaction is being ended: ask again.
        """
        shard = self.shard_for(transactional_id)
        now_ms = self._context.clock.wall_ms()
        current = shard.get(transactional_id)
        if current is None:
            producer_id = _given(fresh_producer_id)
            shard.write(TxnMetadata(transactional_id, producer_id, 0, timeout_ms, State.EMPTY, now_ms))
            return Identity(producer_id, 0)
        is_repeated = known is not None and _is_repeated_start(current, known)
        if current.state in COMPLETED:
            raise ConcurrentTransactions(f"a transaction of {transactional_id!r} is being ended")
        if current.state is State.ONGOING:
            if current.producer_epoch + 1 >= LAST_EPOCH:
                _given(fresh_producer_id)  # the abort uses up the epochs
            shard.abort_over_its_head(current)
            current = shard.get(transactional_id)
            if current is None or current.state not in IDLE:
                raise ConcurrentTransactions(f"the transaction of {transactional_id!r} is being aborted")
        if is_repeated:
            following = current.with_timeout(timeout_ms, now_ms)
        elif current.is_epoch_exhausted:
            fresh = _given(fresh_producer_id)
            following = current.with_producer_id(fresh, timeout_ms, now_ms, same_producer=known is not None)
        else:
            following = current.with_next_epoch(timeout_ms, now_ms, same_producer=known is not None)
        shard.write(following)
        return Identity(following.producer_id, following.producer_epoch)

    # -- partitions -------------------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int = 0,
    ) -> None:
        """The producer's transaction has these partitions from now on; the first ones begin it.

        :raises ConcurrentTransactions: if the last transaction is being ended: ask again.
        """
        shard = self.shard_for(transactional_id)
        current = _current(shard, transactional_id, producer)
        added = frozenset(partitions)
        if current.state is State.ONGOING and added <= current.partitions:
            return
        now_ms = self._context.clock.wall_ms()
        shard.write(current.with_partitions(added, now_ms, client_version=client_version))

    def missing_partitions(
        self, transactional_id: str, producer: Identity, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Which of these the producer's transaction does not have."""
        current = _current(self.shard_for(transactional_id), transactional_id, producer)
        return frozenset(partitions) - current.partitions

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        producer: Identity,
        *,
        is_commit: bool,
        client_version: int = 0,
        fresh_producer_id: int | None = None,
    ) -> Identity:
        """
        The producer's transaction is committed or aborted: decided, when this returns. Who its producer is then.

        :raises InvalidTxnState: if there is none, or it was ended the other way.
        """
        shard = self.shard_for(transactional_id)
        current = shard.get(transactional_id)
        if current is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id!r}")
        is_repeated = client_version >= VERSION_2 and current.was_ended_by(*producer)
        if not is_repeated:
            _check_identity(current, producer)
        if not _has_something_to_end(current, is_commit, client_version, is_repeated):
            return Identity(*current.client_identity)
        next_producer_id = NONE
        if client_version >= VERSION_2 and current.is_epoch_exhausted:
            next_producer_id = _given(fresh_producer_id)
        prepared = current.prepared(
            self._context.clock.wall_ms(),
            is_commit=is_commit,
            client_version=client_version,
            next_producer_id=next_producer_id,
        )
        shard.write(prepared)
        return Identity(*prepared.client_identity)

    # -- what others ask --------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TxnMetadata:
        found = self.shard_for(transactional_id).get(transactional_id)
        if found is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
        return found

    def transactions(self) -> Iterator[TxnMetadata]:
        """All that this broker coordinates.

        :raises CoordinatorLoadInProgress: if some are not known yet.
        """
        if self.is_loading:
            raise CoordinatorLoadInProgress("some transactions are being loaded")
        for shard in self.shards():
            yield from shard

    def expire(self, expiration_ms: int) -> int:
        """Forgets the ids that had no transaction for so long; how many."""
        return sum(shard.expire(expiration_ms) for shard in self.shards())


def _given(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdNeeded
    return producer_id


def _check_identity(current: TxnMetadata, producer: Identity) -> None:
    name = current.transactional_id
    if producer.producer_id != current.producer_id:
        raise InvalidProducerIdMapping(
            f"the producer id of {name!r} is {current.producer_id}, not {producer.producer_id}"
        )
    if producer.producer_epoch != current.producer_epoch:
        raise ProducerFenced(f"the epoch of {name!r} is {current.producer_epoch}, not {producer.producer_epoch}")


def _current(shard: TransactionShard, transactional_id: str, producer: Identity) -> TxnMetadata:
    """The id as it is now, if that producer may go on with it."""
    current = shard.get(transactional_id)
    if current is None:
        raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id!r}")
    _check_identity(current, producer)
    if current.state in COMPLETED:
        raise ConcurrentTransactions(f"the last transaction of {transactional_id!r} is being ended")
    return current


def _is_repeated_start(current: TxnMetadata, known: Identity) -> bool:
    """Whether a producer that knows its identity was given the next one already, and did not hear of it.

    :raises ProducerFenced: if what it knows is not true any more.
    """
    if current.is_known_as(*known):
        if known.producer_epoch == current.producer_epoch and known.producer_id == current.producer_id:
            return False
        if known.producer_epoch == current.last_producer_epoch and current.state is not State.ONGOING:
            return True
    raise ProducerFenced(f"{current.transactional_id!r} has a newer producer than {known}")


def _has_something_to_end(current: TxnMetadata, is_commit: bool, client_version: int, is_repeated: bool) -> bool:
    """Whether there is a transaction to be ended; False if it was ended so already.

    :raises InvalidTxnState: if neither.
    """
    name, state = current.transactional_id, current.state
    if state is State.ONGOING:
        if is_repeated:
            raise ProducerFenced(f"{name!r} has begun another transaction since")
        return True
    is_ended_so = state is (State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT)
    if state is (State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT):
        raise ConcurrentTransactions(f"the transaction of {name!r} is being ended")
    if client_version < VERSION_2:
        if is_ended_so:
            return False
    elif is_repeated:
        if is_ended_so:
            return False
        if state is State.EMPTY:
            raise ProducerFenced(f"{name!r} has a newer producer")
    elif not is_commit and state in IDLE:
        return True  # its producer does not know whether it had begun one: KIP-890 lets it abort all the same
    word = "commit" if is_commit else "abort"
    raise InvalidTxnState(f"{name!r} has no transaction to {word}: it is in {state.label}")
