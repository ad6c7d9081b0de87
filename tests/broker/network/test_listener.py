"""The limits on connections, on a live broker: allowed addresses, numbers, and idle times."""

import logging
import socket
from contextlib import ExitStack
from struct import pack

import pytest

from headrace import Broker
from headrace.broker.start_error import StartError
from headrace.protocol.api import Api
from headrace.testing.raw_client import RawClient


def is_answered(client):
    return client.ask(Api.API_VERSIONS, 0).error_code == 0


def nothing_has_come(client):
    client.socket.setblocking(False)
    try:
        client.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.socket.settimeout(10)
    return False


@pytest.fixture
def opened():
    """Opens clients that are closed at the end."""
    with ExitStack() as stack:
        yield lambda broker, **fields: stack.enter_context(RawClient(broker.bootstrap_servers, **fields))


def test_one_too_many_is_held_until_somebody_leaves(opened):
    with Broker(config={"max.connections": 2}) as broker:
        first, second = opened(broker), opened(broker)
        assert is_answered(first)
        assert is_answered(second)
        third = opened(broker)
        third.send(Api.API_VERSIONS, 0)
        for _ in range(5):  # the broker had many turns in which it could have taken the third
            assert is_answered(first)
            assert is_answered(second)
        assert nothing_has_come(third)
        first.close()
        assert third.receive().error_code == 0
        assert is_answered(second)


def test_many_that_wait_are_let_in_one_by_one(opened):
    with Broker(config={"max.connections": 1}) as broker:
        clients = [opened(broker) for _ in range(5)]
        for client in clients:
            client.send(Api.API_VERSIONS, 0)
        for client in clients:
            assert client.receive().error_code == 0
            client.close()


def test_one_too_many_of_an_address_is_closed(opened, caplog):
    with Broker(config={"max.connections.per.ip": 2}) as broker:
        first, second = opened(broker), opened(broker)
        assert is_answered(first)
        assert is_answered(second)
        with caplog.at_level(logging.INFO, "headrace.broker"):
            assert opened(broker).is_closed_by_peer()
        assert caplog.messages == [
            "refusing a connection of 127.0.0.1: it has max.connections.per.ip connections already"
        ]
        assert is_answered(first)
        first.close()
        while not _is_taken(opened(broker)):  # until the broker has seen that the first is gone
            pass
        assert is_answered(second)


def _is_taken(client):
    try:
        return is_answered(client)
    except Exception:  # noqa: BLE001  closed, in one of several ways
        return False


def test_an_address_may_have_a_limit_of_its_own(opened):
    overrides = "192.0.2.1:9,127.0.0.1:1"
    with Broker(config={"max.connections.per.ip.overrides": overrides}) as broker:
        assert is_answered(opened(broker))
        assert opened(broker).is_closed_by_peer()


@pytest.mark.parametrize(
    "overrides",
    [
        "192.0.2.1:9, 127.0.0.1:1",
        " 127.0.0.1:1 ",
        "127.0.0.1 :1",
        "127.0.0.1: 1",
        "::ffff:127.0.0.1:1",
        "localhost:1",
        "192.0.2.1:9,\tlocalhost : 1",
    ],
)
def test_every_form_of_an_override_is_in_force(opened, overrides):
    with Broker(config={"max.connections.per.ip.overrides": overrides}) as broker:
        assert is_answered(opened(broker))
        assert opened(broker).is_closed_by_peer()


def dual_stack_broker(**config):
    advertised = {"advertised.listeners": "PLAINTEXT://127.0.0.1:9"}
    return Broker(config={"listeners": "PLAINTEXT://[::]:0"} | advertised | config)


def opened_at(broker, host):
    return RawClient(f"{host}:{broker.core.endpoints['PLAINTEXT'][1]}")


def test_an_override_counts_on_a_listener_of_both_families():
    with dual_stack_broker(**{"max.connections.per.ip.overrides": "127.0.0.1:1,[::1]:2"}) as broker:
        with opened_at(broker, "127.0.0.1") as first, opened_at(broker, "127.0.0.1") as second:
            assert is_answered(first)
            assert second.is_closed_by_peer()
            assert {each.host for each in broker.core.connections} == {"127.0.0.1"}
        with opened_at(broker, "::1") as first, opened_at(broker, "::1") as second:
            assert is_answered(first)
            assert is_answered(second)
            with opened_at(broker, "::1") as third:
                assert third.is_closed_by_peer()


