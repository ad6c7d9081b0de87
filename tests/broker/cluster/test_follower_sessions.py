"""How long a follower's fetch waits: one timer serves many requests of a session."""

from types import SimpleNamespace

import pytest

from headrace.broker.cluster.follower_sessions import FollowerSession
from headrace.runtime.timer import Timer
from headrace.testing.clock import ManualClock


class Waiter:
    """What a loop makes for who waits."""

    def __init__(self):
        self.is_set = False

    def done(self):
        return self.is_set

    def set_result(self, result):
        self.is_set = True


class Bench:
    def __init__(self):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        broker = SimpleNamespace(clock=self.clock, timer=self.timer, loop=SimpleNamespace(create_future=Waiter))
        self.session = FollowerSession(1, 2, None, broker)

    def fetch(self, wait_ms):
        """A request comes, and waits."""
        self.session.fetched_ms = self.clock.monotonic_ms()
        self.session.begin_wait(wait_ms)
        if not self.session.is_over:
            self.session.wait()

    def answer(self):
        self.session.waiter = None

    def ended_after(self, limit_ms=10_000):
        """How long the request that waits has to, from now on."""
        for passed_ms in range(limit_ms):
            if self.session.is_over:
                assert self.session.waiter is None or self.session.waiter.is_set
                return passed_ms
            self.clock.advance(1)
            self.timer.advance()
        raise AssertionError(f"it waits for more than {limit_ms} ms")


@pytest.fixture
def bench():
    return Bench()


def test_a_request_waits_as_long_as_it_says(bench):
    bench.fetch(500)
    assert bench.ended_after() == 500


def test_the_next_one_waits_as_long_from_its_own_time(bench):
    bench.fetch(500)
    for _ in range(7):
        bench.clock.advance(100)
        bench.timer.advance()
        bench.answer()
        bench.fetch(500)
        assert len(bench.timer) == 1
    assert bench.ended_after() == 500


def test_one_that_says_less_does_not_wait_for_the_timer_of_another(bench):
    bench.fetch(500)
    bench.answer()
    bench.fetch(20)
    assert bench.ended_after() == 20
    bench.answer()
    bench.fetch(0)
    assert bench.ended_after() == 0


def test_nothing_is_left_of_a_session_that_is_closed(bench):
    bench.fetch(500)
    bench.session.close()
    assert bench.session.is_over
    assert len(bench.timer) == 0


def test_a_timer_that_finds_nobody_waiting_is_gone(bench):
    bench.fetch(500)
    bench.answer()
    bench.clock.advance(600)
    bench.timer.advance()
    assert len(bench.timer) == 0
    bench.fetch(300)
    assert bench.ended_after() == 300
