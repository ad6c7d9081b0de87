"""Lets the threads of versions read the log in rounds, and commit them together. ``rounds`` decides, threads wait here.

A thread that follows the log calls these in turn, for each micro-batch::

    member.cut(read, ends)      waits until the next round begins; returns up to where to read
    member.begin()              waits until all others are ready; a write transaction, which all of them share
    member.leave()              if anything was raised

``SoloFollower`` is the same for a version without others: it waits for nobody, and its transaction is its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from headrace.pipeline.common_cut.rounds import Follower, Phase, Rounds
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.shared_transaction import PartTimedOut, SharedTransaction

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from headrace.pipeline.serving.catalog_tables.versions import Offsets, VersionKey
    from headrace.pipeline.serving.database import Database
    from headrace.runtime.clock import Clock

#: How long a version waits for others.
PATIENCE_MS = 5_000
#: How long it waits for versions that start beside it, at the same offsets.
START_PATIENCE_MS = 20_000


class LeftOut(ServingError):
    """A micro-batch was not committed, and nothing is wrong with it: it has to be computed again."""


class Member(Protocol):
    """How a version reads and commits, with others or alone. One thread calls its methods.

    :ivar waited_ms: how long it has waited for others in the micro-batch in progress, or in the last one.
    """

    waited_ms: int

    def cut(self, read: Offsets, ends: Offsets) -> Offsets:
        """Up to where the next micro-batch reads; ``read`` if there is nothing to read now."""

    def begin(self) -> AbstractContextManager[Connection]:
        """The write transaction of the micro-batch.

        :raises LeftOut: if the micro-batch has to be computed again.
        """

    def leave(self) -> None:
        """Nobody waits for the micro-batch in progress."""

    def interval_ms(self, own_ms: int) -> int:
        """The time from one look at the log to the next one."""


class SoloFollower:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.waited_ms = 0

    def cut(self, read: Offsets, ends: Offsets) -> Offsets:  # noqa: ARG002
        return ends

    def begin(self) -> AbstractContextManager[Connection]:
        return self._database.begin()

    def leave(self) -> None: ...

    def interval_ms(self, own_ms: int) -> int:
        return own_ms


class CommonCut:
    """The versions of a project that follow the log. Any thread may call its methods."""

    def __init__(self, patience_ms: int = PATIENCE_MS, start_patience_ms: int = START_PATIENCE_MS) -> None:
        self._lock = threading.Lock()
        self._changed: dict[Follower, threading.Condition] = {}
        self._rounds = Rounds(patience_ms, start_patience_ms, lambda follower: self._changed[follower].notify_all())
        self._look_again_s = patience_ms / 10_000

    @contextmanager
    def member(
        self,
        database: Database,
        clock: Clock,
        key: VersionKey,
        reads: Callable[[str], bool],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[Member]:
        """Lets a version take part while it follows the log.

        :param reads: whether it reads a topic.
        :param waiting: entered while the version waits for others with a micro-batch that it has computed.
        """
        with self._lock:
            follower = self._rounds.add(key, reads, clock.monotonic_ms())
            self._changed[follower] = threading.Condition(self._lock)
        try:
            yield RoundFollower(self, database, clock, follower, waiting)
        finally:
            with self._lock:
                self._rounds.remove(follower, clock.monotonic_ms())
                del self._changed[follower]

    # ------------------------------------------------------------------------------------------------ for the runner

    def expect(self, key: VersionKey, read: Offsets, clock: Clock) -> None:
        """Others that start at the same offsets wait for this version, which is about to start."""
        with self._lock:
            self._rounds.expect(key, read, clock.monotonic_ms())

    def forget(self, key: VersionKey, clock: Clock) -> None:
        """Nobody waits for the start of this version any more."""
        with self._lock:
            self._rounds.forget(key, clock.monotonic_ms())

    def may_serve(self, key: VersionKey, clock: Clock) -> bool:
        with self._lock:
            return self._rounds.may_serve(key, clock.monotonic_ms())

    @contextmanager
    def paused(self, clock: Clock) -> Iterator[None]:
        """While all versions are stopped: none of them commits alone what the others do not commit."""
        with self._lock:
            self._rounds.pause(clock.monotonic_ms())
        try:
            yield
        finally:
            with self._lock:
                self._rounds.resume()

    # ---------------------------------------------------------------------------------------------------- for members

    @contextmanager
    def deciding(self) -> Iterator[Rounds]:
        with self._lock:
            yield self._rounds

    def wait_while(self, follower: Follower, phase: Phase, clock: Clock) -> None:
        """Waits until the follower is in another phase. The caller holds the lock."""
        while follower.phase is phase:
            if not self._changed[follower].wait(self._look_again_s):
                self._rounds.expire(clock.monotonic_ms())


class RoundFollower:
    def __init__(
        self,
        common: CommonCut,
        database: Database,
        clock: Clock,
        follower: Follower,
        waiting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._common, self._database, self._clock, self._follower = common, database, clock, follower
        self._waiting = waiting
        self.waited_ms = 0

    def cut(self, read: Offsets, ends: Offsets) -> Offsets:
        self.waited_ms = 0
        with self._common.deciding() as rounds:
            rounds.arrive(self._follower, read, ends, self._clock.monotonic_ms())
            self._wait_while(Phase.WAITS)
            return self._follower.cut

    def _wait_while(self, phase: Phase) -> None:
        began_ms = self._clock.monotonic_ms()
        self._common.wait_while(self._follower, phase, self._clock)
        self.waited_ms += self._clock.monotonic_ms() - began_ms

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        try:
            with self._transaction() as connection:
                yield connection
        except PartTimedOut as error:
            with self._common.deciding() as rounds:
                rounds.held_up(self._follower, self._clock.monotonic_ms())
            raise LeftOut(str(error)) from error
        with self._common.deciding() as rounds:
            rounds.committed(self._follower, self._clock.monotonic_ms())

    def _transaction(self) -> AbstractContextManager[Connection]:
        follower = self._follower
        with self._common.deciding() as rounds:
            if follower.phase is Phase.ALONE:
                return self._database.begin()
            rounds.ready(follower, self._clock.monotonic_ms())
            with self._waiting():
                self._wait_while(Phase.READY)
            if follower.phase is not Phase.COMMITS:
                raise LeftOut("the round was given up, because the versions are stopped")
            together = follower.round
            if len(together.followers) == 1:
                return self._database.begin()
            if together.transaction is None:
                together.transaction = SharedTransaction(self._database, len(together.followers))
        assert isinstance(together.transaction, SharedTransaction)
        return together.transaction.part(together.followers.index(follower))

    def leave(self) -> None:
        with self._common.deciding() as rounds:
            rounds.leave(self._follower, self._clock.monotonic_ms())

    def interval_ms(self, own_ms: int) -> int:
        with self._common.deciding() as rounds:
            return rounds.interval_ms(self._follower, own_ms)
