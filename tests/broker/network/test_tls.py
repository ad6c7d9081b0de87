"""Listeners with TLS, on a live broker: handshakes, requests of all sizes, ends of connections, network threads."""

import logging
import socket
import ssl
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from time import monotonic, sleep

import pytest
import trustme
from broker_harness import BROKER, Client, batch

from headrace import Broker
from headrace.broker.start_error import StartError
from headrace.peer_log import PeerLog
from headrace.properties import ConfigError
from headrace.protocol.api import Api
from headrace.testing.raw_client import ClosedByPeer, RawClient, decode_response
from tls_harness import AUTHORITY, InPieces, TlsRawClient, client_context, tls_broker

SET = 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with tls_broker(data=tmp_path_factory.mktemp("data"), config={"connections.max.idle.ms": 60_000}) as broker:
        yield broker


@pytest.fixture
def opened(broker):
    """Opens clients that are closed at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(TlsRawClient(broker.bootstrap_servers, **options))


@pytest.fixture(autouse=True)
def fresh_log(broker):
    """The log of a broker does not repeat the lines of an earlier test."""
    broker.core.connections.peer_log = PeerLog(
        logging.getLogger("headrace.broker.network"), broker.core.clock.monotonic_ms
    )


def is_answered(client):
    return client.ask(Api.API_VERSIONS, 0).error_code == 0


def create(client, topic):
    answer = client.ask(
        Api.METADATA, 12, topics=[{"topic_id": None, "name": topic}],
        allow_auto_topic_creation=True, include_topic_authorized_operations=False,
    )  # fmt: skip
    assert answer.topics[0].error_code == 0


def produce_fields(topic, records, acks=-1):
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": 5000, "topic_data": data}


def produce(client, topic, records):
    answer = client.ask(Api.PRODUCE, 9, **produce_fields(topic, records))
    return answer.responses[0].partition_responses[0].base_offset


def fetch_fields(topic, max_bytes=50_000_000, offset=0, **fields):
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
    return {
        "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": max_bytes, "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": partitions}], **fields,
    }  # fmt: skip


def fetch(client, topic, **fields):
    return client.ask(Api.FETCH, 4, **fetch_fields(topic, **fields)).responses[0].partitions[0].records or b""


# -- handshakes


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls(opened, version):
    client = opened(context=client_context(minimum_version=version, maximum_version=version))
    assert is_answered(client)
    assert client.socket.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[version]


def test_an_older_version_is_refused(broker):
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context = client_context(minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion.TLSv1_1)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        TlsRawClient(broker.bootstrap_servers, context=context)


def test_a_client_that_does_not_trust_the_broker_is_one_line(broker, opened, caplog):
    witness = opened()
    with caplog.at_level(logging.INFO, "headrace.broker"):
        with pytest.raises(ssl.SSLCertVerificationError):
            TlsRawClient(broker.bootstrap_servers, context=client_context(authority=trustme.CA()))
        wait_for(lambda: caplog.messages, witness)
    (line,) = caplog.messages
    assert "the TLS handshake failed: tlsv1 alert unknown ca" in line


def test_plain_text_at_a_tls_port_closes_with_one_line(broker, opened, caplog):
    witness = opened()
    with caplog.at_level(logging.INFO, "headrace.broker"), RawClient(broker.bootstrap_servers) as client:
        client.send(Api.API_VERSIONS, 0)
        with pytest.raises((ClosedByPeer, AssertionError)):
            client.receive()
        wait_for(lambda: caplog.messages, witness)
    (line,) = caplog.messages
    assert "the TLS handshake failed" in line


def test_tls_at_a_plain_port_closes(caplog):
    with Broker() as broker, caplog.at_level(logging.INFO, "headrace.broker"):
        with pytest.raises(OSError):
            TlsRawClient(broker.bootstrap_servers)
        (line,) = caplog.messages
        assert "a frame of" in line


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\xff\xff" + bytes(1000), bytes(5), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_broken_handshake_disturbs_nobody(broker, opened, garbage):
    other = opened()
    with RawClient(broker.bootstrap_servers) as client:
        client.send_bytes(garbage)
        client.socket.shutdown(socket.SHUT_WR)
        while client.socket.recv(1000):
            pass
    assert is_answered(other)


def test_a_handshake_in_pieces_of_one_byte(broker):
    """The client's side in memory, so that the test decides which bytes leave when."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with RawClient(broker.bootstrap_servers) as client:

        def step(action):
            while True:
                try:
                    result = action()
                except ssl.SSLWantReadError:
                    result = None
                for byte in outgoing.read():
                    client.send_bytes(bytes([byte]))
                if result is not None:
                    return result
                incoming.write(client.socket.recv(65536))

        step(lambda: tls.do_handshake() or True)
        request = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
        tls.write(len(request).to_bytes(4, "big") + request)
        answer = step(lambda: tls.read(8))
    assert answer[4:8] == b"\x00\x00\x00\x07"


