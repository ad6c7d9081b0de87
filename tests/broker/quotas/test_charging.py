"""The time and the bytes of a request that count, without a broker; requests of brokers need no quota on time."""

from time import perf_counter_ns
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.broker.quotas.rates import WindowedRate, Windows
from headrace.broker.quotas.throttling import NS_PER_PERCENT, Throttling
from headrace.protocol.api import CONTROL_APIS, Api
from headrace.protocol.errors import ErrorCode
from headrace.runtime.clock import SystemClock
from headrace.runtime.timer import Timer
from headrace.security.principal import ANONYMOUS
from headrace.testing import ManualClock

DENIED = {"error_code": ErrorCode.cluster_authorization_failed}
DENIED_MARKERS = {"markers": [{"topics": [{"partitions": [DENIED]}]}]}


class FakeRequest(SimpleNamespace):
    def throttle(self, throttle_ms, by, now_ms):
        self.throttle_ms = throttle_ms


def request_of(api, connection, **fields):
    moments = {"received_at": 0, "running_since": 0, "parked_at": 1, "answered_at": 0, "busy_ns": 0, "thread_ns": 0}
    return FakeRequest(connection=connection, client_id="c", api=api, is_charged=False, throttle_ms=0,
                       throttled_by=None, is_from_follower=False, body=SimpleNamespace(acks=-1),
                       **{**moments, **fields})  # fmt: skip


def throttling_with(clock, **limits):
    quotas = ClientQuotas()
    quotas.replace(Entity(user=DEFAULT), limits)
    return Throttling(quotas, clock, Timer(clock), Windows())


def connection():
    return SimpleNamespace(principal=ANONYMOUS, limits=None)


def charged(api, reply, *, is_from_follower=False):
    """The throttle time of a request that took a second."""
    throttling = throttling_with(ManualClock(), request_percentage=1.0)
    request = request_of(api, connection(), busy_ns=10**9)
    request.is_from_follower = is_from_follower
    throttling.charge(request, reply)
    return request.throttle_ms, throttling.exempt_percentage(0)


@pytest.mark.parametrize("api", sorted({*CONTROL_APIS, Api.WRITE_TXN_MARKERS}))
def test_requests_of_brokers_are_exempt_unless_they_are_denied(api):
    throttle_ms, exempt = charged(api, {"error_code": ErrorCode.none})
    assert throttle_ms == 0
    assert exempt > 9
    denied = DENIED_MARKERS if api is Api.WRITE_TXN_MARKERS else DENIED
    assert charged(api, denied) == (1_000, 0)


def test_a_fetch_of_a_follower_is_exempt_and_that_of_a_consumer_is_not():
    throttle_ms, exempt = charged(Api.FETCH, {"responses": ()}, is_from_follower=True)
    assert throttle_ms == 0
    assert exempt > 9
    assert charged(Api.FETCH, {"responses": ()}) == (1_000, 0)


def test_others_are_not():
    assert charged(Api.METADATA, {"topics": ()}) == (1_000, 0)


def test_all_parts_of_the_time_count_once():
    throttling, client = throttling_with(ManualClock(), request_percentage=1e6), connection()
    throttling.charge(request_of(Api.METADATA, client), None)
    client.limits.network_ns, client.limits.receiving_since = 1, 1_000
    parts = {"received_at": 1_010, "running_since": 5_000, "answered_at": 5_100, "busy_ns": 1_000, "thread_ns": 10_000}
    throttling.charge(request_of(Api.PRODUCE, client, size_bytes=0, **parts), None)
    assert client.limits.request.rate.total == 11_111
    throttling.charge(request_of(Api.METADATA, client, received_at=9_999), None)
    assert client.limits.request.rate.total == 11_111, "the time of the network counts for one request"


def test_a_request_that_is_received_in_parts_counts_the_time_of_all_parts():
    throttling, client = throttling_with(ManualClock(), request_percentage=1e6), connection()
    throttling.charge(request_of(Api.METADATA, client), None)
    limits = client.limits
    limits.receiving_since = 1
    limits.received_part()
    first_part_ns = limits.network_ns
    assert first_part_ns > 0
    limits.received_part()
    assert limits.network_ns == first_part_ns, "nothing was received since"
    limits.receiving_since = 1_000
    throttling.charge(request_of(Api.METADATA, client, received_at=1_005), None)
    assert limits.request.rate.total == first_part_ns + 5


@pytest.mark.parametrize("is_charged", [True, False])
def test_time_that_no_quota_limits_is_not_kept_for_later(is_charged):
    throttling, client = throttling_with(ManualClock(), producer_byte_rate=1e6), connection()
    throttling.charge(request_of(Api.METADATA, client), None)
    client.limits.receiving_since = 1
    request = request_of(Api.METADATA, client)
    request.is_charged = is_charged
    throttling.charge(request, None)
    assert (client.limits.receiving_since, client.limits.network_ns) == (0, 0)


requests = st.tuples(
    st.sampled_from([Api.PRODUCE, Api.METADATA]),
    st.integers(0, 1_500),
    st.integers(0, 30_000),
    st.integers(0, 2 * 10**9),
)


@given(st.lists(requests, max_size=80))
def test_a_request_is_counted_as_a_rate_counts(schedule):
    """The broker does not call a rate for each request. The numbers are the same."""
    clock = ManualClock()
    throttling, client = throttling_with(clock, producer_byte_rate=1_000.0, request_percentage=10.0), connection()
    produced, worked = WindowedRate(Windows(), 1_000.0), WindowedRate(Windows(), 10.0 * NS_PER_PERCENT)
    produced.add(0, 0)  # the first request makes both rates
    worked.add(0, 0)
    throttling.charge(request_of(Api.METADATA, client), None)
    for api, pause_ms, size_bytes, used_ns in schedule:
        clock.advance(pause_ms)
        now_ms, times, wanted = clock.monotonic_ms(), [], []
        request = request_of(api, client, size_bytes=size_bytes, answered_at=used_ns)
        request.throttle = lambda throttle_ms, by, _, times=times: times.append((by.kind, throttle_ms))
        throttling.charge(request, None)
        if api is Api.PRODUCE:
            wanted.append(("Produce", produced.charge(size_bytes, now_ms)))
        wanted.append(("Request", min(1_000, worked.charge(used_ns, now_ms))))
        assert times == [(kind, throttle_ms) for kind, throttle_ms in wanted if throttle_ms]
        limits = client.limits
        assert limits.produce.per_second(now_ms) == produced.per_second(now_ms)
        assert (limits.produce.last_ms, limits.request.last_ms) == (produced.last_ms, now_ms)


def test_without_a_clock_of_a_test_the_moment_of_the_answer_is_the_time():
    clock, quotas = SystemClock(), ClientQuotas()
    quotas.replace(Entity(user=DEFAULT), {"producer_byte_rate": 10.0})
    throttling, client = Throttling(quotas, clock, Timer(clock), Windows()), connection()
    moment_ns = perf_counter_ns() + 3_600_000_000_000
    request = request_of(Api.PRODUCE, client, size_bytes=300, answered_at=moment_ns)
    throttling.charge(request, None)
    assert request.throttle_ms == 20_000
    assert client.limits.produce.last_ms == moment_ns // 1_000_000
    assert abs(clock.monotonic_ms() - perf_counter_ns() // 1_000_000) < 60_000, "the metrics use the same clock"
