"""Listeners that are added, removed, moved and advertised elsewhere while the broker runs."""

import json
import socket
import ssl
import threading
from contextlib import closing
from datetime import timedelta
from time import monotonic, sleep

import pytest
from broker_harness import BROKER, Client, await_on_loop
from sasl_harness import PLAIN_JAAS, USERS, add_scram_users, log_in

from headrace import Broker
from headrace.broker.start_error import StartError
from headrace.coordination.paths import broker_path
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.sasl.plain import PlainClient
from headrace.security.sasl.scram_client import ScramClient
from headrace.testing.ports import free_port
from headrace.testing.raw_client import RawClient
from tls_harness import AUTHORITY, TlsRawClient, client_context, pem_of

SET, DELETE = 0, 1
MAP = "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL"
PLAINTEXT = "PLAINTEXT://127.0.0.1:0"
_PATIENCE_S = 10


@pytest.fixture
def broker(tmp_path):
    config = {"listener.security.protocol.map": MAP, "password.encoder.secret": "s"}
    with Broker(data=tmp_path / "data", config=config) as running:
        yield running


@pytest.fixture
def admin(broker):
    with Client(address(broker, "PLAINTEXT")) as client:
        yield client


def address(broker, listener):
    host, port = broker.core.endpoints[listener]
    return f"{host}:{port}"


def alter(admin, *changes):
    answer = admin.alter(BROKER, "0", *changes)
    assert answer.error_code == ErrorCode.none, answer.error_message


def refusal(admin, *changes):
    answer = admin.alter(BROKER, "0", *changes)
    assert answer.error_code == ErrorCode.invalid_request
    return answer.error_message


def listeners(*others):
    return ("listeners", SET, ",".join([PLAINTEXT, *others]))


def is_answered(client):
    return client.ask(Api.API_VERSIONS, 0).error_code == 0


def tls_settings(prefix, certificate=None):
    key, chain = pem_of(certificate or AUTHORITY.issue_cert("localhost", "127.0.0.1"))
    return [
        (f"{prefix}ssl.keystore.type", SET, "PEM"),
        (f"{prefix}ssl.keystore.key", SET, key),
        (f"{prefix}ssl.keystore.certificate.chain", SET, chain),
        (f"{prefix}ssl.truststore.type", SET, "PEM"),
        (f"{prefix}ssl.truststore.certificates", SET, AUTHORITY.cert_pem.bytes().decode()),
    ]


def until(condition):
    deadline = monotonic() + _PATIENCE_S
    while not condition():
        assert monotonic() < deadline, "it did not happen"
        sleep(0.01)


def registered(broker):
    """The endpoints in the znode of the broker."""

    async def read():
        data, _ = await broker.core.role.coordination.get(broker_path(0))
        return json.loads(data)["endpoints"]

    return await_on_loop(broker, read())


# -- added and removed


def test_a_listener_is_added_and_removed(broker, admin):
    """listeners"""
    with RawClient(address(broker, "PLAINTEXT")) as other:
        alter(admin, listeners("EXTRA://127.0.0.1:0"))
        where = address(broker, "EXTRA")
        with RawClient(where) as client:
            assert is_answered(client)
            until(lambda: f"EXTRA://{where}" in registered(broker))
            alter(admin, listeners())
            assert client.is_closed_by_peer()
        with pytest.raises(ConnectionRefusedError):
            RawClient(where)
        assert is_answered(other), "connections to other listeners stay"
    assert list(broker.core.endpoints) == ["PLAINTEXT"]
    until(lambda: registered(broker) == [f"PLAINTEXT://{address(broker, 'PLAINTEXT')}"])


def test_the_client_that_removes_its_own_listener_is_answered(broker, admin):
    alter(admin, listeners("EXTRA://127.0.0.1:0"))
    with Client(address(broker, "EXTRA")) as client:
        alter(client, ("listeners", DELETE, None))
        assert client.is_closed_by_peer()


