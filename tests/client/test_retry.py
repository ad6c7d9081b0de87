"""Delays grow, stay within bounds, and are spread."""

from headrace.client.errors import BrokerError, ErrorCode, NotAuthorized, ProducerFenced, error_for, is_retriable
from headrace.client.retry import Backoff, Deadline
from headrace.testing import ManualClock


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(100, 1000, random=lambda: 0.5)
    assert [backoff.delay_ms(n) for n in (1, 2, 3, 4, 5, 500)] == [100, 200, 400, 800, 1000, 1000]


def test_delays_are_spread_by_a_fifth() -> None:
    assert round(Backoff(100, 1000, random=lambda: 0.0).delay_ms(1)) == 80
    assert round(Backoff(100, 1000, random=lambda: 1.0).delay_ms(1)) == 120
    assert Backoff(100, 1000, random=lambda: 1.0).delay_ms(9) == 1000


def test_a_first_delay_over_the_longest_is_the_longest() -> None:
    assert Backoff(5000, 1000, random=lambda: 0.5).delay_ms(1) == 1000


def test_a_deadline_counts_down_to_nothing() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 100)
    clock.advance(99)
    assert (deadline.left_ms(), deadline.has_passed()) == (1, False)
    clock.advance(5)
    assert (deadline.left_ms(), deadline.has_passed()) == (0, True)


def test_each_code_becomes_an_exception_that_keeps_it() -> None:
    for code in ErrorCode:
        if code is not ErrorCode.none:
            error = error_for(code, "asking")
            assert isinstance(error, BrokerError)
            assert error.code is code
            assert code.name in str(error)
    assert isinstance(error_for(ErrorCode.topic_authorization_failed), NotAuthorized)
    assert isinstance(error_for(ErrorCode.producer_fenced), ProducerFenced)
    assert is_retriable(ErrorCode.not_leader_or_follower)
    assert not is_retriable(ErrorCode.topic_authorization_failed)
