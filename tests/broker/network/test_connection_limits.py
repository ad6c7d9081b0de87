"""The limits of single listeners, of connections between brokers, and of clients that are not authenticated yet."""

import logging
from contextlib import ExitStack
from time import monotonic, sleep

import pytest
from broker_harness import BROKER, Client

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.raw_client import RawClient
from tls_harness import TlsRawClient, tls_broker, tls_config

SET, DELETE = 0, 1
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'


def two_listeners(**config):
    return Broker(
        config={
            "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
            "inter.broker.listener.name": "IN",
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


def address(broker, listener):
    host, port = broker.core.endpoints[listener]
    return f"{host}:{port}"


@pytest.fixture
def opened():
    """Opens clients that are closed at the end."""
    with ExitStack() as stack:
        yield lambda broker, listener, **options: stack.enter_context(RawClient(address(broker, listener), **options))


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


def test_a_listener_has_a_limit_of_its_own(opened):
    with two_listeners(listener_name_out_max_connections=1) as broker:
        outside, inside = opened(broker, "OUT"), [opened(broker, "IN") for _ in range(3)]
        assert is_answered(outside)
        waiting = opened(broker, "OUT")
        waiting.send(Api.API_VERSIONS, 0)
        assert all(is_answered(client) for client in inside)
        assert nothing_has_come(waiting)
        outside.close()
        assert waiting.receive().error_code == 0


def test_clients_that_wait_are_let_in_when_the_limit_is_raised(opened):
    with two_listeners(max_connections=3) as broker:
        admin = Client(address(broker, "OUT"))
        others = [opened(broker, "OUT") for _ in range(2)]
        assert all(is_answered(client) for client in others)
        waiting = opened(broker, "OUT")
        waiting.send(Api.API_VERSIONS, 0)
        assert is_answered(others[0])
        assert nothing_has_come(waiting)
        assert admin.alter(BROKER, "", ("max.connections", SET, "5")).error_code == 0
        assert waiting.receive().error_code == 0
        admin.close()


def test_a_broker_is_let_in_and_the_client_that_was_idle_longest_leaves(opened, caplog):
    with two_listeners(max_connections=2) as broker:
        idle, busy = opened(broker, "OUT"), opened(broker, "OUT")
        assert is_answered(idle)
        assert is_answered(busy)
        with caplog.at_level(logging.INFO, "headrace.broker"):
            peer = opened(broker, "IN")
            assert is_answered(peer)
            assert idle.is_closed_by_peer()
        assert is_answered(busy)
        assert [line for line in caplog.messages if line.endswith("there are more than max.connections")]


def test_connections_above_a_lower_limit_are_closed(opened):
    with two_listeners(max_connections=10) as broker:
        clients = [opened(broker, "OUT") for _ in range(6)]
        assert all(is_answered(client) for client in clients)
        admin = Client(address(broker, "OUT"))
        assert admin.alter(BROKER, "", ("max.connections", SET, "3")).error_code == 0
        assert [client.is_closed_by_peer() for client in clients[:4]] == [True] * 4
        assert is_answered(clients[5])
        admin.close()


def test_the_limit_of_a_listener_changes(opened):
    """max.connections with a listener's prefix"""
    name = "listener.name.out.max.connections"
    with two_listeners() as broker, Client(address(broker, "IN")) as admin:
        clients = [opened(broker, "OUT") for _ in range(2)]
        assert all(map(is_answered, clients))
        assert admin.alter(BROKER, "", (name, SET, "2")).error_code == 0
        waiting = opened(broker, "OUT")
        waiting.send(Api.API_VERSIONS, 0)
        assert is_answered(admin)
        assert nothing_has_come(waiting)
        assert admin.alter(BROKER, "0", (name, SET, "3")).error_code == 0
        assert waiting.receive().error_code == 0


def test_the_limits_per_address_change(opened):
    """max.connections.per.ip, max.connections.per.ip.overrides"""
    with two_listeners() as broker, Client(address(broker, "IN")) as admin:
        clients = [opened(broker, "OUT") for _ in range(2)]
        assert all(map(is_answered, clients))
        assert admin.alter(BROKER, "", ("max.connections.per.ip", SET, "3")).error_code == 0
        assert opened(broker, "OUT").is_closed_by_peer()
        assert all(map(is_answered, clients)), "open connections stay"
        assert admin.alter(BROKER, "", ("max.connections.per.ip.overrides", SET, "127.0.0.1:5")).error_code == 0
        clients += [opened(broker, "OUT") for _ in range(2)]
        assert all(map(is_answered, clients))
        assert opened(broker, "OUT").is_closed_by_peer()
        assert admin.alter(BROKER, "", ("max.connections.per.ip.overrides", DELETE, None)).error_code == 0
        assert admin.alter(BROKER, "", ("max.connections.per.ip", SET, "6")).error_code == 0
        assert is_answered(opened(broker, "OUT"))


def test_a_changed_override_may_name_a_host(opened):
    overrides = "max.connections.per.ip.overrides"
    with two_listeners() as broker, Client(address(broker, "IN")) as admin:
        assert is_answered(admin)
        for broker_name in ("", "0"):
            refused = admin.alter(BROKER, broker_name, (overrides, SET, "no.such.invalid:5"))
            assert refused.error_code == ErrorCode.invalid_request.value
            assert "'no.such.invalid' has no address" in refused.error_message
        assert admin.alter(BROKER, "", (overrides, SET, "localhost : 1, 192.0.2.1:9")).error_code == 0
        while not opened(broker, "OUT", timeout_s=0.05).is_closed_by_peer():  # the name is resolved on a thread
            assert is_answered(admin)
        assert admin.alter(BROKER, "", (overrides, SET, "127.0.0.1 : 1000")).error_code == 0
        assert is_answered(opened(broker, "OUT"))


# -- clients that are not authenticated


def test_a_handshake_that_does_not_end_is_closed(caplog):
    with (
        caplog.at_level(logging.INFO, "headrace.broker"),
        tls_broker(config={"headrace.login.timeout.ms": 1_000}) as broker,
        TlsRawClient(broker.bootstrap_servers) as established,
        RawClient(broker.bootstrap_servers) as silent,
        RawClient(broker.bootstrap_servers) as half_open,
    ):
        half_open.send_bytes(b"\x16\x03\x01\x02\x00\x01")
        assert silent.is_closed_by_peer()
        assert half_open.is_closed_by_peer()
        assert is_answered(established)
        closed = [line for line in caplog.messages if line.startswith("closing")]
        assert closed
        assert all("not authenticated after 1000 ms" in line for line in closed)


def test_a_client_that_never_logs_in_is_closed():
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "headrace.login.timeout.ms": 300,
    }
    with Broker(config=config) as broker:
        with RawClient(broker.bootstrap_servers) as silent:
            assert silent.is_closed_by_peer()
        with RawClient(broker.bootstrap_servers) as talkative:
            assert is_answered(talkative)
            assert talkative.is_closed_by_peer()
        with RawClient(broker.bootstrap_servers) as alice:
            log_in(alice)
            with RawClient(broker.bootstrap_servers) as later:
                assert later.is_closed_by_peer(), "alice has been connected for longer than that"
            assert metadata_comes(alice)


def test_a_login_over_tls_ends_the_timeout():
    config = tls_config(
        listeners="SASL_SSL://127.0.0.1:0",
        security_inter_broker_protocol="SASL_SSL",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_enabled_mechanisms="PLAIN",
    )
    config["listener.name.sasl_ssl.plain.sasl.jaas.config"] = JAAS
    with (
        Broker(config={**config, "headrace.login.timeout.ms": 1_000}) as broker,
        TlsRawClient(broker.bootstrap_servers) as alice,
        TlsRawClient(broker.bootstrap_servers) as silent,
    ):
        log_in(alice)
        assert {str(one.principal) for one in broker.core.connections} == {"User:alice", "User:ANONYMOUS"}
        assert silent.is_closed_by_peer()
        assert metadata_comes(alice)


def log_in(client):
    assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    assert client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret").error_code == 0


def metadata_comes(client):
    answer = client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    return len(answer.brokers) == 1


def test_of_many_half_open_clients_the_oldest_leave():
    with (
        tls_broker(config={"headrace.max.unauthenticated.connections": 5}) as broker,
        ExitStack() as stack,
        TlsRawClient(broker.bootstrap_servers) as early,
    ):
        assert is_answered(early)
        silent = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(8)]
        for client in silent[:3]:
            assert client.is_closed_by_peer()
        with TlsRawClient(broker.bootstrap_servers) as late:
            assert is_answered(late)
        assert is_answered(early)
        assert nothing_has_come(silent[-1])


