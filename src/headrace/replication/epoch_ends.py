"""Where two logs part: the arithmetic of leader epochs (KIP-101, KIP-279, KIP-595). No I/O.

Every record carries the epoch of the leader that took it, and a log knows at which offset each of its epochs began.
Two logs have the same records up to the end of the last epoch that both have, as far as both have it: within an epoch
there is one leader, and who has an offset of it has what that leader wrote there.

So a follower names its last epoch, and the leader answers with the largest epoch up to that one that it has itself, and
where that ended. If the follower has that epoch too, it cuts its log where the shorter of the two ends. If not, it cuts
behind the largest epoch that it has below, and asks again with that one.
"""

from typing import NamedTuple, Protocol

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The largest epoch of a log up to the one that was asked for, and the offset behind its last record."""

    epoch: int
    end_offset: int


NO_EPOCH_END = EpochEnd(UNKNOWN, UNKNOWN)


class EpochLog(Protocol):
    """What is asked of a log here. ``log.PartitionLog`` is one."""

    @property
    def next_offset(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """-1 if it has none."""
        ...

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """Its :class:`EpochEnd`; (-1, -1) if the epoch is newer than all that it has."""
        ...


class Cut(NamedTuple):
    #: The log is to end here. Where it ends there already its epochs must still be cut: it may have one that began and
    #: got no record.
    offset: int
    #: Whether the logs are now known to agree; if not, the follower asks again.
    is_complete: bool


def cut_for(log: EpochLog, leaders: EpochEnd) -> Cut:
    """What a follower does with its log when the leader has answered."""
    next_offset = log.next_offset
    if leaders.end_offset == UNKNOWN:
        # The leader knows nothing of such epochs. What all had is below the high watermark: the rest may differ.
        return Cut(min(log.high_watermark, next_offset), True)
    if leaders.epoch == UNKNOWN:
        return Cut(min(leaders.end_offset, next_offset), True)
    ours = EpochEnd(*log.end_offset_for_epoch(leaders.epoch))
    if ours.end_offset == UNKNOWN:
        return Cut(min(leaders.end_offset, next_offset), True)
    if ours.epoch != leaders.epoch:
        return Cut(min(ours.end_offset, next_offset), False)
    return Cut(min(ours.end_offset, leaders.end_offset, next_offset), True)


def is_diverging(fetch_offset: int, last_epoch: int, leaders: EpochEnd) -> bool:
    """Whether who fetches at an offset, and has its last record of an epoch, has records that the leader has not."""
    return leaders.epoch < last_epoch or leaders.end_offset < fetch_offset
