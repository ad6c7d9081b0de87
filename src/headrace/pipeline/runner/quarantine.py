"""Finds the version that makes Spark's Java process die, and sets that version aside. Other versions go on.

All versions share one Java process. A query that needs more memory than there is ends the process for all of them. What
is known then is only which versions were working. So after a crash:

1. Each kind of work that was in progress counts one crash (``serving.catalog_tables.java_crashes``; the next process
   reads it too).
2. A version with a crash is a suspect. Suspects are tried one at a time: the first one starts alone, the next one when
   the trial of the first is over. All other versions wait until all trials are over, one minute at most. So if the Java
   process dies before that, the suspect on trial caused it.
3. When a kind of work succeeds, its crashes are deleted. So an innocent suspect is cleared by its first micro-batch.
4. A version whose work has crashed twice in a row is quarantined: it is failed, also for the next
   ``headrace views run``, until a user asks to try it again.

A trial is over when the suspect is cleared, has nothing more to do, has failed in another way, or after ten minutes. It
is also over when the suspect runs, but did not begin the work that crashed within ten seconds: a version repeats
interrupted work at once, but the next batch of a Lambda view may be due in an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from headrace.pipeline.serving.catalog import VersionKey
from headrace.pipeline.serving.catalog_tables.java_crashes import Crashes, JavaCrashes
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable
from headrace.runtime.clock import Clock

MAX_CRASHES = 2
ALONE_MS = 60_000
TRIAL_MS = 600_000
QUIET_MS = 10_000


class Quarantine:
    """One thread calls its methods."""

    def __init__(self, stored: JavaCrashes, clock: Clock) -> None:
        self._stored, self._clock = stored, clock
        self._crashes: dict[VersionKey, dict[str, Crashes]] = stored.read()
        #: Versions whose rows in the database are out of date, because the database was unavailable.
        self._unwritten: set[VersionKey] = set()
        self._on_trial: VersionKey | None = None
        self._waiting: list[VersionKey] = []
        self._trial_began_ms = self._quiet_since_ms = self._alone_until_ms = 0
        self.start_trials()

    # ------------------------------------------------------------------------------------------------------- crashes

    def record_crash(self, unfinished: Mapping[VersionKey, Collection[str]], reason: str) -> None:
        """Counts a crash for each kind of work that was in progress.

        :param reason: why the Java process ended, as text.
        """
        for key, works in unfinished.items():
            known = self._crashes.setdefault(key, {}) if works else {}
            for work in works:
                known[work] = Crashes(known[work].count + 1 if work in known else 1, reason)
            if works:
                self._unwritten.add(key)
        self.save()

    def clear(self, key: VersionKey, works: Collection[str]) -> None:
        """Deletes the crashes of these kinds of work, because they have succeeded."""
        known = self._crashes.get(key)
        if known is None or known.keys().isdisjoint(works):
            return
        self._put(key, {work: crashes for work, crashes in known.items() if work not in works})

    def release(self, key: VersionKey) -> None:
        """Deletes all crashes of the version, because a user wants it to be tried again."""
        if key in self._crashes:
            self._put(key, {})

    def keep_only(self, known: Collection[VersionKey]) -> None:
        """Forgets all other versions. They were dropped, and their rows with them."""
        for key in [key for key in self._crashes if key not in known]:
            del self._crashes[key]
            self._unwritten.discard(key)

    def reason_for(self, key: VersionKey) -> str | None:
        """Why the version is quarantined: the reason of its last crash. None if the version may run."""
        return next((each.reason for each in self._crashes.get(key, {}).values() if each.count >= MAX_CRASHES), None)

    def save(self) -> None:
        """Writes what the database does not have yet. If the database is unavailable, a later call does."""
        try:
            for key in list(self._unwritten):
                self._stored.write(key, self._crashes.get(key, {}))
                self._unwritten.discard(key)
        except (DatabaseUnreachable, DatabaseBusy):
            return

    def _put(self, key: VersionKey, crashes: dict[str, Crashes]) -> None:
        self._crashes[key] = crashes
        if not crashes:
            del self._crashes[key]
        self._unwritten.add(key)
        self.save()

    # ------------------------------------------------------------------------------------------------------- trials

    def start_trials(self) -> None:
        """Begins the trials of all suspects in a new Java process."""
        self._waiting = sorted(key for key in self._crashes if self.reason_for(key) is None)
        self._on_trial = None
        self._alone_until_ms = self._clock.monotonic_ms() + ALONE_MS
        self._next_trial()

    def update_trials(
        self, is_over: Callable[[VersionKey], bool], unfinished: Callable[[VersionKey], Collection[str] | None]
    ) -> None:
        """Begins the next trial if the current one is over.

        :param is_over: whether a suspect has nothing more to do.
        :param unfinished: the work that a suspect has begun and not ended; None if the suspect has not started.
        """
        if self._unwritten:
            self.save()
        suspect = self._on_trial
        if suspect is None:
            return
        crashes = self._crashes.get(suspect)
        if crashes is None or self.reason_for(suspect) or is_over(suspect):
            self._next_trial()
            return
        now_ms, works = self._clock.monotonic_ms(), unfinished(suspect)
        if works is None or not crashes.keys().isdisjoint(works):
            self._quiet_since_ms = now_ms
        if now_ms - self._quiet_since_ms >= QUIET_MS or now_ms - self._trial_began_ms >= TRIAL_MS:
            self._next_trial()

    def must_wait(self, key: VersionKey) -> bool:
        """Whether the version must not start now, because another one is on trial."""
        if self._on_trial is None or key == self._on_trial:
            return False
        return key in self._waiting or self._clock.monotonic_ms() < self._alone_until_ms

    def _next_trial(self) -> None:
        self._on_trial = self._waiting.pop(0) if self._waiting else None
        self._trial_began_ms = self._quiet_since_ms = self._clock.monotonic_ms()
