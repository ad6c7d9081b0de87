"""The timer, on a clock that the test moves."""

import gc
import weakref
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.timer import Timer, TimerTask
from headrace.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic_ms=1_000)


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


def test_an_action_runs_at_its_time_and_not_before(timer, clock):
    ran: list[str] = []
    timer.schedule(10, lambda: ran.append("ten"))
    clock.advance(9)
    assert timer.advance() == 0
    clock.advance(1)
    assert timer.advance() == 1
    assert ran == ["ten"]
    assert len(timer) == 0


def test_the_worked_example_of_the_wheel_moves_down_two_wheels():
    clock = ManualClock(monotonic_ms=0)
    timer = Timer(clock)
    ran: list[int] = []
    timer.schedule(7, lambda: ran.append(7))
    timer.schedule(453, lambda: ran.append(453))
    stops: list[int] = []
    while (due_ms := timer.next_due_ms()) is not None:
        stops.append(due_ms)
        clock.advance(due_ms - clock.monotonic_ms())
        timer.advance()
    assert stops == [7, 400, 440, 453]
    assert ran == [7, 453]


@pytest.mark.parametrize("delay_ms", [0, -1, -1_000_000])
def test_without_a_delay_it_is_due_in_the_next_advance(timer, clock, delay_ms):
    ran: list[int] = []
    timer.schedule(delay_ms, lambda: ran.append(1))
    assert ran == []
    assert timer.next_due_ms() == clock.monotonic_ms()
    assert timer.advance() == 1
    assert ran == [1]


def test_what_an_action_schedules_without_delay_waits_for_the_next_advance(timer):
    ran: list[str] = []
    timer.schedule(0, lambda: timer.schedule(0, lambda: ran.append("second")) and None)
    assert timer.advance() == 1
    assert ran == []
    assert timer.advance() == 1
    assert ran == ["second"]


def test_a_cancelled_action_does_not_run_and_cancelling_again_is_harmless(timer, clock):
    task = timer.schedule(5, lambda: pytest.fail("was cancelled"))
    other = timer.schedule(5, lambda: None)
    task.cancel()
    task.cancel()
    assert len(timer) == 1
    clock.advance(5)
    assert timer.advance() == 1
    other.cancel()
    assert len(timer) == 0


def test_an_action_can_cancel_one_that_is_due_with_it(timer, clock):
    tasks: list[TimerTask] = []
    timer.schedule(5, lambda: tasks[0].cancel())
    tasks.append(timer.schedule(5, lambda: pytest.fail("was cancelled")))
    clock.advance(5)
    assert timer.advance() == 1
    assert len(timer) == 0


def test_an_action_that_raises_stops_no_other_and_is_logged(timer, clock, caplog):
    ran: list[int] = []

    def fail() -> None:
        raise OSError("disk")

    timer.schedule(1, fail)
    timer.schedule(1, lambda: ran.append(1))
    clock.advance(1)
    assert timer.advance() == 2
    assert ran == [1]
    assert "disk" in caplog.text


def test_an_interrupted_advance_leaves_the_rest_due(timer, clock):
    ran: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    timer.schedule(1, interrupt)
    timer.schedule(2, lambda: ran.append(2))
    clock.advance(2)
    with pytest.raises(KeyboardInterrupt):
        timer.advance()
    assert len(timer) == 1
    assert timer.advance() == 1
    assert ran == [2]


def test_nothing_is_due_while_nothing_is_pending(timer):
    assert timer.next_due_ms() is None
    task = timer.schedule(5_000, lambda: None)
    assert timer.next_due_ms() is not None
    task.cancel()
    assert timer.next_due_ms() is None


def test_the_driver_is_told_only_when_the_next_due_time_gets_earlier(clock):
    told: list[int | None] = []
    timer = Timer(clock, on_earlier=lambda: told.append(timer.next_due_ms()))
    timer.schedule(15, lambda: None)
    timer.schedule(16, lambda: None)
    timer.schedule(10, lambda: None)
    timer.schedule(10, lambda: None)
    timer.schedule(0, lambda: None)
    timer.schedule(0, lambda: None)
    assert told == [1_015, 1_010, 1_000]


def test_a_short_delay_after_a_long_quiet_time_needs_one_wake_up(timer, clock):
    timer.schedule(100_000_000, lambda: None)
    clock.advance(7_777_777)
    timer.schedule(5, lambda: None)
    assert timer.next_due_ms() == clock.monotonic_ms() + 5