def test_a_request_in_progress_is_answered_before_its_connection_is_closed(broker, admin):
    topic = admin.create_topic()
    alter(admin, listeners("EXTRA://127.0.0.1:0"))
    with Client(address(broker, "EXTRA")) as client:
        waiting = {"replica_id": -1, "max_wait": 300, "min_bytes": 1, "max_bytes": 100, "isolation_level": 0}
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
        client.send(Api.FETCH, 4, **waiting, topics=[{"topic": topic, "partitions": [partition]}])
        until(lambda: any(each.listener_name == "EXTRA" and each.is_busy for each in broker.core.connections))
        alter(admin, listeners())
        assert client.receive().responses[0].partitions[0].error_code == 0
        assert client.is_closed_by_peer()


def test_metadata_names_the_address_of_the_clients_listener(broker, admin):
    alter(admin, listeners("EXTRA://127.0.0.1:0"))
    for name in ("PLAINTEXT", "EXTRA"):
        with RawClient(address(broker, name)) as client:
            (node,) = client.ask(Api.METADATA, 1, topics=[]).brokers
            assert f"{node.host}:{node.port}" == address(broker, name)


def test_a_listener_is_opened_again_by_the_next_start(tmp_path):
    port = free_port()
    config = {"listener.security.protocol.map": MAP}
    with Broker(data=tmp_path, config=config) as broker, Client(broker.bootstrap_servers) as admin:
        alter(admin, listeners(f"EXTRA://127.0.0.1:{port}"))
    with Broker(data=tmp_path, config=config) as broker:
        with RawClient(f"127.0.0.1:{port}") as client:
            assert is_answered(client)
        assert f"EXTRA://127.0.0.1:{port}" in registered(broker)
        with Client(address(broker, "PLAINTEXT")) as admin:
            alter(admin, ("listeners", DELETE, None))
    with Broker(data=tmp_path, config=config) as broker:
        assert list(broker.core.endpoints) == ["PLAINTEXT"]


def test_a_start_says_that_the_port_of_a_stored_listener_is_taken(tmp_path):
    port = free_port()
    config = {"listener.security.protocol.map": MAP}
    with Broker(data=tmp_path, config=config) as broker, Client(broker.bootstrap_servers) as admin:
        alter(admin, listeners(f"EXTRA://127.0.0.1:{port}"))
    with closing(socket.create_server(("127.0.0.1", port))), pytest.raises(StartError, match=str(port)):
        Broker(data=tmp_path, config=config).start()


def test_a_name_gets_its_protocol_in_the_same_request(broker, admin):
    """listener.security.protocol.map"""
    assert "has no protocol for NEW" in refusal(admin, listeners("NEW://127.0.0.1:0"))
    alter(admin, listeners("NEW://127.0.0.1:0"), ("listener.security.protocol.map", SET, f"{MAP},NEW:PLAINTEXT"))
    with RawClient(address(broker, "NEW")) as client:
        assert is_answered(client)


# -- moved


def test_a_listener_moves_to_another_port_and_keeps_its_connections(broker, admin):
    earlier, port = address(broker, "PLAINTEXT"), free_port()
    alter(admin, ("listeners", SET, f"PLAINTEXT://127.0.0.1:{port}"))
    assert is_answered(admin)
    assert address(broker, "PLAINTEXT") == f"127.0.0.1:{port}"
    with RawClient(f"127.0.0.1:{port}") as client:
        assert is_answered(client)
    with pytest.raises(ConnectionRefusedError):
        RawClient(earlier)
    until(lambda: registered(broker) == [f"PLAINTEXT://127.0.0.1:{port}"])


def test_a_new_listener_may_have_the_port_of_one_that_is_removed(broker, admin):
    port = free_port()
    alter(admin, listeners(f"EXTRA://127.0.0.1:{port}"))
    changed = [("listener.security.protocol.map", SET, f"{MAP},OTHER:PLAINTEXT")]
    alter(admin, listeners(f"OTHER://127.0.0.1:{port}"), *changed)
    with RawClient(f"127.0.0.1:{port}") as client:
        assert is_answered(client)
    assert set(broker.core.endpoints) == {"PLAINTEXT", "OTHER"}


