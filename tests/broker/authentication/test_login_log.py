"""The log of failed logins: one line for many, and never a line that a client has written."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from sasl_harness import log_in, sasl_broker

from headrace import Broker
from headrace.peer_log import PERIOD_MS
from headrace.protocol.api import Api
from headrace.security.sasl.plain import PlainClient
from headrace.testing import ManualClock, RawClient, pass_time


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Iterator[Broker]:
    with sasl_broker(clock=clock) as broker:
        caplog.set_level(logging.INFO)
        caplog.clear()
        yield broker


def fail(broker: Broker, user: str = "mallory") -> None:
    with RawClient(broker.bootstrap_servers) as client:
        log_in(client, PlainClient(user, "wrong"))


def test_a_flood_of_failed_logins_is_one_line_per_period_with_a_count(
    broker: Broker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        fail(broker, f"user-{number}")
    (line,) = caplog.messages
    assert line.startswith("failed authentication by PLAIN of 127.0.0.1:")
    pass_time(broker, clock, PERIOD_MS)
    caplog.clear()
    fail(broker)
    count, line = caplog.messages
    assert count.startswith("failed authentication by PLAIN of 127.0.0.1: ")
    assert count.endswith(": 49 more times in 10 s")
    assert line.startswith("failed authentication by PLAIN of 127.0.0.1:")


def test_a_mechanism_that_is_not_enabled_is_logged_as_one_line(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI\n12:00:00 INFO all is well")
    (line,) = caplog.messages
    assert line.startswith("failed authentication of 127.0.0.1:")
    assert line.endswith(r": the mechanism GSSAPI\n12:00:00 INFO all is well is not enabled")
    assert len(line.splitlines()) == 1


def test_requests_before_the_login_are_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        with RawClient(broker.bootstrap_servers) as client:
            client.send(Api.METADATA, 1, topics=[])
            assert client.is_closed_by_peer()
    (line,) = caplog.messages
    assert line.startswith("closing the connection of 127.0.0.1:")