def test_many_half_open_handshakes_delay_nobody(broker):
    with ExitStack() as stack:
        for _ in range(100):
            half = stack.enter_context(RawClient(broker.bootstrap_servers))
            half.send_bytes(b"\x16\x03\x01\x02\x00\x01")
        with TlsRawClient(broker.bootstrap_servers) as client:
            assert is_answered(client)


def wait_for(condition, witness):
    """Each answer to the witness gives the broker's threads a turn."""
    for _ in range(10_000):
        if condition():
            return
        assert is_answered(witness)
    raise AssertionError("did not happen")


# -- requests


def test_pipelined_requests_are_answered_in_order(opened):
    client = opened()
    for _ in range(200):
        client.send(Api.API_VERSIONS, 0)
    for _ in range(200):
        assert client.receive().error_code == 0  # checks the correlation id


def test_requests_in_one_tls_record_and_one_request_in_many(opened):
    client = opened()
    frame = b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
    framed = len(frame).to_bytes(4, "big") + frame
    client.send_bytes(framed * 50)
    for _ in range(50):
        assert client.read_frame()[:4] == b"\x00\x00\x00\x07"
    for byte in framed:
        client.send_bytes(bytes([byte]))
    assert client.read_frame()[:4] == b"\x00\x00\x00\x07"


@pytest.mark.parametrize("size_bytes", [100, 16_384, 40_000, 1_000_000, 20_000_000])
def test_what_was_produced_is_fetched(broker, opened, size_bytes):
    client, topic = opened(timeout_s=60), f"size-{size_bytes}"
    create(client, topic)
    if size_bytes > 1_000_000:
        config = {"max.message.bytes": "30000000"}
        with_larger_batches(client, topic, config)
    value = bytes(number * 7 % 251 for number in range(1000)) * (size_bytes // 1000 + 1)
    records = batch(value=value[:size_bytes])
    assert produce(client, topic, records) == 0
    fetched = fetch(client, topic)
    assert len(fetched) == len(records)
    assert fetched[21:] == records[21:], "the same but for what the broker assigns"


def test_a_request_may_arrive_in_any_pieces(broker):
    """The end of each request arrives by itself: the network thread must not wait for bytes that are there already."""
    random = Random(5)
    with RawClient(broker.bootstrap_servers) as client:
        client.socket = InPieces(client.socket, random)
        create(client, "pieces")
        for number in range(60):
            records = batch(value=random.randbytes(random.randrange(10_000, 120_000)))
            assert produce(client, "pieces", records) == number


def with_larger_batches(client, topic, config):
    answer = client.ask(
        Api.INCREMENTAL_ALTER_CONFIGS, 1, validate_only=False,
        resources=[{"resource_type": 2, "resource_name": topic,
                    "configs": [{"name": name, "config_operation": 0, "value": value}
                                for name, value in config.items()]}],
    )  # fmt: skip
    assert answer.responses[0].error_code == 0


def test_a_fetch_of_many_files_for_a_slow_reader(broker, opened):
    client, slow = opened(timeout_s=60), opened(timeout_s=60)
    create(client, "slow")
    for number in range(8):
        assert produce(client, "slow", batch(value=bytes([number]) * 600_000)) == number
    expected = fetch(client, "slow")
    slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    slow.send(Api.FETCH, 4, expects_answer=False, **fetch_fields("slow"))
    size_bytes = int.from_bytes(slow.read_bytes(4), "big")
    assert is_answered(client), "nobody waits for the slow one"
    (partition,) = decode_response(Api.FETCH, 4, slow.read_bytes(size_bytes)).responses[0].partitions
    assert partition.records == expected
    assert is_answered(slow)


def test_produce_without_answers(opened):
    client = opened()
    create(client, "silent")
    for _ in range(20):
        client.send(Api.PRODUCE, 9, expects_answer=False, **produce_fields("silent", batch(), acks=0))
    assert is_answered(client)
    assert produce(client, "silent", batch()) == 20


def test_many_connections_at_once(broker):
    def talk(number):
        with TlsRawClient(broker.bootstrap_servers, timeout_s=60) as client:
            create(client, f"many-{number % 5}")
            for _ in range(5):
                produce(client, f"many-{number % 5}", batch(10))
            return len(fetch(client, f"many-{number % 5}")) > 0

    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(talk, range(60)))