# -- advertised


def test_clients_are_sent_to_the_advertised_address(broker, admin):
    """advertised.listeners"""
    alter(admin, ("advertised.listeners", SET, "PLAINTEXT://elsewhere.example:9999"))
    (node,) = admin.ask(Api.METADATA, 1, topics=[]).brokers
    assert (node.host, node.port) == ("elsewhere.example", 9999)
    until(lambda: registered(broker) == ["PLAINTEXT://elsewhere.example:9999"])
    alter(admin, ("advertised.listeners", DELETE, None))
    (node,) = admin.ask(Api.METADATA, 1, topics=[]).brokers
    assert f"{node.host}:{node.port}" == address(broker, "PLAINTEXT")


# -- secured


def test_a_listener_with_tls_comes_with_its_stores_and_goes_with_its_threads(broker, admin):
    """ssl.client.auth, ssl.enabled.protocols, ssl.cipher.suites and the stores, with the listener's prefix"""
    prefix = "listener.name.tls."
    settings = [
        *tls_settings(prefix),
        (f"{prefix}ssl.client.auth", SET, "required"),
        (f"{prefix}ssl.enabled.protocols", SET, "TLSv1.2"),
        (f"{prefix}ssl.cipher.suites", SET, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,"
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (f"{prefix}ssl.principal.mapping.rules", SET, "RULE:^CN=(.*?),.*$/$1/,DEFAULT"),
    ]  # fmt: skip
    alter(admin, listeners("TLS://127.0.0.1:0"), *settings)
    where = address(broker, "TLS")
    context = client_context(AUTHORITY.issue_cert("client@example.org"))
    with TlsRawClient(where, context=context) as client:
        assert is_answered(client)
        assert client.socket.version() == "TLSv1.2"
        assert client.socket.cipher()[0].endswith("AES256-GCM-SHA384")
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)), TlsRawClient(where) as stranger:
            assert is_answered(stranger), "no certificate"
        assert any(each.name.startswith("headrace-network-TLS-") for each in threading.enumerate())
        alter(admin, listeners(), *((name, DELETE, None) for name, _, _ in settings))
        assert client.is_closed_by_peer()
    until(lambda: not any(each.name.startswith("headrace-network-TLS-") for each in threading.enumerate()))
    alter(admin, ("max.connections", SET, "100"))  # nothing of the removed listener has to say something


def test_settings_of_tls_without_a_prefix_count_for_listeners_that_are_added_later(broker, admin):
    alter(admin, ("ssl.client.auth", SET, "required"), ("ssl.enabled.protocols", SET, "TLSv1.2"))
    alter(admin, listeners("TLS://127.0.0.1:0"), *tls_settings("listener.name.tls."))
    context = client_context(AUTHORITY.issue_cert("client@example.org"))
    with TlsRawClient(address(broker, "TLS"), context=context) as client:
        assert is_answered(client)
        assert client.socket.version() == "TLSv1.2"
    assert "restart the broker: ssl.client.auth" in refusal(admin, ("ssl.client.auth", SET, "none"))


def test_the_first_listener_with_logins_is_added(broker, admin):
    """sasl.enabled.mechanisms, sasl.jaas.config"""
    add_scram_users(broker)
    alter(
        admin,
        listeners("LOGIN://127.0.0.1:0"),
        ("listener.name.login.sasl.enabled.mechanisms", SET, "PLAIN,SCRAM-SHA-256"),
        ("listener.name.login.plain.sasl.jaas.config", SET, PLAIN_JAAS),
        ("listener.name.login.connections.max.reauth.ms", SET, "3600000"),
    )
    for mechanism in (PlainClient, lambda name, password: ScramClient("SCRAM-SHA-256", name, password)):
        with RawClient(address(broker, "LOGIN")) as client:
            answer = log_in(client, mechanism("alice", USERS["alice"]))
            assert (answer.error_code, answer.session_lifetime) == (ErrorCode.none, timedelta(hours=1))
            assert client.ask(Api.METADATA, 1, topics=[]).brokers
    with RawClient(address(broker, "LOGIN")) as client:
        assert log_in(client, PlainClient("alice", "wrong")).error_code == ErrorCode.sasl_authentication_failed
    with RawClient(address(broker, "LOGIN")) as client:
        client.send(Api.METADATA, 1, topics=[])
        assert client.is_closed_by_peer(), "nobody gets in without a login"


