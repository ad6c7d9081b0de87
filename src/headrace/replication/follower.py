"""The follower's side of replication: what to ask the leader next, and what the answer does to the log.

No I/O and no clock. A follower is made for one leader and one leader epoch, and is replaced when the controller names
another. A follower has one request at a time (:meth:`PartitionFollower.next_request`) and gets its result. Each
answer leads to an action on the log. The caller carries out the action before it asks for the next request. The
follower itself only reads its log.

First the follower truncates its log to the records that the leader has too: it asks the leader where the follower's
last epoch ended (``epoch_ends.py``). Then the follower fetches at the end of its log. Each fetch has the epoch of the
follower's last record. A leader that has another record there says so, and the follower truncates its log again. The
high watermark follows the leader's, up to the end of the log, and never goes back: a committed record stays
committed. The start of the log follows the leader's too.

Before version 0.11, Kafka truncated to the high watermark instead. That loses committed records: a follower learns the
leader's high watermark one fetch late, so its own is too low. And where it is too high, logs differ.
:attr:`Truncation.BY_HIGH_WATERMARK` exists to demonstrate this.
"""

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from headrace.protocol.errors import FencedLeaderEpoch, KafkaError, OffsetOutOfRange
from headrace.replication.epoch_ends import UNKNOWN, EpochEnd, EpochLog, truncation_point
from headrace.replication.leader import FollowerFetch


class Truncation(Enum):
    """How a follower truncates its log before it fetches."""

    BY_EPOCH = auto()
    #: Only for tests and demonstrations: this loses data.
    BY_HIGH_WATERMARK = auto()


class FollowerState(Enum):
    """The next step of a follower."""

    #: The follower truncates its log to the records that the leader has too.
    TRUNCATING = auto()
    FETCHING = auto()
    #: The leader's log does not have the offset at the end of the follower's log: it starts later, or ends earlier.
    OUT_OF_RANGE = auto()
    #: There is a newer leader epoch. The controller's request with it has not arrived yet.
    FENCED = auto()


#: From each state, the states that may follow.
NEXT: dict[FollowerState, frozenset[FollowerState]] = {
    FollowerState.TRUNCATING: frozenset({FollowerState.TRUNCATING, FollowerState.FETCHING, FollowerState.FENCED}),
    FollowerState.FETCHING: frozenset({FollowerState.FETCHING, FollowerState.OUT_OF_RANGE, FollowerState.FENCED}),
    FollowerState.OUT_OF_RANGE: frozenset({FollowerState.OUT_OF_RANGE, FollowerState.FETCHING, FollowerState.FENCED}),
    FollowerState.FENCED: frozenset({FollowerState.FENCED}),
}


# Requests to the leader


class EpochEndRequest(NamedTuple):
    """OffsetsForLeaderEpoch: asks where ``epoch`` ended."""

    leader_epoch: int
    epoch: int


class LogRangeRequest(NamedTuple):
    """ListOffsets, twice: asks where the leader's log begins and ends."""

    leader_epoch: int


#: A follower sends one of these at a time.
FollowerRequest: TypeAlias = EpochEndRequest | LogRangeRequest | FollowerFetch


# Actions on the log


class TruncateTo(NamedTuple):
    """Truncate the log to an offset. Its epochs are truncated even if the log ends there already."""

    offset: int


class TruncateFully(NamedTuple):
    """Delete all records. The log continues at an offset."""

    offset: int


class AdvanceOffsets(NamedTuple):
    """Append the records of the answer, if there are any. Then set the high watermark and the start of the log."""

    high_watermark: int
    log_start_offset: int


LogAction: TypeAlias = TruncateTo | TruncateFully | AdvanceOffsets | None


class FetchResult(NamedTuple):
    """The leader's answer to a fetch of one partition."""

    high_watermark: int
    log_start_offset: int
    #: The offset after the last record of the answer; None if the answer has no records.
    end_offset: int | None = None
    #: The leader's epoch and its end offset, if the follower has records that the leader does not have.
    diverging: tuple[int, int] | None = None


