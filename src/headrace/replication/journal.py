"""The log of a coordinator: one partition of an internal topic, to which the coordinator writes its state.

The records of the partition, in order, are the coordinator's state. The coordinator writes records to the journal and
then applies them. When the coordinator starts, it applies all records of the journal. Both go through the same code, so
a restart finds the same state.

Records of a transaction (offsets that are committed within one) count only after its marker. :meth:`Journal.batches`
returns whole batches with their headers, and leaves this to the reader.

A journal belongs to one leader epoch. The partition's next leader may not have all records of this one. So nothing is
written after the epoch has ended, and a coordinator that has read the log reads it again in the next epoch.

A record that is written is not yet committed: in a cluster, the in-sync replicas have to fetch it first. Until then the
coordinator may not tell a client of the record, and may not do anything because of it that cannot be undone
(:meth:`Journal.when_committed`).
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

#: A record's key and value. The value None is a tombstone.
KeyValue = tuple[bytes, bytes | None]

#: Calls the function once the partition's high watermark has reached the offset. Never calls it if the leader changes
#: before.
WhenCommitted = Callable[[Partition, int, Callable[[], None]], None]

_NO_EPOCH = -1


class Journal:
    """One partition of an internal topic, in one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        *,
        on_write: Callable[[], object] = lambda: None,
        wait: WhenCommitted | None = None,
    ) -> None:
        """
        :param on_write: called after each write, for consumers that wait for new records.
        :param wait: waits until followers have fetched the records. Not needed if the partition has no followers.
        """
        self.partition = partition
        #: The leader epoch in which records may be written.
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
        """Appends records as one batch, within a producer's transaction if one is given. No records: returns None.

        :raises StorageError, CoordinatorNotAvailable: if the records could not be written. Then none was written.
        :raises NotCoordinator: if the partition has another leader, or another leader epoch.
        """
        if not records:
            return None
        if self.partition.leader_epoch != self.epoch:
            raise NotCoordinator(
                f"the leader epoch {self.epoch} of {self.partition.log.topic}-{self.index} has ended; the epoch is "
                f"{self.partition.leader_epoch} now"
            )
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
        """Calls ``then`` once all records that are in the log now are committed.

        Calls it at once if they are committed already. Never calls it if the leader changes before they are.
        """
        partition = self.partition
        end_offset = partition.log.next_offset
        if partition.high_watermark >= end_offset:
            then()
            return
        assert self._wait is not None, "the partition has followers, and the journal has no function to wait for them"
        self._wait(partition, end_offset, then)

    def begin_next_epoch(self) -> None:
        """Continues in the next leader epoch. This broker leads in it too, and no other broker has led in between."""
        self.epoch = self.partition.leader_epoch

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """All batches of the log with their records, including control batches."""
        log = self.partition.log
        return decoded_batches(log, lambda: log.next_offset)
