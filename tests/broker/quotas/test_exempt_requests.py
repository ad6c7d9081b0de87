"""Requests of other brokers, which are exempt from quotas on time."""

from time import perf_counter_ns
from types import SimpleNamespace

import pytest

from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.broker.quotas.rates import Windows
from headrace.broker.quotas.throttling import Throttling
from headrace.protocol.api import CONTROL_APIS, Api
from headrace.protocol.errors import ErrorCode
from headrace.runtime.timer import Timer
from headrace.security.principal import ANONYMOUS
from headrace.testing import ManualClock

DENIED = {"error_code": ErrorCode.cluster_authorization_failed}
DENIED_MARKERS = {"markers": [{"topics": [{"partitions": [DENIED]}]}]}


class FakeRequest(SimpleNamespace):
    def throttle(self, throttle_ms, by, now_ms):
        self.throttle_ms = throttle_ms


def charged(api, reply):
    """The throttle time of a request that took a second."""
    clock, quotas = ManualClock(), ClientQuotas()
    quotas.replace(Entity(user=DEFAULT), {"request_percentage": 1.0})
    connection = SimpleNamespace(principal=ANONYMOUS, limits=None)
    request = FakeRequest(connection=connection, client_id="c", api=api, is_charged=False, is_login=False,
                          throttle_ms=0, throttled_by=None, is_from_follower=False, busy_ns=10**9, thread_ns=0,
                          running_since=perf_counter_ns())  # fmt: skip
    throttling = Throttling(quotas, clock, Timer(clock), Windows())
    throttling.charge(request, reply)
    return request.throttle_ms, throttling.exempt_percentage(0)


@pytest.mark.parametrize("api", sorted({*CONTROL_APIS, Api.WRITE_TXN_MARKERS}))
def test_requests_of_brokers_are_exempt_unless_they_are_denied(api):
    throttle_ms, exempt = charged(api, {"error_code": ErrorCode.none})
    assert throttle_ms == 0
    assert exempt > 9
    denied = DENIED_MARKERS if api is Api.WRITE_TXN_MARKERS else DENIED
    assert charged(api, denied) == (1_000, 0)


def test_others_are_not():
    assert charged(Api.METADATA, {"topics": ()}) == (1_000, 0)
