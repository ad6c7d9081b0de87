"""The bytes that throttled replicas get, on a manual clock."""

from headrace.broker.quotas.rates import RateLimit, Windows
from headrace.testing import ManualClock

LIMIT = 1_000


def rate_at(clock: ManualClock) -> RateLimit:
    return RateLimit(clock, lambda: LIMIT, Windows(samples=11, window_ms=1_000))


def test_the_first_bytes_are_held_to_the_limit_too() -> None:
    clock = ManualClock()
    rate = rate_at(clock)
    assert not rate.is_exceeded
    rate.record(LIMIT)
    assert not rate.is_exceeded
    rate.record(2 * LIMIT)
    assert rate.is_exceeded
    clock.advance(2_999)
    assert rate.is_exceeded
    clock.advance(1)
    assert not rate.is_exceeded


def test_what_was_long_ago_is_forgotten() -> None:
    clock = ManualClock()
    rate = rate_at(clock)
    rate.record(100 * LIMIT)
    clock.advance(10_999)
    assert rate.is_exceeded
    clock.advance(1)
    assert not rate.is_exceeded


def test_a_steady_stream_gets_what_the_limit_says() -> None:
    clock = ManualClock()
    rate = rate_at(clock)
    sent = 0
    for _ in range(600):
        if not rate.is_exceeded:
            rate.record(500)
            sent += 500
        clock.advance(100)
    assert 60 * LIMIT <= sent <= 62 * LIMIT