def test_a_tick_of_more_than_a_millisecond_rounds_up():
    clock = ManualClock(monotonic_ms=1_003)
    timer = Timer(clock, tick_ms=10)
    ran: list[int] = []
    timer.schedule(4, lambda: ran.append(1))
    clock.advance(6)
    assert timer.advance() == 0
    clock.advance(1)
    assert timer.advance() == 1


@pytest.mark.parametrize("setting", [{"tick_ms": 0}, {"wheel_size": 1}])
def test_a_wheel_that_cannot_turn_is_refused(clock, setting):
    with pytest.raises(ValueError, match="at least 2 buckets of at least 1 ms"):
        Timer(clock, **setting)


class _Held:
    pass


def test_a_task_frees_what_it_holds_without_the_garbage_collector(timer, clock):
    held, run_held = _Held(), _Held()
    freed = [weakref.ref(held), weakref.ref(run_held)]
    cancelled = timer.schedule(10, lambda held=held: None)
    run = timer.schedule(10, lambda held=run_held: None)
    del held, run_held
    gc.disable()
    try:
        cancelled.cancel()
        clock.advance(10)
        timer.advance()
        assert [ref() for ref in freed] == [None, None]
        assert len(timer) == 0
        run.cancel()  # its handle is still held, and has no effect any more
    finally:
        gc.enable()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.one_of(st.integers(-2, 50), st.integers(0, 10_000), st.integers(0, 10**9))),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("pass"), st.one_of(st.integers(0, 30), st.integers(0, 10_000), st.integers(0, 10**9))),
        st.tuples(st.just("sleep until due"), st.just(0)),
    ),
    max_size=60,
)


class TimerModel:
    """A model of the timer, as a list of (tick, number): no task runs early, each runs by its tick, in order of
    ticks."""

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.clock = ManualClock(monotonic_ms=start_ms)
        self.timer = Timer(self.clock, tick_ms=tick_ms, wheel_size=wheel_size, on_earlier=self.arm)
        self.armed_ms: int | None = None
        self.due_ms: dict[int, int] = {}
        self.tasks: list[TimerTask] = []
        self.ran: list[int] = []

    def arm(self) -> None:
        self.armed_ms = self.timer.next_due_ms()

    def schedule(self, delay_ms: int) -> None:
        number = len(self.tasks)
        now_ms = self.clock.monotonic_ms()
        self.due_ms[number] = now_ms if delay_ms <= 0 else -(-(now_ms + delay_ms) // self.tick_ms) * self.tick_ms
        self.tasks.append(self.timer.schedule(delay_ms, self._action(number)))

    def _action(self, number: int) -> Callable[[], None]:
        return lambda: self.ran.append(number)

    def cancel(self, which: int) -> None:
        if self.tasks:
            number = which % len(self.tasks)
            self.tasks[number].cancel()
            self.due_ms.pop(number, None)

    def advance(self) -> None:
        self.ran.clear()
        count = self.timer.advance()
        self.arm()
        now_ms = self.clock.monotonic_ms()
        expected = {number for number, due_ms in self.due_ms.items() if due_ms <= now_ms}
        assert set(self.ran) == expected
        assert count == len(self.ran) == len(expected)
        ticks = [self.due_ms[number] for number in self.ran]
        assert ticks == sorted(ticks)
        for number in expected:
            del self.due_ms[number]

    def check(self) -> None:
        assert len(self.timer) == len(self.due_ms)
        if self.due_ms:
            earliest_ms = min(self.due_ms.values())
            due_ms = self.timer.next_due_ms()
            assert due_ms is not None
            assert due_ms <= earliest_ms
            assert self.armed_ms is not None
            assert self.armed_ms <= earliest_ms, "the driver would sleep too long"
        else:
            assert self.timer.next_due_ms() is None


@given(STEPS, st.sampled_from([1, 7, 100]), st.sampled_from([2, 3, 20]), st.integers(0, 10**12))
def test_it_does_what_a_sorted_list_does(steps, tick_ms, wheel_size, start_ms):
    model = TimerModel(tick_ms, wheel_size, start_ms)
    for step, value in steps:
        if step == "schedule":
            model.schedule(value)
        elif step == "cancel":
            model.cancel(value)
        elif step == "pass":
            model.clock.advance(value)
            model.advance()
        elif (due_ms := model.timer.next_due_ms()) is not None:
            model.clock.advance(max(0, due_ms - model.clock.monotonic_ms()))
            model.advance()
        model.check()
    while (due_ms := model.timer.next_due_ms()) is not None:
        model.clock.advance(max(0, due_ms - model.clock.monotonic_ms()))
        model.advance()
    model.check()