def test_the_rate_of_an_address_is_one_on_a_listener_of_both_families():
    with dual_stack_broker() as broker, opened_at(broker, "127.0.0.1") as admin:
        quota = {
            "entity": ({"entity_type": "ip", "entity_name": "127.0.0.1"},),
            "ops": ({"key": "connection_creation_rate", "value": 1000.0, "remove": False},),
        }
        answer = admin.ask(Api.ALTER_CLIENT_QUOTAS, 1, entries=(quota,), validate_only=False)
        assert [each.error_code for each in answer.entries] == [0]
        with opened_at(broker, "127.0.0.1") as client:
            assert is_answered(client)
        assert [rate.tags.client_id for rate in broker.core.enforcement.connections.ips] == ["127.0.0.1"]


def test_an_override_of_an_unknown_host_stops_the_start():
    with (
        pytest.raises(StartError, match=r"'no\.such\.invalid' has no address"),
        Broker(config={"max.connections.per.ip.overrides": "no.such.invalid:5"}),
    ):
        pass


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(opened, caplog):
    with Broker(config={"connections.max.idle.ms": 300}) as broker, caplog.at_level(logging.INFO, "headrace.broker"):
        idle, busy = opened(broker, timeout_s=0.02), opened(broker)
        assert is_answered(idle)
        while not idle.is_closed_by_peer():
            assert is_answered(busy)
        assert is_answered(busy)
        (line,) = caplog.messages
        assert "connections.max.idle.ms" in line


def test_a_connection_that_is_gone_leaves_nothing_behind(opened):
    """Else a client that connects for each request fills the memory, for as long as a connection may be idle."""
    with Broker() as broker:
        watch = opened(broker)
        assert is_answered(watch)
        before = len(broker.core.runtime.timer)
        for _ in range(50):
            with RawClient(broker.bootstrap_servers) as client:
                assert is_answered(client)
        while len(broker.core.connections) > 1:  # until the broker has seen that the last is gone
            assert is_answered(watch)
        assert len(broker.core.runtime.timer) == before


def test_a_request_may_be_as_large_as_the_limit_and_no_larger(opened, caplog):
    with Broker(config={"socket.request.max.bytes": 1000}) as broker:
        fits, too_large = opened(broker), opened(broker)
        # ApiVersions v0 has an empty body; what follows it is not looked at.
        request = pack(">hhih", Api.API_VERSIONS, 0, 1, -1)
        fits.send_frame(request + bytes(1000 - len(request)))
        assert len(fits.read_frame()) > 0
        with caplog.at_level(logging.INFO, "headrace.broker"):
            too_large.send_frame(request + bytes(1001 - len(request)))
            assert too_large.is_closed_by_peer()
        (line,) = caplog.messages
        assert line.endswith("a frame of 1001 bytes; at most 1000 are allowed")
        assert is_answered(fits)


def test_clients_that_connect_and_leave_are_forgotten(opened):
    with Broker() as broker:
        stays = opened(broker)
        for _ in range(200):
            socket.create_connection((broker.host, broker.port)).close()
        while len(broker.core.connections) > 1:
            assert is_answered(stays)
        assert is_answered(stays)


def test_buffers_may_be_set(opened):
    sizes = {"socket.send.buffer.bytes": 20_000, "socket.receive.buffer.bytes": 20_000}
    with Broker(config=sizes) as broker:
        client = opened(broker)
        assert is_answered(client)
        (connection,) = broker.core.connections
        accepted = connection._channel._socket
        # The kernel doubles the sizes.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 40_000
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_several_listeners_serve_the_same_broker(opened):
    names = "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"
    config = {
        "listeners": names,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    with Broker(config=config) as broker:
        addresses = {f"{host}:{port}" for host, port in broker.core.endpoints.values()}
        assert len(addresses) == 2
        for address in addresses:
            with RawClient(address) as client:
                answer = client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
                (node,) = answer.brokers
                assert f"{node.host}:{node.port}" == address, "each client is told the address of its own listener"


def test_a_stopped_broker_closes_its_connections_and_its_port(opened):
    with Broker() as broker:
        client = opened(broker)
        assert is_answered(client)
        address = broker.bootstrap_servers
    assert client.is_closed_by_peer()
    with pytest.raises(ConnectionRefusedError):
        RawClient(address)
