"""Limits on connections per second (KIP-612), on a broker whose clock the tests move."""

import socket
from contextlib import ExitStack, suppress

import pytest
from broker_harness import BROKER, Client, on_loop
from quota_harness import has_answer, manual_broker, set_quota

from headrace import Broker
from headrace.broker.quotas.entities import DEFAULT, Entity
from headrace.protocol.api import Api
from headrace.testing import ManualClock, pass_time
from headrace.testing.raw_client import RawClient

SET, DELETE = 0, 1
RATE = "max.connection.creation.rate"


@pytest.fixture
def opened():
    """Opens clients that are closed at the end."""
    with ExitStack() as stack:
        yield lambda address, **options: stack.enter_context(RawClient(address, **options))


def asks(client):
    client.send(Api.API_VERSIONS, 0)
    return client


def is_answered(client):
    return client.receive().error_code == 0


def until_accepted(broker, count):
    """Waits until the broker has accepted ``count`` connections, or does not accept more."""
    for _ in range(1000):
        if on_loop(broker, lambda: len(broker.core.connections)) >= count:
            return
    pytest.fail(f"there are no {count} connections")


def test_new_connections_wait_and_open_ones_do_not(opened):
    with manual_broker(max_connection_creation_rate=2) as manual:
        address = manual.broker.bootstrap_servers
        # 20 connections are free: the windows count ten seconds from the begin.
        clients = [opened(address) for _ in range(20)]
        assert all(is_answered(asks(client)) for client in clients)
        waiting = asks(opened(address))
        behind = asks(opened(address))
        assert is_answered(asks(clients[0]))
        assert not has_answer(waiting)
        manual.wait(499)
        assert is_answered(asks(clients[0]))
        assert not has_answer(waiting)
        manual.wait(1)
        assert is_answered(waiting)
        assert not has_answer(behind)
        manual.wait(500)
        assert is_answered(behind)


def test_the_rate_changes_at_run_time(opened):
    with manual_broker() as manual, manual.client() as admin:
        address = manual.broker.bootstrap_servers
        assert admin.alter(BROKER, "", (RATE, SET, "1")).error_code == 0
        clients = [opened(address) for _ in range(9)]
        assert all(is_answered(asks(client)) for client in clients)
        waiting = asks(opened(address))
        assert is_answered(asks(clients[0]))
        assert not has_answer(waiting)
        assert admin.alter(BROKER, "", (RATE, DELETE, None)).error_code == 0
        manual.wait(1_000)
        assert is_answered(waiting)
        assert all(is_answered(asks(opened(address))) for _ in range(40))


def two_listeners(clock, **config):
    return Broker(
        clock=clock,
        config={
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            **{name.replace("_", "."): value for name, value in config.items()},
        },
    )


def address_of(broker, listener):
    host, port = broker.core.endpoints[listener]
    return f"{host}:{port}"


def test_a_listener_has_a_rate_of_its_own(opened):
    clock = ManualClock()
    with two_listeners(clock, listener_name_out_max_connection_creation_rate=1) as broker:
        outside = [opened(address_of(broker, "OUT")) for _ in range(10)]
        assert all(is_answered(asks(client)) for client in outside)
        waiting = asks(opened(address_of(broker, "OUT")))
        assert all(is_answered(asks(opened(address_of(broker, "IN")))) for _ in range(30))
        assert not has_answer(waiting)
        pass_time(broker, clock, 1_000)
        assert is_answered(waiting)


def test_the_rate_of_a_listener_changes_at_run_time(opened):
    clock = ManualClock()
    with two_listeners(clock) as broker, Client(address_of(broker, "IN")) as admin:
        name = f"listener.name.out.{RATE}"
        assert admin.alter(BROKER, "0", (name, SET, "1")).error_code == 0
        assert all(is_answered(asks(opened(address_of(broker, "OUT")))) for _ in range(10))
        waiting = asks(opened(address_of(broker, "OUT")))
        assert is_answered(asks(opened(address_of(broker, "IN"))))
        assert not has_answer(waiting)


def test_connections_of_brokers_do_not_count_for_the_broker(opened):
    clock = ManualClock()
    with two_listeners(
        clock, max_connection_creation_rate=1, listener_name_in_max_connection_creation_rate=100
    ) as broker:
        assert all(is_answered(asks(opened(address_of(broker, "IN")))) for _ in range(30))
        assert all(is_answered(asks(opened(address_of(broker, "OUT")))) for _ in range(10))
        waiting = asks(opened(address_of(broker, "OUT")))
        assert is_answered(asks(opened(address_of(broker, "IN"))))
        assert not has_answer(waiting)


@pytest.mark.parametrize("entity", [Entity(ip="127.0.0.1"), Entity(ip=DEFAULT)], ids=str)
def test_a_connection_of_an_address_with_too_many_is_not_served(opened, entity):
    with manual_broker() as manual:
        address = manual.broker.bootstrap_servers
        set_quota(manual.broker, entity, connection_creation_rate=1)
        clients = [opened(address) for _ in range(10)]
        assert all(is_answered(asks(client)) for client in clients)
        refused = asks(opened(address))
        assert is_answered(asks(clients[0]))
        assert not has_answer(refused)
        manual.wait(1_000)
        assert refused.is_closed_by_peer()
        manual.wait(10_000)
        assert all(is_answered(asks(opened(address))) for _ in range(10)), "the refused connection does not count"
        set_quota(manual.broker, entity)
        assert all(is_answered(asks(opened(address))) for _ in range(40))


def test_the_quota_of_another_address_does_not_count(opened):
    with manual_broker() as manual:
        set_quota(manual.broker, Entity(ip="127.0.0.9"), connection_creation_rate=1)
        assert all(is_answered(asks(opened(manual.broker.bootstrap_servers))) for _ in range(40))


def test_a_refused_connection_does_not_count_for_its_listener(opened):
    with manual_broker() as manual:
        set_quota(manual.broker, Entity(ip=DEFAULT), connection_creation_rate=1)
        clients = [opened(manual.broker.bootstrap_servers) for _ in range(30)]
        assert is_answered(asks(clients[0]))
        until_accepted(manual.broker, 10)
        rates = manual.broker.core.enforcement.connections
        assert on_loop(manual.broker, lambda: rates.of_listener("PLAINTEXT").rate.total) == 10
        assert on_loop(manual.broker, lambda: rates.broker.total) == 10


def test_a_broker_stops_with_connections_that_wait():
    with manual_broker(max_connection_creation_rate=1) as manual:
        set_quota(manual.broker, Entity(ip=DEFAULT), connection_creation_rate=1)
        host, port = manual.broker.bootstrap_servers.split(":")
        sockets = [socket.create_connection((host, int(port))) for _ in range(12)]
    for each in sockets:
        each.settimeout(10)
        with each, suppress(ConnectionResetError):
            assert each.recv(1) == b""
