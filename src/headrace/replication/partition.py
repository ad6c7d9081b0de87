"""A partition as its leader sees it: its log, its epoch, and how far who may read.

The log ends at its next offset (LEO). What all in-sync replicas have is below the high watermark (HW); consumers see
nothing at or above it. A ``read_committed`` consumer stops earlier, at the first offset of a transaction that is still
open: the last stable offset (LSO). With one replica the high watermark is the log's end.

A broker that is alone leads all its partitions, and this is all of a partition. In a cluster a partition has a role
(``replicated_partition.py``); what is asked of it is the same.
"""

from enum import IntEnum
from typing import ClassVar, NoReturn

from headrace.log.partition_log import Appended, Origin, PartitionLog
from headrace.protocol.errors import FencedLeaderEpoch, InvalidRequest, UnknownLeaderEpoch
from headrace.protocol.records import Buffer

#: What a peer sends when it does not know the epoch, and means any.
ANY_EPOCH = -1


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise InvalidRequest(f"there is no isolation level {value}")


class Partition:
    __slots__ = ("is_leader", "leader_epoch", "log")

    #: Whether others have it too, and it has a role.
    is_replicated: ClassVar[bool] = False

    def __init__(self, log: PartitionLog, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch
        self.is_leader = True
        log.high_watermark = log.next_offset

    def replace_log(self, log: PartitionLog) -> None:
        """It is in another log dir now, with the same records."""
        self.log = log

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def check_epoch(self, epoch: int) -> None:
        """A peer whose epoch is older has not heard of the latest election; one whose epoch is newer knows more than
        we do (KIP-320)."""
        if epoch == ANY_EPOCH or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch} any more")
        raise UnknownLeaderEpoch(f"the leader epoch is {self.leader_epoch}, not yet {epoch}")

    def visible_end(self, isolation: Isolation) -> int:
        log = self.log
        return log.high_watermark if isolation is Isolation.READ_UNCOMMITTED else log.last_stable_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one and where it ended; (-1, -1) if unknown. The present one ends here."""
        if epoch == self.leader_epoch:
            return epoch, self.log.next_offset
        return self.log.end_offset_for_epoch(epoch)

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT) -> Appended:
        log = self.log
        appended = log.append(records, leader_epoch=self.leader_epoch, origin=origin)
        log.high_watermark = log.next_offset
        return appended

    def check_enough_replicas(self) -> None:
        """Before an append that asks for acks=all.

        :raises NotEnoughReplicas: if fewer are in sync than ``min.insync.replicas``.
        """

    def is_acknowledged(self, end_offset: int) -> bool:
        """Whether acks=all is done with what lies below an offset.

        :raises NotLeaderOrFollower: if another broker leads now.
        :raises NotEnoughReplicasAfterAppend: if it is in the log, and too few are in sync.
        """
        return self.log.high_watermark >= end_offset

    def check_committed_is_known(self) -> None:
        """
        :raises OffsetNotAvailable: if a new leader does not know yet how far its log is committed (KIP-207).
        """

    # For metrics; may be asked on any thread

    @property
    def in_sync_count(self) -> int:
        """How many are in sync, as the leader knows; 0 if that is not this broker."""
        return 1

    @property
    def is_under_replicated(self) -> bool:
        """Whether we lead it, and a replica is not in sync."""
        return False

    @property
    def is_under_min_isr(self) -> bool:
        """Whether we lead it, and fewer are in sync than ``min.insync.replicas``."""
        return False

    @property
    def low_watermark(self) -> int:
        """Below this no replica has anything any more."""
        return self.log.log_start_offset

    def advance_log_start(self, offset: int) -> None:
        """Deletes what lies below an offset, here at once and on followers soon.

        :raises OffsetOutOfRange: above the high watermark.
        """
        self.log.advance_log_start(offset)