def test_a_request_that_is_too_large_closes(opened, caplog):
    client = opened()
    with caplog.at_level(logging.INFO, "headrace.broker"):
        client.send_bytes((200_000_000).to_bytes(4, "big"))
        assert client.is_closed_by_peer()
    (line,) = caplog.messages
    assert "a frame of 200000000 bytes" in line


def test_a_connection_changes_between_the_loop_and_its_thread(broker, opened):
    """Small requests with small answers are served by the loop; a large request or answer by the network thread."""
    client, other = opened(timeout_s=60), opened(timeout_s=60)
    create(client, "changes")
    for number in range(12):
        for _ in range(number % 4):
            assert is_answered(client)
        if number % 4 == 3:  # the event of a request may be noticed after the request: then the next request decides
            assert any(
                is_answered(client) and any(each._channel._is_on_loop for each in broker.core.connections)
                for _ in range(100)
            )
        assert produce(client, "changes", batch(value=bytes([number]) * (30 + number % 3 * 200_000))) == number
        assert len(fetch(other, "changes", offset=number)) > 30
        client.send(Api.API_VERSIONS, 0)
        client.send(Api.FETCH, 4, **fetch_fields("changes"))
        client.send(Api.API_VERSIONS, 0)
        assert client.receive().error_code == 0
        assert len(client.receive().responses[0].partitions[0].records) > 30 * number
        assert client.receive().error_code == 0


def test_a_client_of_the_loop_may_leave_at_any_time(broker, opened):
    witness = opened()
    assert is_answered(witness)
    before = len(broker.core.connections)
    for leave in (lambda client: client.socket.unwrap(), lambda client: None, lambda client: client.send_bytes(b"\0")):
        client = TlsRawClient(broker.bootstrap_servers)
        for _ in range(5):
            assert is_answered(client)
        leave(client)
        client.close()
    wait_for(lambda: len(broker.core.connections) == before, witness)


# -- ends


def test_a_client_that_says_goodbye_leaves_nothing_behind(broker, opened):
    witness = opened()
    assert is_answered(witness)
    before = len(broker.core.connections)
    for _ in range(20):
        client = TlsRawClient(broker.bootstrap_servers)
        assert is_answered(client)
        client.socket.unwrap()  # sends close_notify, and waits for that of the broker
        client.close()
    wait_for(lambda: len(broker.core.connections) == before, witness)


def test_a_client_that_vanishes_leaves_nothing_behind(broker, opened):
    witness = opened()
    assert is_answered(witness)
    before = len(broker.core.connections)
    create(witness, "vanish")
    produce(witness, "vanish", batch(value=bytes(900_000)))
    for act in (
        lambda client: None,
        lambda client: client.send_bytes(b"\x00\x00"),
        lambda client: client.send(Api.FETCH, 4, **fetch_fields("vanish")),
        lambda client: client.send(Api.FETCH, 4, **fetch_fields("vanish", offset=1, max_wait=100, min_bytes=1)),
    ):
        client = TlsRawClient(broker.bootstrap_servers)
        act(client)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # a reset
        client.close()
    wait_for(lambda: len(broker.core.connections) == before, witness)


