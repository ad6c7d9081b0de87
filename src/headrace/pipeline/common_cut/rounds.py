"""Decides when the followers of a project read, up to where, and which of them commit together.

A follower is a version that follows the log by micro-batches. Followers that read common topics, directly or through
others, belong together. This module has no threads, no clock and no I/O: ``common_cut`` has them.

::

             arrive                begins               ready              all are ready          committed
    RESTS ------------> WAITS ----------------> READS ------------> READY ----------------> COMMITS -----------> RESTS
                          |   nothing to read                                                                      ^
                          +----------------------------------------------------------------------------------------+
    any phase -- leave --> ALONE -- arrive --> WAITS -- the next round begins, if it is near enough --> READS

A follower in phase ALONE reads and commits by itself, as every version does without this module.

**A round** begins when all followers that are in have looked at the log. They get one cut (``agreement``). Those that
have something to read up to the cut compute it, and all commit in one transaction. So followers that are in have the
same offsets of their common topics at every commit.

**No follower stops the others.** A follower that fails leaves. A follower that lets others wait for more than
``patience_ms`` is put out, and the others go on at once. It may join again after a time that doubles each time. A
follower that is behind by more than ``MAX_BACKLOG`` offsets leaves, and joins again when a round can take it to the
others.

**After a restart** the versions start one after the other. The first one would move on alone, and readers would see it
ahead of the others. So, as long as nobody is in, a follower waits for the versions that start beside it with the same
offsets, until they arrive, fail, or ``start_patience_ms`` has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from headrace.pipeline.common_cut.agreement import LogPosition, Place, agree
from headrace.pipeline.progress.offsets import by_partition, offset_at, offsets_between
from headrace.pipeline.serving.catalog_tables.versions import Offsets, VersionKey

#: A follower with more offsets than this to read goes on by itself: its own steps may be much larger.
MAX_BACKLOG = 100_000
#: A follower that was put out may join again after this time; after twice of it the next time, and so on.
FIRST_BAR_MS = 30_000
_LONGEST_BAR_MS = 600_000
#: A version that has caught up serves after this time, even if it does not get into a round.
SERVES_ANYHOW_MS = 10_000


class Phase(Enum):
    ALONE = auto()
    WAITS = auto()
    READS = auto()
    READY = auto()
    COMMITS = auto()
    RESTS = auto()


@dataclass(eq=False)
class Round:
    """
    :ivar followers: those that commit together, in the order in which they write: that of their names, as all who lock
        several views.
    :ivar transaction: what they share, for the owner of the threads.
    """

    followers: tuple[Follower, ...]
    transaction: object = None


@dataclass(eq=False)
class Follower:
    """
    :ivar reads: whether it reads a topic.
    :ivar is_in: whether it has the offsets of the others after each commit.
    :ivar has_joined: whether it was in a round that has ended.
    :ivar cut: up to where it reads now.
    :ivar since_ms: since when it is in its phase.
    :ivar round: the last round that it took part in.
    :ivar held_ms: since when it is kept from serving, because it is in no round yet.
    """

    key: VersionKey
    reads: Callable[[str], bool]
    phase: Phase = Phase.ALONE
    is_in: bool = False
    has_joined: bool = False
    read: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    cut: Offsets = field(default_factory=dict)
    since_ms: int = 0
    interval_ms: int = 0
    round: Round = field(default_factory=lambda: Round(()))
    held_ms: int | None = None
    times_out: int = 0
    joined_ms: int = 0
    barred_until_ms: int = 0

    @property
    def position(self) -> LogPosition:
        return LogPosition(self.read, self.ends, self.reads, self.is_in)


class Rounds:
    """Not safe for threads.

    :param changed: called with each follower whose phase has changed.
    """

    def __init__(self, patience_ms: int, start_patience_ms: int, changed: Callable[[Follower], None]) -> None:
        self._patience_ms, self._start_patience_ms, self._changed = patience_ms, start_patience_ms, changed
        self.followers: dict[VersionKey, Follower] = {}
        #: Versions that start: their progress, and until when others wait for them.
        self._starting: dict[VersionKey, tuple[Offsets, int]] = {}
        self._is_paused = False

    # -------------------------------------------------------------------------------------------------- who there is

    def add(self, key: VersionKey, reads: Callable[[str], bool], now_ms: int) -> Follower:
        if (former := self.followers.get(key)) is not None:  # a thread that did not end in time
            self.leave(former, now_ms)
        made = self.followers[key] = Follower(key, reads, since_ms=now_ms)
        return made

    def remove(self, follower: Follower, now_ms: int) -> None:
        self.leave(follower, now_ms)
        if self.followers.get(follower.key) is follower:
            del self.followers[follower.key]

    def expect(self, key: VersionKey, read: Offsets, now_ms: int) -> None:
        """Notes that a version starts, with this progress."""
        self._starting[key] = read, now_ms + self._start_patience_ms

    def forget(self, key: VersionKey, now_ms: int) -> None:
        """Notes that a version does not start."""
        if self._starting.pop(key, None) is not None:
            self._begin_all(now_ms)

    def together(self, follower: Follower) -> list[Follower]:
        """Those that read common topics, directly or through others, and are in or want to be; the follower too."""
        found, topics = [follower], set(follower.ends)
        left = [
            each
            for each in self.followers.values()
            if each is not follower and (each.is_in or each.phase is Phase.WAITS)
        ]
        while near := [each for each in left if not topics.isdisjoint(each.ends)]:
            found += near
            topics.update(*(each.ends for each in near))
            left = [each for each in left if each not in near]
        return found

    def interval_ms(self, follower: Follower, own_ms: int) -> int:
        """The longest interval of those that belong together. They look at the log at the same moments."""
        follower.interval_ms = own_ms
        if not follower.is_in:
            return own_ms
        return max(each.interval_ms for each in self.together(follower) if each.is_in)

    # -------------------------------------------------------------------------------------------------------- events

    def arrive(self, follower: Follower, read: Offsets, ends: Offsets, now_ms: int) -> None:
        """A follower has looked at the log, and asks up to where it reads."""
        assert follower.phase in (Phase.ALONE, Phase.RESTS), f"{follower.key} is not done: {follower.phase}"
        self._starting.pop(follower.key, None)
        follower.read, follower.ends, follower.cut = read, ends, ends
        if self._is_paused:
            follower.cut = read
        elif now_ms < follower.barred_until_ms:
            self._goes_alone(follower, now_ms)
        else:
            self._enter(follower, Phase.WAITS, now_ms)
            self._begin(self.together(follower), now_ms)

    def ready(self, follower: Follower, now_ms: int) -> None:
        """A follower has computed its micro-batch. A follower that is alone commits it by itself."""
        if follower.phase is not Phase.READS:
            return
        if self._is_paused:
            self._gives_up(follower, now_ms)
            return
        self._enter(follower, Phase.READY, now_ms)
        self._commit_if_ready(follower.round, now_ms)

    def committed(self, follower: Follower, now_ms: int) -> None:
        if follower.phase is Phase.COMMITS:
            self._rests(follower, now_ms)

    def leave(self, follower: Follower, now_ms: int) -> None:
        """A follower has failed or ends; it is alone from now on."""
        if follower.phase is Phase.ALONE and not follower.is_in:
            return
        others = [each for each in self.together(follower) if each is not follower]
        self._goes_alone(follower, now_ms)
        self._others_go_on(others, now_ms)

    def held_up(self, follower: Follower, now_ms: int) -> None:
        """A follower has kept the others waiting while they committed."""
        self._bar(follower, now_ms)
        self.leave(follower, now_ms)

    def may_serve(self, key: VersionKey, now_ms: int) -> bool:
        """Whether readers may be switched to a version: it has the offsets of the others, or cannot have them soon."""
        follower = self.followers.get(key)
        if follower is None or follower.has_joined or now_ms < follower.barred_until_ms:
            return True
        if follower.held_ms is None:
            follower.held_ms = now_ms
        return now_ms - follower.held_ms >= SERVES_ANYHOW_MS

    def expire(self, now_ms: int) -> None:
        """Puts out those for which others have waited too long."""
        self._starting = {key: each for key, each in self._starting.items() if each[1] > now_ms}
        self._begin_all(now_ms)
        for follower in list(self.followers.values()):
            is_due = follower.phase in (Phase.WAITS, Phase.READY) and now_ms - follower.since_ms >= self._patience_ms
            if is_due and follower.is_in:
                self._put_out(self.together(follower), now_ms)
            elif is_due and follower.phase is Phase.WAITS and not self._awaits(self.together(follower), now_ms):
                self._goes_alone(follower, now_ms)

    def pause(self, now_ms: int) -> None:
        """From now on no round begins, and no round that has begun is committed: all end at the same offsets."""
        self._is_paused = True
        for follower in list(self.followers.values()):
            if follower.phase is Phase.WAITS:
                follower.cut = follower.read
                self._enter(follower, Phase.RESTS if follower.is_in else Phase.ALONE, now_ms)
            elif follower.phase is Phase.READY:
                self._gives_up(follower, now_ms)

    def resume(self) -> None:
        self._is_paused = False
        self._starting.clear()

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    # -------------------------------------------------------------------------------------------------- a round begins

    def _begin_all(self, now_ms: int) -> None:
        for follower in list(self.followers.values()):
            if follower.phase is Phase.WAITS:
                self._begin(self.together(follower), now_ms)

    def _begin(self, followers: list[Follower], now_ms: int) -> None:
        """Begins a round of these followers, if all that are in wait for it."""
        if any(each.phase is not Phase.WAITS for each in followers) or self._awaits(followers, now_ms):
            return
        if len(followers) == 1:
            self._read_up_to(followers[0], followers[0].ends, now_ms)
            return
        if slow := [each for each in followers if each.position.waiting > MAX_BACKLOG]:
            for each in slow:
                self._goes_alone(each, now_ms)
            self._others_go_on([each for each in followers if each not in slow], now_ms)
            return
        taking_part = []
        for each, (place, cut) in zip(followers, agree([each.position for each in followers]), strict=True):
            if place is Place.IN:
                self._read_up_to(each, cut, now_ms)
                taking_part.append(each)
            else:
                self._goes_alone(each, now_ms)
                each.cut = cut
        reading = sorted((each for each in taking_part if each.phase is Phase.READS), key=lambda each: each.key)
        begun = Round(tuple(reading))
        for each in reading:
            each.round = begun

    def _read_up_to(self, follower: Follower, cut: Offsets, now_ms: int) -> None:
        if not follower.is_in:
            follower.is_in, follower.joined_ms = True, now_ms
        follower.cut, follower.round = cut, Round((follower,))
        if offsets_between(follower.read, cut):
            self._enter(follower, Phase.READS, now_ms)
        else:
            self._rests(follower, now_ms)

    def _awaits(self, followers: Iterable[Follower], now_ms: int) -> bool:
        """Whether versions start beside these followers that are at the same offsets."""
        if any(each.is_in for each in followers):
            return False
        starting = [read for read, until_ms in self._starting.values() if now_ms < until_ms]
        return any(_is_at(each.read, read) for each in followers for read in starting)

    # -------------------------------------------------------------------------------------------------- a round ends

    def _commit_if_ready(self, begun: Round, now_ms: int) -> None:
        left = [each for each in begun.followers if each.round is begun and each.phase in (Phase.READS, Phase.READY)]
        if all(each.phase is Phase.READY for each in left):
            begun.followers = tuple(left)
            for each in left:
                self._enter(each, Phase.COMMITS, now_ms)

    def _others_go_on(self, others: Iterable[Follower], now_ms: int) -> None:
        for each in others:
            if each.phase is Phase.READY:
                self._commit_if_ready(each.round, now_ms)
            elif each.phase is Phase.WAITS:
                self._begin(self.together(each), now_ms)

    def _put_out(self, followers: list[Follower], now_ms: int) -> None:
        """Puts out those of these followers for which the others have waited too long."""
        slow = [
            each
            for each in followers
            if each.phase in (Phase.READS, Phase.RESTS) and now_ms - each.since_ms >= self._patience_ms
        ]
        for each in slow:
            self._bar(each, now_ms)
            self._goes_alone(each, now_ms)
        self._others_go_on([each for each in followers if each not in slow], now_ms)

    def _bar(self, follower: Follower, now_ms: int) -> None:
        times = follower.times_out + 1 if now_ms - follower.joined_ms < _LONGEST_BAR_MS else 1
        follower.times_out = times
        follower.barred_until_ms = now_ms + min(_LONGEST_BAR_MS, FIRST_BAR_MS << (times - 1))

    def _rests(self, follower: Follower, now_ms: int) -> None:
        follower.has_joined = True
        self._enter(follower, Phase.RESTS, now_ms)

    def _goes_alone(self, follower: Follower, now_ms: int) -> None:
        if follower.phase is Phase.WAITS:
            follower.cut = follower.ends
        follower.is_in = follower.has_joined = False
        self._enter(follower, Phase.ALONE, now_ms)

    def _gives_up(self, follower: Follower, now_ms: int) -> None:
        """A micro-batch that was computed is not committed."""
        follower.cut = follower.read
        self._goes_alone(follower, now_ms)

    def _enter(self, follower: Follower, phase: Phase, now_ms: int) -> None:
        follower.phase, follower.since_ms = phase, now_ms
        self._changed(follower)


def _is_at(offsets: Offsets, other: Offsets) -> bool:
    """Whether there are common partitions, and their offsets are the same."""
    common = by_partition(offsets).keys() & by_partition(other).keys()
    return bool(common) and all(offset_at(offsets, each) == offset_at(other, each) for each in common)
