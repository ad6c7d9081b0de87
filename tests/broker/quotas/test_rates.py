"""Rates on a clock that the tests move: against a slow model of Kafka's definition, and over any schedule."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas.rates import MAX_THROTTLE_MS, TokenBucket, WindowedAverage, WindowedRate, Windows

SECOND = 1000


class ModelRate:
    """Kafka's definition, word for word: keeps every sample, and looks at all of them each time."""

    def __init__(self, windows, limit):
        self.windows, self.limit = windows, limit
        self.samples = []

    def charge(self, value, now_ms):
        if not self.samples or now_ms - self.samples[-1]["begun"] >= self.windows.window_ms:
            self.samples.append({"begun": now_ms, "last": now_ms, "sum": 0})
        self.samples[-1]["sum"] += value
        self.samples[-1]["last"] = now_ms
        rate, counted_ms = self.rate(now_ms)
        return max(0, math.floor((rate - self.limit) / self.limit * counted_ms + 0.5))

    def rate(self, now_ms):
        samples, window_ms = self.windows
        counting = [each for each in self.samples if now_ms - each["last"] < samples * window_ms]
        elapsed_ms = now_ms - counting[0]["begun"] if counting else 0
        whole = elapsed_ms // window_ms
        if whole < samples - 1:
            elapsed_ms += (samples - 1 - whole) * window_ms
        counted_ms = max(1, elapsed_ms)
        return sum(each["sum"] for each in counting) * 1000 / counted_ms, counted_ms


windows = st.builds(Windows, st.integers(1, 12), st.sampled_from([1, 10, 1000, 3000]))


@given(
    windows,
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 100), st.integers(0, 50_000)), max_size=60),
)
def test_a_rate_is_that_of_kafkas_definition(windows, limit, schedule):
    rate, model = WindowedRate(windows, limit), ModelRate(windows, limit)
    now_ms = 0
    for tenths, percent, value in schedule:
        now_ms += tenths * windows.window_ms // 10 + percent * windows.window_ms // 100
        assert abs(rate.charge(value, now_ms) - model.charge(value, now_ms)) <= 1, "more than rounding"
        assert rate.per_second(now_ms) == pytest.approx(model.rate(now_ms)[0])
    for later_ms in (1, windows.window_ms, windows.samples * windows.window_ms):
        assert rate.per_second(now_ms + later_ms) == pytest.approx(model.rate(now_ms + later_ms)[0])


@given(
    windows.filter(lambda windows: windows.samples > 2),
    st.integers(1_000, 10_000_000),
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.floats(0.0, 2.0)), min_size=1, max_size=200),
)
def test_a_client_that_waits_never_has_more_than_the_limit(windows, limit, schedule):
    """Whatever a client sends and whenever: if it waits for as long as it is told to, no long time has more than the
    limit, but for what was free at the begin and the last request."""
    rate = WindowedRate(windows, limit)
    now_ms, sent, largest = 0, 0, 0
    for pause_ms, seconds_worth in schedule:
        value = int(limit * seconds_worth)
        largest = max(largest, value)
        sent += value
        now_ms += pause_ms + rate.charge(value, now_ms)
    free = limit * windows.seconds
    assert sent <= limit * now_ms / 1000 + free + 2 * largest + len(schedule) * limit / 1000