def test_mechanisms_and_users_of_open_listeners_change_without_a_prefix(tmp_path):
    """sasl.enabled.mechanisms, sasl.jaas.config"""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": MAP,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": PLAIN_JAAS,
        "password.encoder.secret": "s",
        "connection.failed.authentication.delay.ms": 0,
    }
    with Broker(data=tmp_path, config=config) as broker, Client(address(broker, "PLAINTEXT")) as admin:
        add_scram_users(broker)

        def code(mechanism):
            with RawClient(address(broker, "LOGIN")) as client:
                return log_in(client, mechanism).error_code

        assert code(PlainClient("alice", USERS["alice"])) == ErrorCode.none
        carol = PLAIN_JAAS.replace("user_alice", "user_carol")
        alter(admin, ("sasl.jaas.config", SET, carol), ("sasl.enabled.mechanisms", SET, "PLAIN,SCRAM-SHA-256"))
        assert code(PlainClient("alice", USERS["alice"])) == ErrorCode.sasl_authentication_failed
        assert code(PlainClient("carol", USERS["alice"])) == ErrorCode.none
        assert code(ScramClient("SCRAM-SHA-256", "bob", USERS["bob"])) == ErrorCode.none


# -- refused


def test_what_cannot_be_opened_is_refused_and_nothing_changes(broker, admin):
    before = dict(broker.core.endpoints)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert "Address already in use" in refusal(admin, listeners(f"EXTRA://127.0.0.1:{port}"))
    assert "key store" in refusal(admin, listeners("TLS://127.0.0.1:0"))
    assert "sasl.enabled.mechanisms" in refusal(admin, listeners("LOGIN://127.0.0.1:0"))
    assert "Cannot listen" in refusal(admin, listeners("EXTRA://203.0.113.1:0"))
    assert "must be the name of a listener" in refusal(admin, ("listeners", SET, "EXTRA://127.0.0.1:0"))
    advertised = ("advertised.listeners", SET, "EXTRA://a:1")
    assert "must be the name of a listener" in refusal(admin, listeners("EXTRA://127.0.0.1:0"), advertised)
    assert broker.core.endpoints == before
    assert broker.core.config.dynamic_broker == {}


def test_the_listeners_of_the_whole_cluster_cannot_change(admin):
    for name in ("listeners", "advertised.listeners", "listener.security.protocol.map"):
        answer = admin.alter(BROKER, "", (name, SET, "x"))
        assert answer.error_code == ErrorCode.invalid_request
        assert "name a broker" in answer.error_message


def test_a_listener_that_stays_keeps_its_protocol_and_its_settings(broker, admin):
    prefix = "listener.name.tls."
    alter(admin, listeners("TLS://127.0.0.1:0"), *tls_settings(prefix))
    swapped = MAP.replace("TLS:SSL", "TLS:PLAINTEXT")
    assert "Security protocol cannot be updated" in refusal(admin, ("listener.security.protocol.map", SET, swapped))
    assert "restart the broker" in refusal(admin, (f"{prefix}ssl.client.auth", SET, "required"))
    with TlsRawClient(address(broker, "TLS")) as client:
        assert is_answered(client)


def test_a_read_only_setting_of_java_cannot_come_with_a_new_listener(admin):
    change = ("listener.name.tls.ssl.trustmanager.algorithm", SET, "PKIX")
    assert "Cannot update these configs dynamically" in refusal(admin, listeners("TLS://127.0.0.1:0"), change)
