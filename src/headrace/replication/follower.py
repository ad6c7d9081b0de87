"""A partition's follower: what to ask its leader next, and what the answer does to the log. No I/O, no clock.

A follower is made for one leader and epoch, and left when the controller names another. It asks one thing at a time
(:meth:`PartitionFollower.next_ask`) and is given the answer; what it then says is to be done to the log, before it is
asked again. Its own log it only looks at.

First the end of its log is cut back to what the leader has too, by asking where its last epoch ended there (see
``epoch_ends.py``). Then it fetches at its log's end. Each fetch names the epoch of its last record, so that a leader
that has something else there says so, and the log is cut again. The high watermark follows the leader's as far as the
log goes, and not back: what was committed once is so for good. The log's start follows the leader's too.

Cutting to the high watermark instead, as Kafka did before 0.11, loses committed records: a follower learns of the
leader's high watermark one fetch late, so that its own is too low. And it lets logs differ where it is too high.
:attr:`Truncation.BY_HIGH_WATERMARK` exists to show that.
"""

from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from headrace.protocol.errors import FencedLeaderEpoch, KafkaError, OffsetOutOfRange
from headrace.replication.epoch_ends import UNKNOWN, EpochEnd, EpochLog, cut_for
from headrace.replication.leader import FollowerFetch


class Truncation(Enum):
    BY_EPOCH = auto()
    #: For tests and for showing what it does: it loses data.
    BY_HIGH_WATERMARK = auto()


class State(Enum):
    #: The log is about to be cut to what leader and follower have in common.
    TRUNCATING = auto()
    FETCHING = auto()
    #: The leader has nothing at the log's end: its log has moved on, or back.
    OUT_OF_RANGE = auto()
    #: There is a newer epoch; the controller's word is on its way.
    FENCED = auto()


#: Which states may follow.
NEXT: dict[State, frozenset[State]] = {
    State.TRUNCATING: frozenset({State.TRUNCATING, State.FETCHING, State.FENCED}),
    State.FETCHING: frozenset({State.FETCHING, State.OUT_OF_RANGE, State.FENCED}),
    State.OUT_OF_RANGE: frozenset({State.OUT_OF_RANGE, State.FETCHING, State.FENCED}),
    State.FENCED: frozenset({State.FENCED}),
}


# What to ask


class AskEpochEnd(NamedTuple):
    """OffsetsForLeaderEpoch: where did ``epoch`` end?"""

    leader_epoch: int
    epoch: int


class AskRange(NamedTuple):
    """ListOffsets, twice: where does the leader's log begin and end?"""

    leader_epoch: int


#: A fetch is asked for by what it says.
Ask: TypeAlias = AskEpochEnd | AskRange | FollowerFetch


# What to do


class TruncateTo(NamedTuple):
    """Cut the log's end, and its epochs even if the log ends there already."""

    offset: int


class TruncateFully(NamedTuple):
    """Drop the log; it goes on at an offset."""

    offset: int


class Proceed(NamedTuple):
    """Append the records of the answer, if there are any; then these are the log's."""

    high_watermark: int
    log_start_offset: int


Deed: TypeAlias = TruncateTo | TruncateFully | Proceed | None


class FetchAnswer(NamedTuple):
    high_watermark: int
    log_start_offset: int
    #: The offset behind the last record of the answer; None if it has none.
    end_offset: int | None = None
    diverging: EpochEnd | None = None


class PartitionFollower:
    def __init__(
        self, leader_id: int, leader_epoch: int, log: EpochLog, truncation: Truncation = Truncation.BY_EPOCH
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.state = State.TRUNCATING
        #: Only looked at. Another one with the same records may take its place.
        self.log = log
        self._truncation = truncation

    def begin(self) -> Deed:
        """What is done to the log before anything is asked."""
        if self._truncation is Truncation.BY_EPOCH and self.log.latest_epoch != UNKNOWN:
            return None
        # A log that knows no epochs has no records, or records from before there were epochs.
        self._go(State.FETCHING)
        return self._to_high_watermark()

    def _to_high_watermark(self) -> Deed:
        log = self.log
        return TruncateTo(log.high_watermark) if log.high_watermark < log.next_offset else None

    def next_ask(self) -> Ask | None:
        """None: nothing, until the controller names another leader."""
        log = self.log
        match self.state:
            case State.FETCHING:
                last_epoch = log.latest_epoch if self._truncation is Truncation.BY_EPOCH else UNKNOWN
                return FollowerFetch(self.leader_epoch, log.next_offset, last_epoch, log.log_start_offset)
            case State.TRUNCATING:
                return AskEpochEnd(self.leader_epoch, log.latest_epoch)
            case State.OUT_OF_RANGE:
                return AskRange(self.leader_epoch)
            case State.FENCED:
                return None

    # Answers. One to something that is not what would be asked now is late, and changes nothing.

    def on_epoch_end(self, ask: AskEpochEnd, leaders: EpochEnd) -> Deed:
        if ask != self.next_ask():
            return None
        cut = cut_for(self.log, leaders)
        if cut.is_complete:
            self._go(State.FETCHING)
        return TruncateTo(cut.offset)

    def on_fetched(self, ask: FollowerFetch, answer: FetchAnswer) -> Deed:
        if ask != self.next_ask():
            return None
        if answer.diverging is not None:
            # Whether it was cut far enough the next fetch will tell.
            return TruncateTo(cut_for(self.log, answer.diverging).offset)
        end_offset = ask.offset if answer.end_offset is None else answer.end_offset
        assert end_offset >= ask.offset, f"asked for {ask.offset}, given records that end at {end_offset}"
        high_watermark = max(self.log.high_watermark, min(answer.high_watermark, end_offset))
        log_start_offset = max(self.log.log_start_offset, min(answer.log_start_offset, high_watermark))
        return Proceed(high_watermark, log_start_offset)

    def on_range(self, ask: AskRange, leader_start_offset: int, leader_end_offset: int) -> Deed:
        if ask != self.next_ask():
            return None
        self._go(State.FETCHING)
        next_offset = self.log.next_offset
        if leader_end_offset < next_offset:
            # Only after an unclean election: the leader has less, and what it has not is gone.
            return TruncateTo(leader_end_offset)
        if leader_start_offset > next_offset:
            return TruncateFully(leader_start_offset)
        return None

    def on_error(self, ask: Ask, error: KafkaError) -> None:
        """Whatever was asked was refused. Where the state is what it was, it is asked again after a while."""
        if ask != self.next_ask():
            return
        if isinstance(error, FencedLeaderEpoch):
            self._go(State.FENCED)
        elif isinstance(error, OffsetOutOfRange) and self.state is State.FETCHING:
            self._go(State.OUT_OF_RANGE)

    def _go(self, state: State) -> None:
        assert state in NEXT[self.state], f"{state} cannot follow {self.state}"
        self.state = state