class PartitionFollower:
    """The follower of one partition, in one leader epoch."""

    def __init__(
        self, leader_id: int, leader_epoch: int, log: EpochLog, truncation: Truncation = Truncation.BY_EPOCH
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.state = FollowerState.TRUNCATING
        #: Only read. May be replaced by another log with the same records.
        self.log = log
        self._truncation = truncation

    def first_action(self) -> LogAction:
        """The action on the log before the first request."""
        if self._truncation is Truncation.BY_EPOCH and self.log.latest_epoch != UNKNOWN:
            return None
        # A log without epochs has no records, or records of a Kafka version that had no epochs.
        self._transition_to(FollowerState.FETCHING)
        return self._to_high_watermark()

    def _to_high_watermark(self) -> LogAction:
        log = self.log
        return TruncateTo(log.high_watermark) if log.high_watermark < log.next_offset else None

    def next_request(self) -> FollowerRequest | None:
        """The request to send now. None if the follower waits until the controller names another leader."""
        log = self.log
        match self.state:
            case FollowerState.FETCHING:
                last_epoch = log.latest_epoch if self._truncation is Truncation.BY_EPOCH else UNKNOWN
                return FollowerFetch(self.leader_epoch, log.next_offset, last_epoch, log.log_start_offset)
            case FollowerState.TRUNCATING:
                return EpochEndRequest(self.leader_epoch, log.latest_epoch)
            case FollowerState.OUT_OF_RANGE:
                return LogRangeRequest(self.leader_epoch)
            case FollowerState.FENCED:
                return None

    # Answers. An answer to another request than the present one is late, and changes nothing.

    def on_epoch_end(self, request: EpochEndRequest, leaders: EpochEnd) -> LogAction:
        if request != self.next_request():
            return None
        cut = truncation_point(self.log, leaders)
        if cut.is_complete:
            self._transition_to(FollowerState.FETCHING)
        return TruncateTo(cut.offset)

    def on_fetched(self, request: FollowerFetch, result: FetchResult) -> LogAction:
        if request != self.next_request():
            return None
        if result.diverging is not None:
            # The next fetch will show whether the log is truncated far enough.
            return TruncateTo(truncation_point(self.log, EpochEnd(*result.diverging)).offset)
        end_offset = request.offset if result.end_offset is None else result.end_offset
        assert end_offset >= request.offset, f"fetched at {request.offset}, got records that end at {end_offset}"
        high_watermark = max(self.log.high_watermark, min(result.high_watermark, end_offset))
        log_start_offset = max(self.log.log_start_offset, min(result.log_start_offset, high_watermark))
        return AdvanceOffsets(high_watermark, log_start_offset)

    def on_log_range(self, request: LogRangeRequest, leader_start_offset: int, leader_end_offset: int) -> LogAction:
        if request != self.next_request():
            return None
        self._transition_to(FollowerState.FETCHING)
        next_offset = self.log.next_offset
        if leader_end_offset < next_offset:
            # Only after an unclean election: the leader has fewer records, and the others are lost.
            return TruncateTo(leader_end_offset)
        if leader_start_offset > next_offset:
            return TruncateFully(leader_start_offset)
        return None

    def on_error(self, request: FollowerRequest, error: KafkaError) -> None:
        """The leader rejected the request. If the state does not change, the caller sends the request again later."""
        if request != self.next_request():
            return
        if isinstance(error, FencedLeaderEpoch):
            self._transition_to(FollowerState.FENCED)
        elif isinstance(error, OffsetOutOfRange) and self.state is FollowerState.FETCHING:
            self._transition_to(FollowerState.OUT_OF_RANGE)

    def _transition_to(self, state: FollowerState) -> None:
        assert state in NEXT[self.state], f"{state} cannot follow {self.state}"
        self.state = state