def test_the_limits_on_clients_that_are_not_authenticated_change():
    """headrace.login.timeout.ms, headrace.max.unauthenticated.connections"""

    class TlsClient(Client, TlsRawClient):
        pass

    with tls_broker() as broker, ExitStack() as stack:
        admin = stack.enter_context(TlsClient(broker.bootstrap_servers))
        silent = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(4)]
        assert is_answered(admin)
        assert all(map(nothing_has_come, silent))
        assert admin.alter(BROKER, "", ("headrace.max.unauthenticated.connections", SET, "3")).error_code == 0
        silent.append(stack.enter_context(RawClient(broker.bootstrap_servers)))
        assert silent[0].is_closed_by_peer()
        assert silent[1].is_closed_by_peer()
        assert nothing_has_come(silent[2])
        assert admin.alter(BROKER, "", ("headrace.login.timeout.ms", SET, "300")).error_code == 0
        later = stack.enter_context(RawClient(broker.bootstrap_servers))
        assert later.is_closed_by_peer()
        assert is_answered(admin)


def test_the_buffer_of_a_large_request_is_freed_soon():
    with Broker() as broker, RawClient(broker.bootstrap_servers) as client:
        names = [{"topic_id": None, "name": "x" * 200 + str(number)} for number in range(11_000)]
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        client.ask(Api.METADATA, 12, topics=names, **fields)
        spares = broker.core.connections.spare_buffers
        deadline = monotonic() + 20
        while len(spares) and monotonic() < deadline:
            sleep(0.05)
        assert len(spares) == 0
