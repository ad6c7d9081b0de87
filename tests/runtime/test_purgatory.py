"""Delayed operations complete by an event or by their timeout, exactly once, and leave nothing behind."""

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.purgatory import DelayedOperation, Purgatory
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock


class Gate(DelayedOperation):
    """An operation that can be answered once it is open. It notes what happened to it."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.is_open and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory[str]:
    return Purgatory("test", timer)


def is_empty(purgatory: Purgatory[str], timer: Timer) -> bool:
    return (purgatory.watched, purgatory.delayed, len(timer), len(purgatory._watchers)) == (0, 0, 0, 0)


def test_what_can_be_answered_is_answered_at_once(purgatory, timer):
    gate = Gate(is_open=True)
    assert purgatory.try_complete_else_watch(gate, ["a"], 100)
    assert gate.events == ["complete"]
    assert is_empty(purgatory, timer)


def test_an_event_at_any_of_its_keys_completes_it(purgatory, timer):
    gate = Gate()
    assert not purgatory.try_complete_else_watch(gate, ["a", "b", "b"], 100)
    assert (purgatory.watched, purgatory.delayed) == (2, 1)
    assert purgatory.check_and_complete("a") == 0
    gate.is_open = True
    assert purgatory.check_and_complete("unknown") == 0
    assert purgatory.check_and_complete("b") == 1
    assert gate.events == ["complete"]
    assert is_empty(purgatory, timer)


def test_its_timeout_completes_it_and_then_says_so(purgatory, timer, clock):
    gate = Gate()
    purgatory.try_complete_else_watch(gate, ["a", "b"], 100)
    clock.advance(99)
    timer.advance()
    assert gate.events == []
    clock.advance(1)
    timer.advance()
    assert gate.events == ["complete", "expired"]
    gate.is_open = True
    assert purgatory.check_and_complete("a") == 0
    assert not gate.force_complete()
    assert is_empty(purgatory, timer)


def test_a_completed_one_does_not_expire(purgatory, timer, clock):
    gate = Gate()
    purgatory.try_complete_else_watch(gate, ["a"], 100)
    assert gate.force_complete()
    clock.advance(100)
    assert timer.advance() == 0
    assert gate.events == ["complete"]


def test_those_of_a_key_are_asked_in_order_of_arrival(purgatory):
    order: list[int] = []

    class Numbered(Gate):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def try_complete(self) -> bool:
            order.append(self.number)
            return False

    for number in range(5):
        purgatory.try_complete_else_watch(Numbered(number), ["a"], 100)
    order.clear()
    purgatory.check_and_complete("a")
    assert order == [0, 1, 2, 3, 4]


def test_one_that_fails_is_logged_and_the_others_are_still_asked(purgatory, timer, clock, caplog):
    class Broken(Gate):
        def try_complete(self) -> bool:
            if self.is_open:
                raise OSError("disk")
            return False

    broken, gate = Broken(), Gate()
    for operation in (broken, gate):
        purgatory.try_complete_else_watch(operation, ["a"], 100)
        operation.is_open = True
    assert purgatory.check_and_complete("a") == 1
    assert "disk" in caplog.text
    clock.advance(100)
    timer.advance()
    assert broken.events == ["complete", "expired"]


def test_completing_one_may_complete_another_of_the_same_key(purgatory, timer):
    second = Gate()

    class First(Gate):
        def on_complete(self) -> None:
            super().on_complete()
            second.force_complete()

    first = First()
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["a"], 100)
        operation.is_open = True
    assert purgatory.check_and_complete("a") == 1
    assert (first.events, second.events) == (["complete"], ["complete"])
    assert is_empty(purgatory, timer)


def test_a_completed_operation_is_freed_without_the_garbage_collector(purgatory):
    gate = Gate()
    freed = weakref.ref(gate)
    purgatory.try_complete_else_watch(gate, ["a", "b"], 100)
    gc.disable()
    try:
        gate.force_complete()
        del gate
        assert freed() is None
    finally:
        gc.enable()


def test_many_operations_leave_nothing_behind(purgatory, timer, clock):
    rounds, batch = 20, 10_000
    for number in range(rounds):
        gates = [Gate() for _ in range(batch)]
        for gate in gates:
            purgatory.try_complete_else_watch(gate, ["all"], 1_000)
        assert (purgatory.watched, purgatory.delayed) == (batch, batch)
        if number % 2:
            for gate in gates:
                gate.is_open = True
            assert purgatory.check_and_complete("all") == batch
        else:
            clock.advance(1_000)
            assert timer.advance() == batch
        assert is_empty(purgatory, timer)
        assert timer.next_due_ms() is None


@given(st.lists(st.tuples(st.sampled_from(["add", "open", "event", "pass"]), st.integers(0, 9)), max_size=60))
def test_whatever_happens_each_completes_once_and_the_sizes_agree(steps):
    clock = ManualClock()
    timer = Timer(clock)
    purgatory: Purgatory[int] = Purgatory("test", timer)
    gates: list[Gate] = []
    keys_of: dict[int, set[int]] = {}
    for step, value in steps:
        if step == "add":
            gates.append(Gate())
            keys_of[id(gates[-1])] = {value % 3, value % 4}
            purgatory.try_complete_else_watch(gates[-1], [value % 3, value % 4], value * 10)
        elif step == "open" and gates:
            gates[value % len(gates)].is_open = True
        elif step == "event":
            purgatory.check_and_complete(value % 4)
        elif step == "pass":
            clock.advance(value * 5)
            timer.advance()
        waiting = [gate for gate in gates if not gate.is_completed]
        assert purgatory.delayed == len(timer) == len(waiting)
        assert purgatory.watched == sum(len(keys_of[id(gate)]) for gate in waiting)
    clock.advance(1_000)
    timer.advance()
    assert all(gate.events.count("complete") == 1 for gate in gates)
    assert (purgatory.watched, purgatory.delayed, len(timer)) == (0, 0, 0)
