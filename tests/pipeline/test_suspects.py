"""Who is blamed for the death of the Java process, who is tried, and who has to wait meanwhile."""

import pytest

from headrace.pipeline.runner.quarantine import ALONE_MS, TRIAL_MS, Suspects
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.errors import DatabaseUnreachable
from headrace.pipeline.serving.java_crashes import Deaths, JavaDeaths
from headrace.pipeline.version.work_in_flight import Work, WorkInFlight
from headrace.testing import ManualClock

A, B, OTHER = ("a", 1), ("b", 1), ("other", 1)


@pytest.fixture
def notes(database):
    Catalog(database)
    return JavaDeaths(database)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def suspects(notes, clock):
    return Suspects(notes, clock)


def dies(suspects, *keys, work=Work.BATCH):
    """The Java process, and another one begins."""
    suspects.blame({key: {work} for key in keys}, "out of heap memory")
    suspects.begin_trials()


def goes_on(suspects, *over):
    suspects.go_on(lambda key: key in over)


def test_without_a_death_nobody_waits(suspects):
    assert not any(suspects.has_to_wait(key) for key in (A, B, OTHER))
    suspects.clear(A, {Work.BATCH})
    goes_on(suspects)


def test_two_deaths_set_a_version_aside_also_for_the_next_process(suspects, notes, clock):
    dies(suspects, A)
    assert suspects.why_set_aside(A) is None
    again = Suspects(notes, clock)  # the whole command was killed and started again
    dies(again, A)
    assert again.why_set_aside(A) == "out of heap memory"
    assert Suspects(notes, clock).why_set_aside(A) == "out of heap memory"
    assert not again.has_to_wait(OTHER), "nobody is left to be tried"


def test_suspects_are_tried_one_at_a_time_and_others_wait_for_a_minute(suspects, clock):
    dies(suspects, A, B)
    assert [suspects.has_to_wait(key) for key in (A, B, OTHER)] == [False, True, True]
    clock.advance(ALONE_MS)
    assert [suspects.has_to_wait(key) for key in (A, B, OTHER)] == [False, True, False]
    suspects.clear(A, {Work.BATCH})
    goes_on(suspects)
    assert [suspects.has_to_wait(key) for key in (A, B, OTHER)] == [False, False, False]


def test_who_is_innocent_is_not_set_aside(suspects):
    dies(suspects, A, B)
    suspects.clear(A, {Work.START, Work.BATCH})
    goes_on(suspects)
    dies(suspects, A, B)  # B did it, and A happened to be at work again
    assert (suspects.why_set_aside(A), suspects.why_set_aside(B)) == (None, "out of heap memory")


def test_other_work_of_the_same_version_does_not_clear_it(suspects, notes):
    dies(suspects, A)
    suspects.clear(A, {Work.START, Work.SPEED})
    assert notes.read() == {A: {"batch": Deaths(1, "out of heap memory")}}
    dies(suspects, A, work=Work.SPEED)
    assert suspects.why_set_aside(A) is None, "each of them once"
    suspects.clear(A, {Work.BATCH, Work.SPEED})
    assert notes.read() == {}


@pytest.mark.parametrize("after_ms", [0, TRIAL_MS])
def test_a_trial_ends_when_there_is_nothing_to_do_or_after_a_while(suspects, clock, after_ms):
    dies(suspects, A, B)
    goes_on(suspects)
    assert suspects.has_to_wait(B)
    clock.advance(after_ms)
    goes_on(suspects, *([] if after_ms else [A]))
    assert not suspects.has_to_wait(B)


def test_a_user_may_want_it_tried_again(suspects, notes):
    dies(suspects, A)
    dies(suspects, A)
    suspects.forgive(A)
    assert (suspects.why_set_aside(A), notes.read()) == (None, {})


def test_a_dropped_version_is_forgotten(suspects):
    dies(suspects, A)
    dies(suspects, A)
    suspects.forget_but({OTHER})
    assert suspects.why_set_aside(A) is None


def test_a_death_is_not_forgotten_while_the_database_is_away(suspects, notes, monkeypatch):
    def away(*_):
        raise DatabaseUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(notes, "write", away)
        dies(suspects, A)
    assert notes.read() == {}
    goes_on(suspects)
    assert notes.read() == {A: {"batch": Deaths(1, "out of heap memory")}}


# ------------------------------------------------------------------------------------------------------ work in flight


def test_work_that_was_cut_off_counts_until_the_same_succeeds():
    work = WorkInFlight()
    with work.of(Work.SPEED):
        assert (work.suspects(), work.is_idle, work.wait_until_idle(0)) == ({Work.SPEED}, False, False)
    assert (work.suspects(), work.done()) == (frozenset(), {Work.SPEED})
    with pytest.raises(ConnectionRefusedError), work.of(Work.BATCH):
        raise ConnectionRefusedError
    assert (work.suspects(), work.is_idle, work.wait_until_idle(0)) == ({Work.BATCH}, True, True)
    with work.of(Work.BATCH):
        pass
    assert work.suspects() == frozenset()