def test_bytes_changed_on_the_way_close_with_one_line(broker, opened, caplog):
    witness, client = opened(), opened()
    assert is_answered(client)
    with caplog.at_level(logging.INFO, "headrace.broker"):
        raw = client.socket.detach()
        with socket.socket(fileno=raw) as below:
            below.settimeout(10)
            below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            while below.recv(1000):
                pass
        wait_for(lambda: caplog.messages, witness)
    (line,) = caplog.messages
    assert "decryption failed or bad record mac" in line


def test_an_idle_connection_is_closed():
    with tls_broker(config={"connections.max.idle.ms": 300}) as broker:
        with TlsRawClient(broker.bootstrap_servers) as idle:
            assert is_answered(idle)
            assert idle.is_closed_by_peer()
        with RawClient(broker.bootstrap_servers) as half_open:
            assert half_open.is_closed_by_peer()


def test_a_broker_that_stops_closes_its_connections_and_ends_its_threads():
    with tls_broker() as broker:
        client = TlsRawClient(broker.bootstrap_servers)
        assert is_answered(client)
        threads = [each for each in threading.enumerate() if each.name.startswith("headrace-network")]
        assert any(thread.is_alive() for thread in threads)
        mine = {thread for thread in threads if thread in own_threads(broker)}
    assert client.is_closed_by_peer()
    client.close()
    for thread in mine:
        thread.join(10)
        assert not thread.is_alive()


def own_threads(broker):
    (listener,) = broker.core.listeners
    return [processor._thread for processor in listener._network_threads._processors]


# -- certificates of clients


def principals(broker):
    return {str(connection.principal) for connection in broker.core.connections}


def test_a_certificate_is_asked_for_if_required():
    """In TLS 1.3 the client learns of the refusal when it reads."""
    with tls_broker(ssl_client_auth="required") as broker:
        with TlsRawClient(broker.bootstrap_servers, context=client_context()) as client, pytest.raises(OSError):
            is_answered(client)
        stranger = client_context(trustme.CA().issue_cert("stranger"))
        with TlsRawClient(broker.bootstrap_servers, context=stranger) as client, pytest.raises(OSError):
            is_answered(client)
        known = AUTHORITY.issue_cert(common_name="alice", organization_name="Acme", organization_unit_name="Data, Team")
        with TlsRawClient(broker.bootstrap_servers, context=client_context(known)) as client:
            assert is_answered(client)
            assert principals(broker) == {r"User:CN=alice,OU=Data\, Team,O=Acme"}


def test_a_certificate_may_be_sent_if_requested():
    with tls_broker(ssl_client_auth="requested") as broker:
        with TlsRawClient(broker.bootstrap_servers) as client:
            assert is_answered(client)
            assert principals(broker) == {"User:ANONYMOUS"}
        stranger = client_context(trustme.CA().issue_cert("stranger"))
        with TlsRawClient(broker.bootstrap_servers, context=stranger) as client, pytest.raises(OSError):
            is_answered(client)


def test_rules_map_a_subject_to_a_user(caplog):
    rules = "RULE:^CN=([a-z]+),.*$/$1@acme/U"
    with tls_broker(ssl_client_auth="required", ssl_principal_mapping_rules=rules) as broker:
        alice = AUTHORITY.issue_cert(common_name="alice", organization_name="Acme")
        with TlsRawClient(broker.bootstrap_servers, context=client_context(alice)) as client:
            assert is_answered(client)
            assert principals(broker) == {"User:ALICE@ACME"}
            with caplog.at_level(logging.INFO, "headrace.broker"):
                other = client_context(AUTHORITY.issue_cert(common_name="007", organization_name="Acme"))
                with TlsRawClient(broker.bootstrap_servers, context=other) as unnamed:
                    assert unnamed.is_closed_by_peer()
            (line,) = caplog.messages
            assert "No rule of ssl.principal.mapping.rules applies to CN=007" in line


