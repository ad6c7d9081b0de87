"""Threads that follow a log in rounds: a reader sees all of them at the same offset, at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from headrace.pipeline.common_cut.common_cut import CommonCut, LeftOut, SoloFollower
from headrace.runtime.clock import SystemClock

PATIENCE_MS = 300
TOPIC = "a"


class Project:
    """A log that is a number, and versions that count it."""

    def __init__(self, database) -> None:
        self.database, self.clock = database, SystemClock()
        self.common = CommonCut(PATIENCE_MS, start_patience_ms=2_000)
        self.end = 0
        self.versions: list[FakeVersion] = []
        with database.begin() as connection:
            connection.execute(text("CREATE TABLE progress (name TEXT PRIMARY KEY, at INTEGER NOT NULL)"))

    def version(self, name: str, computes: Callable[[int], object] = lambda cut: None) -> FakeVersion:
        self.versions.append(FakeVersion(self, name, computes))
        return self.versions[-1]

    def seen(self) -> dict[str, int]:
        with self.database.read() as connection:
            return dict(map(tuple, connection.execute(text("SELECT name, at FROM progress"))))

    @contextmanager
    def readers(self) -> Iterator[set[tuple[tuple[str, int], ...]]]:
        """All that a reader sees meanwhile."""
        found: set[tuple[tuple[str, int], ...]] = set()
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                found.add(tuple(sorted(self.seen().items())))

        reader = threading.Thread(target=look)
        reader.start()
        try:
            yield found
        finally:
            stop.set()
            reader.join()

    def grows(self, until: Callable[[], bool], what: str) -> None:
        """Records arrive until something is so."""
        deadline_s = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline_s, f"not within 20 s: {what}"
            self.end += 1
            time.sleep(0.002)

    def close(self) -> None:
        with self.common.paused(self.clock):
            for each in self.versions:
                each.stop.set()
            for each in self.versions:
                each.let_go.set()
                each.join()


class FakeVersion(threading.Thread):
    """
    :param computes: what it does with a micro-batch up to an offset. It may raise, or wait for ``let_go``.
    """

    def __init__(self, project: Project, name: str, computes: Callable[[int], object]) -> None:
        super().__init__(name=name, daemon=True)
        self.project, self.computes = project, computes
        self.stop, self.let_go, self.takes_part = threading.Event(), threading.Event(), threading.Event()
        self.spoils_commit = False
        self.waited_ms = 0
        self.failure: BaseException | None = None
        with project.database.begin() as connection:
            known = connection.execute(text("SELECT at FROM progress WHERE name = :name"), {"name": name}).scalar()
            if known is None:
                connection.execute(text("INSERT INTO progress VALUES (:name, 0)"), {"name": name})
        self.at = known or 0

    def run(self) -> None:
        common, database = self.project.common, self.project.database
        with common.member(database, self.project.clock, (self.name, 1), TOPIC.__eq__) as member:
            self.takes_part.set()
            while not self.stop.is_set():
                try:
                    self._step(member)
                except LeftOut:
                    member.leave()
                except Exception as error:  # noqa: BLE001  the test looks at it
                    member.leave()
                    self.failure = error
                    return
                self.stop.wait(0.005)

    def _step(self, member) -> None:
        cut = member.cut({TOPIC: {0: self.at}}, {TOPIC: {0: self.project.end}})[TOPIC][0]
        if cut == self.at:
            return
        self.computes(cut)
        with member.begin() as connection:
            connection.execute(
                text("UPDATE progress SET at = :at WHERE name = :name AND at = :was"),
                {"at": cut, "name": self.name, "was": self.at},
            )
            if self.spoils_commit:
                raise ValueError("cannot commit")
        self.at = cut
        self.waited_ms += member.waited_ms


@pytest.fixture
def project(database):
    made = Project(database)
    yield made
    made.close()


def start(*versions: FakeVersion) -> None:
    """Starts versions that were here before, as the runner does it: one after the other."""
    project = versions[0].project
    for each in versions:
        project.common.expect((each.name, 1), {TOPIC: {0: each.at}}, project.clock)
    for each in versions:
        each.start()
        assert each.takes_part.wait(20), each.name


def takes(seconds: float) -> None:
    """The work of a micro-batch."""
    threading.Event().wait(seconds)


def rises(version: FakeVersion, by: int = 20) -> Callable[[], bool]:
    wanted = version.at + by
    return lambda: version.at >= wanted


def test_readers_always_see_all_versions_at_the_same_offset(project):
    versions = [project.version(name, lambda cut: takes(0.003 * (cut % 3))) for name in ("one", "two", "three")]
    with project.readers() as seen:
        start(*versions)
        project.grows(rises(versions[0], 100), "they follow the log")
    assert len(seen) > 5
    assert all(len({at for _, at in each}) <= 1 for each in seen), seen


def test_after_a_stop_all_are_at_the_same_offset_and_go_on_so(project):
    names = ("one", "two", "three")
    with project.readers() as seen:
        for _ in range(3):
            versions = [project.version(name, lambda cut: takes(0.002)) for name in names]
            start(*versions)
            project.grows(rises(versions[0]), "they follow the log")
            project.close()
    assert len(seen) > 5
    assert all(len({at for _, at in each}) <= 1 for each in seen), seen


def test_a_version_that_catches_up_has_the_same_offset_before_it_may_serve(project):
    one, other = project.version("one"), project.version("other")
    start(one, other)
    project.grows(rises(one, 100), "they follow the log")
    new = project.version("new")
    new.start()
    project.grows(lambda: new.at > 0 and project.common.may_serve(("new", 1), project.clock), "it may serve")
    with project.readers() as seen:
        project.grows(rises(new, 50), "all go on")
    assert all(len({at for _, at in each}) <= 1 for each in seen), seen


def raises(cut: int) -> None:
    raise ValueError("bad record")


def test_the_time_for_which_a_version_waits_is_known_apart_from_its_work(project):
    quick, slow = project.version("quick"), project.version("slow", lambda cut: takes(0.05))
    start(quick, slow)
    project.grows(rises(slow, 30), "they follow the log")
    assert quick.waited_ms > 2 * slow.waited_ms


@pytest.mark.parametrize("how", ["raises", "hangs", "cannot commit"])
def test_a_bad_version_does_not_stop_the_others(project, how):
    one, other = project.version("one"), project.version("other")
    bad = project.version("bad")
    start(one, other, bad)
    project.grows(rises(bad, 10), "all go on")
    bad.spoils_commit = how == "cannot commit"
    if how != "cannot commit":
        bad.computes = raises if how == "raises" else lambda cut: bad.let_go.wait(20)
    stands_still_at = time.monotonic()
    project.grows(rises(one, 60), "the others go on")
    assert time.monotonic() - stands_still_at < 10
    assert how == "hangs" or isinstance(bad.failure, ValueError)
    with project.readers() as seen:
        project.grows(rises(one, 60), "the others go on")
    assert all(dict(each)["one"] == dict(each)["other"] for each in seen)
    assert project.seen()["bad"] < one.at
    if how == "hangs":
        bad.let_go.set()
        project.grows(rises(bad, 1), "it goes on by itself")


def test_if_the_database_fails_all_read_their_progress_again(project, monkeypatch):
    one, other = project.version("one"), project.version("other")
    start(one, other)
    project.grows(rises(one), "they follow the log")

    def begin():
        raise ConnectionError("the database is gone")

    with monkeypatch.context() as away:
        away.setattr(project.database, "begin", begin)
        project.grows(lambda: bool(one.failure and other.failure), "both fail")
    assert isinstance(one.failure, ConnectionError)
    assert isinstance(other.failure, ConnectionError)
    seen = project.seen()
    assert seen["one"] == seen["other"] == one.at == other.at


def test_a_version_alone_reads_as_far_as_the_log_goes(database):
    alone = SoloFollower(database)
    assert alone.cut({}, {TOPIC: {0: 10**9}}) == {TOPIC: {0: 10**9}}
    assert alone.interval_ms(200) == 200
    alone.leave()
    with alone.begin() as connection:
        connection.execute(text("CREATE TABLE own (one INTEGER)"))
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM own")).scalar() == 0