@given(
    st.integers(10_000, 100_000_000),
    st.lists(st.floats(0.001, 0.9), min_size=1, max_size=20),
    st.integers(0, 50),
)
def test_a_greedy_client_gets_the_limit(limit, seconds_worths, handling_ms):
    """A client that sends again as soon as it may gets its limit in the long run, and not less."""
    rate = WindowedRate(Windows(), limit)
    now_ms = sent = number = 0
    warm_ms, end_ms = 60 * SECOND, 360 * SECOND
    before = None
    while now_ms < end_ms:
        if before is None and now_ms >= warm_ms:
            before, begun_ms = sent, now_ms
        value = max(1, int(limit * seconds_worths[number % len(seconds_worths)]))
        number += 1
        # A request that takes longer than its share of the limit leaves the client below the limit.
        now_ms += min(handling_ms, value * 1000 // limit) + rate.charge(value, now_ms)
        now_ms += 1 if value * 1000 < limit else 0
        sent += value
    held = (sent - before) * 1000 / (now_ms - begun_ms)
    assert held <= limit * 1.05
    if min(seconds_worths) * 1000 > handling_ms + 2:
        assert held >= limit * 0.95


def test_what_is_taken_back_was_never_there():
    rate = WindowedRate(Windows(), 100)
    assert rate.charge(900, 0) == 0
    assert rate.charge(5_000, 10) > 0
    rate.add(-5_000, 10)
    assert rate.charge(100, 20) == 0
    assert rate.charge(1, 30) == 0, "1,001 in 10.03 seconds is 99.8 per second"
    assert rate.charge(10, 40) == 70, "1,011 at 100 per second take 10.11 seconds, and 10.04 count"


def test_a_new_limit_counts_at_once_and_what_was_sent_stays():
    rate = WindowedRate(Windows(), 1_000)
    assert rate.charge(10_000, 0) == 0
    rate.limit = 500
    assert rate.charge(0, 0) == 10 * SECOND
    rate.limit = 2_000
    assert rate.charge(0, 0) == 0


def test_everything_is_forgotten_after_all_windows():
    rate = WindowedRate(Windows(), 10)
    assert rate.charge(1_000, 0) == 90 * SECOND
    assert rate.charge(0, 11 * SECOND) == 0
    assert rate.total == 0
    assert rate.per_second(11 * SECOND) == 0


def test_a_limit_of_nothing_is_the_longest_time():
    assert WindowedRate(Windows(), 0).charge(1, 0) == MAX_THROTTLE_MS
    assert WindowedRate(Windows(), 1e-9).charge(1 << 40, 0) == MAX_THROTTLE_MS


def test_a_rate_takes_little_memory():
    rate = WindowedRate(Windows(), 1e9)
    for second in range(1000):
        rate.charge(5_000_000, second * SECOND)
    assert len(rate._past) <= 12 * 3


# -- token bucket


def test_a_full_bucket_allows_a_burst_and_then_the_rate():
    bucket = TokenBucket(Windows(samples=11), 2.0, now_ms=0)
    assert bucket.tokens(0) == 22
    bucket.take(22, 0)
    assert bucket.throttle_ms(0) == 0
    bucket.take(5, 0)
    assert bucket.throttle_ms(0) == 2_500
    assert bucket.throttle_ms(2_499) == 1
    assert bucket.throttle_ms(2_500) == 0
    assert bucket.tokens(1_000_000) == 22, "a bucket does not overflow"


def test_a_bucket_with_another_rate_fills_at_that_rate():
    bucket = TokenBucket(Windows(), 1.0, now_ms=0)
    bucket.take(31, 0)
    bucket.limit = 10.0
    assert bucket.throttle_ms(0) == 2_000
    assert bucket.tokens(60_000) == 110


@given(st.floats(0.1, 1_000), st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 500)), max_size=100))
def test_a_bucket_gives_no_more_than_comes(limit, schedule):
    """A strict quota: nothing is taken while tokens are missing."""
    bucket = TokenBucket(Windows(), limit, now_ms=0)
    now_ms = taken = largest = 0
    for pause_ms, count in schedule:
        now_ms += pause_ms
        if bucket.throttle_ms(now_ms) == 0:
            bucket.take(count, now_ms)
            taken += count
            largest = max(largest, count)
    assert taken <= limit * (11 + now_ms / 1000) + largest + 1


# -- average


def test_an_average_is_of_the_last_two_windows():
    average = WindowedAverage()
    assert average.average(0) == 0
    average.record(10, 0)
    average.record(30, 1_000)
    assert average.average(2_000) == 20
    average.record(80, 31_000)
    assert average.average(32_000) == 40
    assert average.average(61_500) == 80
    assert average.average(91_000) == 0
    average.record(7, 200_000)
    assert average.average(200_000) == 7
