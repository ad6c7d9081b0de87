"""One partition of an internal topic, as the coordinator that keeps its state there sees it.

A coordinator's state is what its records say, in order. It writes records here and then applies them; when it starts,
it applies all that are here. Both go through the same code, so that a restart finds the state that was left.

Records of a transaction (offsets committed within one) count only from its marker on: ``batches`` gives whole batches
with their headers, and leaves that to the reader.

A journal is of one leader epoch. What its partition's next leader does not have, it may not know: so nothing is written
once the epoch has passed, and whoever read the log in it reads it anew. And what is written is not yet committed: in a
cluster that takes until the in-sync replicas have it, and until then nobody may be told of it, nor may anything be done
on the strength of it that cannot be taken back (:meth:`Journal.when_committed`).
"""

from collections.abc import Callable, Iterator, Sequence

from headrace.log.lookups import decoded_batches
from headrace.log.partition_log import Appended, Origin
from headrace.protocol.errors import CoordinatorNotAvailable, NotCoordinator, NotEnoughReplicas, NotLeaderOrFollower
from headrace.protocol.keyed_batch import build_keyed_batch
from headrace.protocol.record_body import Record
from headrace.protocol.records import NO_PRODUCER_ID, BatchHeader
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

#: A record's key and value; a value of None takes back what the key said.
KeyValue = tuple[bytes, bytes | None]

#: Is to call the function once the partition's high watermark is at that offset; never, if it is led by another first.
WhenCommitted = Callable[[Partition, int, Callable[[], None]], None]

_NO_EPOCH = -1


class Journal:
    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        *,
        on_write: Callable[[], object] = lambda: None,
        wait: WhenCommitted | None = None,
    ) -> None:
        """
        :param on_write: is called after each write: somebody may be waiting to read it.
        :param wait: how to wait for what others must have; not needed where there are no others.
        """
        self.partition = partition
        #: The leader epoch in which this may be written.
        self.epoch = partition.leader_epoch
        self._clock = clock
        self._on_write = on_write
        self._wait = wait

    @property
    def index(self) -> int:
        return self.partition.log.partition

    def write(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> Appended | None:
        """Appends the records as one batch, within a producer's transaction if it is given; None if there are none.

        :raises StorageError, CoordinatorNotAvailable: if they could not be written. Then nothing was.
        :raises NotCoordinator: if the partition has another leader, or another epoch.
        """
        if not records:
            return None
        if self.partition.leader_epoch != self.epoch:
            raise NotCoordinator(f"the epoch {self.epoch} of partition {self.index} is over")
        batch = build_keyed_batch(
            records,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )
        try:
            self.partition.check_enough_replicas()
            appended = self.partition.append(batch, Origin.COORDINATOR)
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from error
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(str(error)) from error
        self._on_write()
        return appended

    def when_committed(self, then: Callable[[], None]) -> None:
        """Calls ``then`` once all that is in the log by now is committed: at once if it is, never if it may be lost."""
        partition = self.partition
        end_offset = partition.log.next_offset
        if partition.high_watermark >= end_offset:
            then()
            return
        assert self._wait is not None, "the partition has followers, and nobody can wait for them"
        self._wait(partition, end_offset, then)

    def renew(self) -> None:
        """The partition is led on by this broker in a new epoch, with nobody in between."""
        self.epoch = self.partition.leader_epoch

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """All batches from the log's start to its end, with their records; control batches too."""
        log = self.partition.log
        return decoded_batches(log, lambda: log.next_offset)
