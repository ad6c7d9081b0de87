"""After a crash of the Java process: the version that is blamed, the version on trial, and the versions that wait."""

import pytest

from headrace.pipeline.runner.quarantine import ALONE_MS, QUIET_MS, TRIAL_MS, Quarantine
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.catalog_tables.java_crashes import Crashes, JavaCrashes
from headrace.pipeline.serving.errors import DatabaseUnreachable
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight
from headrace.testing import ManualClock

A, B, OTHER = ("a", 1), ("b", 1), ("other", 1)


@pytest.fixture
def stored(database):
    Catalog(database)
    return JavaCrashes(database)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def quarantine(stored, clock):
    return Quarantine(stored, clock)


def dies(quarantine, *keys, work=Work.BATCH):
    """The Java process dies, and another one starts."""
    quarantine.record_crash({key: {work} for key in keys}, "out of heap memory")
    quarantine.start_trials()


def goes_on(quarantine, *over, unfinished=frozenset({Work.BATCH})):
    """A round of the runner.

    :param over: versions that have nothing more to do.
    :param unfinished: the work of the version on trial; None if the version has not started.
    """
    quarantine.update_trials(lambda key: key in over, lambda _: unfinished)


def test_without_a_crash_no_version_waits(quarantine):
    assert not any(quarantine.must_wait(key) for key in (A, B, OTHER))
    quarantine.clear(A, {Work.BATCH})
    goes_on(quarantine)


def test_two_crashes_quarantine_a_version_also_for_the_next_process(quarantine, stored, clock):
    dies(quarantine, A)
    assert quarantine.reason_for(A) is None
    again = Quarantine(stored, clock)  # the whole command was killed and started again
    dies(again, A)
    assert again.reason_for(A) == "out of heap memory"
    assert Quarantine(stored, clock).reason_for(A) == "out of heap memory"
    assert not again.must_wait(OTHER), "no suspect is left"


def test_suspects_are_tried_one_at_a_time_and_others_wait_for_a_minute(quarantine, clock):
    dies(quarantine, A, B)
    assert [quarantine.must_wait(key) for key in (A, B, OTHER)] == [False, True, True]
    clock.advance(ALONE_MS)
    assert [quarantine.must_wait(key) for key in (A, B, OTHER)] == [False, True, False]
    quarantine.clear(A, {Work.BATCH})
    goes_on(quarantine)
    assert [quarantine.must_wait(key) for key in (A, B, OTHER)] == [False, False, False]


def test_an_innocent_version_is_not_quarantined(quarantine):
    dies(quarantine, A, B)
    quarantine.clear(A, {Work.START, Work.BATCH})
    goes_on(quarantine)
    dies(quarantine, A, B)  # B caused it, and A happened to work again
    assert (quarantine.reason_for(A), quarantine.reason_for(B)) == (None, "out of heap memory")


def test_other_work_of_the_same_version_does_not_clear_it(quarantine, stored):
    dies(quarantine, A)
    quarantine.clear(A, {Work.START, Work.SPEED})
    assert stored.read() == {A: {"batch": Crashes(1, "out of heap memory")}}
    dies(quarantine, A, work=Work.SPEED)
    assert quarantine.reason_for(A) is None, "each kind of work has crashed once"
    quarantine.clear(A, {Work.BATCH, Work.SPEED})
    assert stored.read() == {}


@pytest.mark.parametrize("after_ms", [0, TRIAL_MS])
def test_a_trial_ends_when_there_is_nothing_to_do_or_after_a_while(quarantine, clock, after_ms):
    dies(quarantine, A, B)
    goes_on(quarantine)
    assert quarantine.must_wait(B)
    clock.advance(after_ms)
    goes_on(quarantine, *([] if after_ms else [A]))
    assert not quarantine.must_wait(B)


@pytest.mark.parametrize("other", [frozenset(), frozenset({Work.SPEED})])
def test_a_trial_ends_when_the_crashed_work_does_not_begin_again(quarantine, clock, other):
    """The crash met a batch that was just committed; the next one is due in an hour."""
    dies(quarantine, A, B)
    for busy in (None, frozenset({Work.BATCH})):  # it starts slowly, then tries the batch again
        clock.advance(QUIET_MS * 2)
        goes_on(quarantine, unfinished=busy)
        assert quarantine.must_wait(B)
    clock.advance(QUIET_MS - 1)
    goes_on(quarantine, unfinished=other)
    assert quarantine.must_wait(B)
    clock.advance(1)
    goes_on(quarantine, unfinished=other)
    assert not quarantine.must_wait(B)


def test_a_user_may_ask_to_try_it_again(quarantine, stored):
    dies(quarantine, A)
    dies(quarantine, A)
    quarantine.release(A)
    assert (quarantine.reason_for(A), stored.read()) == (None, {})


def test_a_dropped_version_is_forgotten(quarantine):
    dies(quarantine, A)
    dies(quarantine, A)
    quarantine.keep_only({OTHER})
    assert quarantine.reason_for(A) is None


def test_a_crash_is_not_forgotten_while_the_database_is_unavailable(quarantine, stored, monkeypatch):
    def away(*_):
        raise DatabaseUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(stored, "write", away)
        dies(quarantine, A)
    assert stored.read() == {}
    goes_on(quarantine)
    assert stored.read() == {A: {"batch": Crashes(1, "out of heap memory")}}


# ------------------------------------------------------------------------------------------------------ work in flight


def test_work_that_was_interrupted_counts_until_the_same_succeeds():
    work = WorkInFlight()
    with work.of(Work.SPEED):
        assert (work.unfinished(), work.is_idle, work.wait_until_idle(0)) == ({Work.SPEED}, False, False)
    assert (work.unfinished(), work.done()) == (frozenset(), {Work.SPEED})
    with pytest.raises(ConnectionRefusedError), work.of(Work.BATCH):
        raise ConnectionRefusedError
    assert (work.unfinished(), work.is_idle, work.wait_until_idle(0)) == ({Work.BATCH}, True, True)
    with work.of(Work.BATCH):
        pass
    assert work.unfinished() == frozenset()
