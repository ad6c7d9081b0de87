"""The wait of a follower's fetch: one timer serves many requests of a session."""

import asyncio
from types import SimpleNamespace

import pytest

from headrace.broker.replicas.follower_sessions import FollowerSession, FollowerSessions
from headrace.runtime.timer import Timer
from headrace.testing.clock import ManualClock


class FollowerSessionsHarness:
    def __init__(self):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        runtime = SimpleNamespace(clock=self.clock, timer=self.timer, loop=asyncio.get_running_loop())
        self.sessions = FollowerSessions(runtime, None, has_replica_selector=False)
        self.session = FollowerSession(2, None, self.sessions)

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
                self.sessions.serve_woken()
                assert self.session.waiter is None or self.session.waiter.done()
                return passed_ms
            self.clock.advance(1)
            self.timer.advance()
        raise AssertionError(f"it waits for more than {limit_ms} ms")


@pytest.fixture
async def harness():
    return FollowerSessionsHarness()


async def test_a_request_waits_as_long_as_it_says(harness):
    harness.fetch(500)
    assert harness.ended_after() == 500


async def test_the_next_one_waits_as_long_from_its_own_time(harness):
    harness.fetch(500)
    for _ in range(7):
        harness.clock.advance(100)
        harness.timer.advance()
        harness.answer()
        harness.fetch(500)
        assert len(harness.timer) == 1
    assert harness.ended_after() == 500


async def test_one_that_says_less_does_not_wait_for_the_timer_of_another(harness):
    harness.fetch(500)
    harness.answer()
    harness.fetch(20)
    assert harness.ended_after() == 20
    harness.answer()
    harness.fetch(0)
    assert harness.ended_after() == 0


async def test_nothing_is_left_of_a_session_that_is_closed(harness):
    harness.fetch(500)
    harness.session.close()
    assert harness.session.is_over
    assert len(harness.timer) == 0


async def test_a_timer_that_finds_nobody_waiting_is_gone(harness):
    harness.fetch(500)
    harness.answer()
    harness.clock.advance(600)
    harness.timer.advance()
    assert len(harness.timer) == 0
    harness.fetch(300)
    assert harness.ended_after() == 300


async def test_who_waits_is_woken_in_the_next_turn_or_before(harness):
    harness.fetch(500)
    harness.session.wake()
    assert not harness.session.waiter.done()
    await asyncio.sleep(0)
    assert harness.session.waiter.done()
    harness.answer()
    harness.fetch(500)
    harness.session.wake()
    harness.sessions.serve_woken()
    assert harness.session.waiter.done()
