"""A partition without followers: its log, its leader epoch, and up to which offset a consumer may read.

The log ends at its next offset (LEO). Records that all in-sync replicas have are below the high watermark (HW).
Consumers see no record at or above the HW. A consumer with ``read_committed`` stops earlier, at the first offset of a
transaction that is still open: the last stable offset (LSO). With one replica the HW is the end of the log.

A single broker leads all its partitions, which are of this class. In a cluster a partition has a role
(``replicated_partition.py``) and the same methods.
"""

from enum import IntEnum
from typing import ClassVar, NoReturn

from headrace.log.partition_log import Appended, Origin, PartitionLog
from headrace.protocol.errors import FencedLeaderEpoch, InvalidRequest, UnknownLeaderEpoch
from headrace.protocol.records import Buffer

#: The leader epoch in a request of a peer that does not know the epoch, and accepts any.
ANY_EPOCH = -1


class Isolation(IntEnum):
    """Which records a consumer reads: all below the high watermark, or only those of committed transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise InvalidRequest(f"{value} is not an isolation level: 0 is read_uncommitted, 1 is read_committed")


class Partition:
    """A partition that this broker leads and that has no followers."""

    __slots__ = ("is_leader", "leader_epoch", "log")

    #: Whether the partition has a role, because other brokers have replicas too.
    is_replicated: ClassVar[bool] = False

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = True
        log.high_watermark = log.next_offset

    def replace_log(self, log: PartitionLog) -> None:
        """Uses a log in another log dir with the same records."""
        self.log = log

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def check_epoch(self, epoch: int) -> None:
        """Compares the leader epoch of a request with the partition's (KIP-320).

        :raises FencedLeaderEpoch: if the peer does not know of the latest election yet.
        :raises UnknownLeaderEpoch: if this broker does not know of the latest election yet.
        """
        if epoch == ANY_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"the leader epoch is {self.leader_epoch}; the request has the older epoch {epoch}")
        raise UnknownLeaderEpoch(f"the leader epoch is {self.leader_epoch}; the request has the newer epoch {epoch}")

    def visible_end(self, isolation: Isolation) -> int:
        """The offset at which a consumer stops reading."""
        log = self.log
        return log.high_watermark if isolation is Isolation.READ_UNCOMMITTED else log.last_stable_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and the offset at which it ended; (-1, -1) if unknown.

        The present epoch ends at the end of the log.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.next_offset
        return self.log.end_offset_for_epoch(epoch)

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT, *, checked: Buffer | None = None) -> Appended:
        log = self.log
        appended = log.append(records, leader_epoch=self.leader_epoch, origin=origin, checked=checked)
        log.high_watermark = log.next_offset
        return appended

    def check_enough_replicas(self) -> None:
        """Checks the ISR before an append with acks=all.

        :raises NotEnoughReplicas: if fewer replicas are in sync than ``min.insync.replicas``.
        """

    def is_acknowledged(self, end_offset: int) -> bool:
        """Tells whether all records below an offset are committed, for acks=all.

        :raises NotLeaderOrFollower: if another broker leads now.
        :raises NotEnoughReplicasAfterAppend: if the records are in the log, and too few replicas are in sync.
        """
        return self.log.high_watermark >= end_offset

    def check_high_watermark_known(self) -> None:
        """
        :raises OffsetNotAvailable: if a new leader does not know yet which of its records are committed (KIP-207).
        """

    # For metrics; may be called on any thread

    @property
    def in_sync_count(self) -> int:
        """The number of in-sync replicas; 0 if this broker does not lead the partition."""
        return 1

    @property
    def is_under_replicated(self) -> bool:
        """Tells whether this broker leads the partition, and a replica is not in sync."""
        return False

    @property
    def is_under_min_isr(self) -> bool:
        """Tells whether this broker leads the partition with fewer replicas in sync than ``min.insync.replicas``."""
        return False

    @property
    def low_watermark(self) -> int:
        """The lowest start of all replicas' logs."""
        return self.log.log_start_offset

    def advance_log_start(self, offset: int) -> None:
        """Deletes the records below an offset: at once here, and with their next fetch on followers.

        :raises OffsetOutOfRange: if the offset is above the high watermark.
        """
        self.log.advance_log_start(offset)
