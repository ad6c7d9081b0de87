"""Finds the version that ends Spark's Java process, and sets that version aside; the others go on.

All versions share one Java process, and a query that needs more memory than there is ends it for all. What is known
then is only which versions were at work. So after a death:

1. Each kind of work that was under way counts one death (``serving.java_deaths``, which the next process reads too).
2. The suspects, versions with a death, are tried one at a time: the first begins alone, the next one when the trial of
   the first is over. Other versions wait until all trials are over, a minute at most: if the Java process dies before,
   it is clear who did it.
3. A kind of work that succeeds has no deaths any more. So an innocent suspect is cleared by its first micro-batch.
4. Work with two deaths in a row sets its version aside: failed, also for the next ``headrace views run``, until a user
   asks to try it again.

A trial is over when the suspect is cleared, has nothing more to do, has failed otherwise, or after ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from headrace.pipeline.runner.retries import Key
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable
from headrace.pipeline.serving.java_crashes import Deaths, JavaDeaths
from headrace.runtime.clock import Clock

SET_ASIDE_AFTER = 2
ALONE_MS = 60_000
TRIAL_MS = 600_000


class Suspects:
    """One thread calls it."""

    def __init__(self, notes: JavaDeaths, clock: Clock) -> None:
        self._notes, self._clock = notes, clock
        self._deaths: dict[Key, dict[str, Deaths]] = notes.read()
        #: Versions whose row in the database is not what is known here, as the database was away.
        self._unwritten: set[Key] = set()
        self._on_trial: Key | None = None
        self._waiting: list[Key] = []
        self._trial_began_ms = self._alone_until_ms = 0
        self.begin_trials()

    # ------------------------------------------------------------------------------------------------------- deaths

    def blame(self, in_flight: Mapping[Key, Collection[str]], said: str) -> None:
        """Counts a death for each kind of work that was under way.

        :param said: how it came, in words.
        """
        for key, works in in_flight.items():
            known = self._deaths.setdefault(key, {}) if works else {}
            for work in works:
                known[work] = Deaths(known[work].count + 1 if work in known else 1, said)
            if works:
                self._unwritten.add(key)
        self.save()

    def clear(self, key: Key, works: Collection[str]) -> None:
        """These kinds of work have succeeded."""
        known = self._deaths.get(key)
        if known is None or known.keys().isdisjoint(works):
            return
        self._put(key, {work: deaths for work, deaths in known.items() if work not in works})

    def forgive(self, key: Key) -> None:
        """A user wants the version to be tried again."""
        if key in self._deaths:
            self._put(key, {})

    def forget_but(self, known: Collection[Key]) -> None:
        """Others were dropped, and their rows with them."""
        for key in [key for key in self._deaths if key not in known]:
            del self._deaths[key]
            self._unwritten.discard(key)

    def why_set_aside(self, key: Key) -> str | None:
        """How the last death came; None if the version may run."""
        return next((each.said for each in self._deaths.get(key, {}).values() if each.count >= SET_ASIDE_AFTER), None)

    def save(self) -> None:
        """Writes what the database does not have yet; if it is away, a later call does."""
        try:
            for key in list(self._unwritten):
                self._notes.write(key, self._deaths.get(key, {}))
                self._unwritten.discard(key)
        except (DatabaseUnreachable, DatabaseBusy):
            return

    def _put(self, key: Key, deaths: dict[str, Deaths]) -> None:
        self._deaths[key] = deaths
        if not deaths:
            del self._deaths[key]
        self._unwritten.add(key)
        self.save()

    # ------------------------------------------------------------------------------------------------------- trials

    def begin_trials(self) -> None:
        """A Java process begins: all suspects are tried in it."""
        self._waiting = sorted(key for key in self._deaths if self.why_set_aside(key) is None)
        self._on_trial = None
        self._alone_until_ms = self._clock.monotonic_ms() + ALONE_MS
        self._next_trial()

    def go_on(self, is_over: Callable[[Key], bool]) -> None:
        """Begins the next trial if the last one has ended.

        :param is_over: whether a suspect has nothing more to do.
        """
        if self._unwritten:
            self.save()
        if self._on_trial is None:
            return
        is_late = self._clock.monotonic_ms() - self._trial_began_ms >= TRIAL_MS
        if (
            self._on_trial not in self._deaths
            or self.why_set_aside(self._on_trial)
            or is_late
            or is_over(self._on_trial)
        ):
            self._next_trial()

    def has_to_wait(self, key: Key) -> bool:
        """Whether a version must not start now, because another one is on trial."""
        if self._on_trial is None or key == self._on_trial:
            return False
        return key in self._waiting or self._clock.monotonic_ms() < self._alone_until_ms

    def _next_trial(self) -> None:
        self._on_trial = self._waiting.pop(0) if self._waiting else None
        self._trial_began_ms = self._clock.monotonic_ms()