# -- settings


def test_several_listeners_with_and_without_tls():
    with tls_broker(
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        listener_security_protocol_map="SSL:SSL,PLAINTEXT:PLAINTEXT,OTHER:SSL",
    ) as broker:
        addresses = {name: f"{host}:{port}" for name, (host, port) in broker.core.endpoints.items()}
        for name, kind in (("SSL", TlsRawClient), ("PLAINTEXT", RawClient), ("OTHER", TlsRawClient)):
            with kind(addresses[name]) as client:
                answer = client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
                (node,) = answer.brokers
                assert f"{node.host}:{node.port}" == addresses[name]


def test_a_listener_without_a_key_store_does_not_start():
    with pytest.raises((StartError, ConfigError), match="needs a key store"):
        Broker(config={"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}).start()


def test_the_number_of_threads_changes_under_load():
    class TlsClient(Client, TlsRawClient):
        pass

    with tls_broker(config={"num.network.threads": 2}) as broker, ThreadPoolExecutor(4) as pool, ExitStack() as stack:
        stopped = threading.Event()
        clients = [stack.enter_context(TlsRawClient(broker.bootstrap_servers, timeout_s=30)) for _ in range(8)]
        create(clients[0], "load")
        done = [pool.submit(keep_busy, half, stopped) for half in (clients[::2], clients[1::2])]
        admin = stack.enter_context(TlsClient(broker.bootstrap_servers))
        (listener,) = broker.core.listeners
        for count in (4, 8, 4, 2, 1, 2):
            assert admin.alter(BROKER, "", ("num.network.threads", SET, str(count))).error_code == 0
            clients.append(stack.enter_context(TlsRawClient(broker.bootstrap_servers)))
            assert all(is_answered(client) for client in clients[8:])
            assert len(listener._network_threads) <= count
        stopped.set()
        assert all(future.result() > 0 for future in done)


@pytest.mark.parametrize("name", ["num.network.threads", "listener.name.ssl.num.network.threads"])
def test_new_connections_use_the_new_threads_and_old_ones_leave_those_that_end(name):
    """num.network.threads"""

    class TlsClient(Client, TlsRawClient):
        pass

    def threads():
        return sum(thread.name.startswith("headrace-network-SSL-") for thread in threading.enumerate())

    before = threads()
    with tls_broker(config={"num.network.threads": 1}) as broker, ExitStack() as stack:
        admin = stack.enter_context(TlsClient(broker.bootstrap_servers))
        clients = [stack.enter_context(TlsRawClient(broker.bootstrap_servers)) for _ in range(4)]
        assert threads() - before == 1
        assert admin.alter(BROKER, "0", (name, SET, "2")).error_code == 0
        clients += [stack.enter_context(TlsRawClient(broker.bootstrap_servers)) for _ in range(4)]
        assert all(map(is_answered, clients))
        assert threads() - before == 2
        assert admin.alter(BROKER, "0", (name, SET, "1")).error_code == 0
        deadline = monotonic() + 10
        while threads() - before != 1:
            assert monotonic() < deadline, "a thread that has no connections did not end"
            sleep(0.01)
        assert all(map(is_answered, clients))


def keep_busy(clients, stopped):
    rounds = 0
    while not stopped.is_set():
        for client in clients:
            client.send(Api.PRODUCE, 9, **produce_fields("load", batch(value=bytes(50_000))))
            client.send(Api.FETCH, 4, **fetch_fields("load", max_bytes=200_000))
        for client in clients:
            assert client.receive().responses[0].partition_responses[0].error_code == 0
            assert client.receive().responses[0].partitions[0].error_code == 0
        rounds += 1
    return rounds


def test_network_threads_shorten_the_switch_interval(opened):
    """Else a TLS request waits several times for 5 ms beside a busy loop."""
    assert is_answered(opened())
    assert sys.getswitchinterval() <= 0.0005
