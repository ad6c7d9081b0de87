"""Finds the offset at which two logs diverge, by leader epochs (KIP-101, KIP-279, KIP-595). No I/O.

Every record has the epoch of the leader that appended it, and a log knows the offset at which each of its epochs began.
Two logs have the same records up to the end of the last epoch that both have, as far as both have it. The reason: an
epoch has one leader, and every replica with an offset of the epoch has the record that this leader wrote there.

So a follower sends its last epoch. The leader answers with the largest epoch up to this one that the leader has, and
the offset at which this epoch ended. If the follower has the epoch too, the follower truncates its log where the
shorter of the two ends. If not, the follower truncates after the largest lower epoch that it has, and asks again with
this epoch.
"""

from typing import NamedTuple, Protocol

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The largest epoch of a log up to the requested one, and the offset after its last record."""

    epoch: int
    end_offset: int


NO_EPOCH_END = EpochEnd(UNKNOWN, UNKNOWN)


class EpochLog(Protocol):
    """A log, as far as this module and the follower need it. ``log.PartitionLog`` is one."""

    @property
    def next_offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last record; -1 if the log has none."""
        ...

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """The fields of an :class:`EpochEnd`; (-1, -1) if the epoch is newer than all epochs of the log."""
        ...


class TruncationPoint(NamedTuple):
    """The offset at which a follower truncates its log."""

    #: The log has to end here. If the log ends here already, its epochs must still be truncated: the last epoch may
    #: have begun without a record.
    offset: int
    #: Whether the logs are known to agree after the truncation. If not, the follower asks again.
    is_complete: bool


def truncation_point(log: EpochLog, leader_end: EpochEnd) -> TruncationPoint:
    """Returns the point to which a follower truncates its log after the leader has answered with its epoch end."""
    next_offset = log.next_offset
    if leader_end.end_offset == UNKNOWN:
        # The leader has no such epochs. All replicas had the records below the high watermark; the others may differ.
        return TruncationPoint(min(log.high_watermark, next_offset), True)
    if leader_end.epoch == UNKNOWN:
        return TruncationPoint(min(leader_end.end_offset, next_offset), True)
    own_end = EpochEnd(*log.end_offset_for_epoch(leader_end.epoch))
    if own_end.end_offset == UNKNOWN:
        return TruncationPoint(min(leader_end.end_offset, next_offset), True)
    if own_end.epoch != leader_end.epoch:
        return TruncationPoint(min(own_end.end_offset, next_offset), False)
    return TruncationPoint(min(own_end.end_offset, leader_end.end_offset, next_offset), True)


def is_diverging(fetch_offset: int, last_epoch: int, leader_end: EpochEnd) -> bool:
    """Tells whether a follower has records that the leader does not have.

    :param fetch_offset: the offset at which the follower fetches.
    :param last_epoch: the epoch of the follower's last record.
    """
    return leader_end.epoch < last_epoch or leader_end.end_offset < fetch_offset
