"""Hostile clients of listeners with TLS do not stop the broker for others: before and after the handshake and login.

All connections share one network thread. Each test limits how long the event loop and the network thread are busy at a
time (``loop_watch.py``), and a bystander gets answers meanwhile.
"""

import _ssl
import ctypes
import logging
import socket
import ssl
import sys
import threading
import time
from contextlib import ExitStack, suppress
from struct import pack

import pytest
from large_requests import build
from loop_watch import LoopWatch, TurnWatch, collect_garbage_as_a_broker

from headrace.protocol.api import Api
from headrace.testing.raw_client import ClosedByPeer, RawClient, decode_response, encode_request
from tls_harness import TlsRawClient, client_context, tls_broker

LONGEST_MS = 50
#: A network thread holds no lock while OpenSSL works, so only other connections of the same thread wait.
LONGEST_TURN_MS = 100
_TRIES = 3
PLAIN_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
CONFIG = {
    "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
    "num.network.threads": 1,
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_JAAS,
    "connection.failed.authentication.delay.ms": 0,
    "socket.send.buffer.bytes": 16 * 1024,
}
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
LISTENERS = pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
#: Where an object of ``ssl`` has its pointer to OpenSSL's object.
_POINTER_AT = 3 * ctypes.sizeof(ctypes.c_void_p)
with_openssl = pytest.mark.skipif(
    sys.implementation.name != "cpython" or sys.version_info[:2] not in {(3, 11), (3, 12), (3, 13)},
    reason="the layout of Python's ssl objects is known for these versions only",
)


@pytest.fixture
def turns(monkeypatch):
    return TurnWatch(monkeypatch)


@pytest.fixture
def broker(turns):
    with tls_broker(config=CONFIG) as broker:
        collect_garbage_as_a_broker()
        yield broker


@pytest.fixture
def fair(broker, turns):
    """The longest iteration and the longest turn are short, and others are answered."""
    with TlsRawClient(address_of(broker)) as bystander:
        assert is_answered(bystander)
        turns._longest_s = 0.0
        watch = LoopWatch(broker.core.runtime.loop)
        with watch.watching():
            yield
            assert is_answered(bystander)
    assert watch.longest_ms < LONGEST_MS
    assert turns.longest_ms < LONGEST_TURN_MS


def address_of(broker, listener="SSL"):
    host, port = broker.core.endpoints[listener]
    return f"{host}:{port}"


def is_answered(client):
    return client.ask(Api.API_VERSIONS, 0).error_code == 0


class HandMade:
    """A client that decides itself which bytes become which TLS record, and when they are sent."""

    def __init__(self, address, *, receive_buffer_bytes=None, **versions):
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(60)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((host, int(port)))
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(**versions)
        self.tls = context.wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def first_flight(self):
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def shake_hands(self):
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                self._receive()
            else:
                self.flush()
                return self

    def flush(self):
        self.socket.sendall(self.outgoing.read())

    def _receive(self):
        data = self.socket.recv(65536)
        if not data:
            raise ClosedByPeer
        self._incoming.write(data)

    def read(self, size_bytes):
        data = b""
        while len(data) < size_bytes:
            try:
                data += self.tls.read(size_bytes - len(data))
            except ssl.SSLWantReadError:
                self._receive()
        return data

    def read_frame(self):
        return self.read(int.from_bytes(self.read(4), "big"))

    def is_closed_by_peer(self):
        with suppress(ConnectionError):
            while self.socket.recv(65536):
                pass
        return True

    def call_openssl(self, name, *arguments):
        function = getattr(ctypes.CDLL(_ssl.__file__), name)
        function.argtypes = [ctypes.c_void_p, *(ctypes.c_int for _ in arguments)]
        pointer = ctypes.c_void_p.from_address(id(self.tls._sslobj) + _POINTER_AT)
        assert function(pointer, *arguments) == 1

    def update_key(self):
        """Makes a record that asks the other side for a new key."""
        self.call_openssl("SSL_key_update", 1)
        self.tls.do_handshake()


def framed(request):
    return pack(">i", len(request)) + request


# -- handshakes


@pytest.mark.parametrize("sent_bytes", [0, 1, 100])
@LISTENERS
def test_hundreds_of_half_open_handshakes(broker, fair, listener, sent_bytes):
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(HandMade(address_of(broker, listener)))
            client.socket.sendall(client.first_flight()[:sent_bytes])
        with TlsRawClient(address_of(broker, listener)) as late:
            assert is_answered(late)


def test_handshakes_that_are_never_finished(broker, fair):
    """The expensive part is done: the broker has signed its answer."""
    with ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(HandMade(address_of(broker)))
            client.socket.sendall(client.first_flight())
        with TlsRawClient(address_of(broker)) as late:
            assert is_answered(late)


@VERSIONS
def test_handshakes_byte_by_byte(broker, fair, version):
    with ExitStack() as stack:
        clients = [stack.enter_context(HandMade(address_of(broker), maximum_version=version)) for _ in range(20)]
        flights = [client.first_flight() for client in clients]
        for number in range(100):
            for client, flight in zip(clients, flights, strict=True):
                client.socket.sendall(flight[number : number + 1])


@LISTENERS
def test_noise_instead_of_a_handshake(broker, fair, listener):
    for _ in range(50):
        with HandMade(address_of(broker, listener)) as client:
            with suppress(ConnectionError):
                client.socket.sendall(b"\x16\x03\x01\x40\x00" + bytes(200_000))
            assert client.is_closed_by_peer()


# -- records


@VERSIONS
def test_a_request_in_records_of_one_byte(broker, fair, version):
    request = framed(build(Api.METADATA, 12, 1_000, ("topics",)))
    with HandMade(address_of(broker), maximum_version=version) as client:
        client.shake_hands()
        for number in range(len(request)):
            client.tls.write(request[number : number + 1])
        client.flush()
        assert len(decode_response(Api.METADATA, 12, client.read_frame()).topics) == 1_000


@VERSIONS
def test_small_requests_in_one_write(broker, fair, version):
    with HandMade(address_of(broker), maximum_version=version) as client:
        client.shake_hands()
        for number in range(2_000):
            client.tls.write(framed(encode_request(Api.API_VERSIONS, 0, number, "many")))
        client.flush()
        for number in range(2_000):
            assert client.read_frame()[:4] == pack(">i", number)


@with_openssl
def test_renegotiations_are_refused(broker, fair):
    """TLS 1.2 could begin a new handshake in a connection, which costs the broker a signature each time."""
    for _ in range(20):
        with HandMade(address_of(broker), maximum_version=ssl.TLSVersion.TLSv1_2) as client:
            client.shake_hands()
            for _ in range(5):
                with suppress(AssertionError, ssl.SSLError):
                    client.call_openssl("SSL_renegotiate")
                    client.tls.do_handshake()
            client.flush()
            with pytest.raises((ssl.SSLError, ClosedByPeer, ConnectionError)):
                client.read_frame()


@with_openssl
def test_new_keys_now_and_then_are_fine(broker, fair):
    with HandMade(address_of(broker), minimum_version=ssl.TLSVersion.TLSv1_3) as client:
        client.shake_hands()
        for number in range(50):
            client.update_key()
            client.tls.write(framed(encode_request(Api.API_VERSIONS, 0, number, "careful")))
            client.flush()
            assert client.read_frame()[:4] == pack(">i", number)


@with_openssl
@LISTENERS
def test_a_flood_of_new_keys_closes_the_connection(broker, fair, listener, caplog):
    """OpenSSL answers each request for a new key: a client that does not read would fill the broker's memory."""
    caplog.set_level(logging.INFO)
    with HandMade(address_of(broker, listener), minimum_version=ssl.TLSVersion.TLSv1_3) as client:
        client.shake_hands()
        for _ in range(5_000):
            client.update_key()
        with suppress(ConnectionError):
            client.flush()
        assert client.is_closed_by_peer()
    assert any("bytes of TLS without data" in line for line in caplog.messages)


@with_openssl
def test_a_client_that_does_not_read_the_answers_to_its_new_keys_is_disconnected(broker, fair, caplog):
    caplog.set_level(logging.INFO)
    versions = {"minimum_version": ssl.TLSVersion.TLSv1_3}
    with HandMade(address_of(broker), receive_buffer_bytes=4096, **versions) as client:
        client.shake_hands()
        client.tls.write(pack(">i", 1_000_000))
        for _ in range(10_000):
            client.tls.write(b"x")
            client.update_key()
        with suppress(ConnectionError):
            client.flush()
        deadline = time.monotonic() + 60
        while not any("does not read the answers" in line for line in caplog.messages):
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        assert client.is_closed_by_peer()


# -- frames


@LISTENERS
def test_a_frame_that_is_too_large_closes_the_connection(broker, fair, listener):
    """Before the login, sasl.server.max.receive.size is the limit."""
    length = 600_000 if listener == "SASL_SSL" else 200_000_000
    with TlsRawClient(address_of(broker, listener)) as client:
        with suppress(ConnectionError, ssl.SSLError):
            client.send_bytes(pack(">i", length) + bytes(100_000))
        assert client.is_closed_by_peer()


def test_a_huge_frame_that_never_ends(broker, fair):
    with TlsRawClient(address_of(broker), timeout_s=60) as client:
        client.send_bytes(pack(">i", 100_000_000))
        for _ in range(20):
            client.send_bytes(bytes(1_000_000))


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
def test_a_large_request_is_handled_in_slices(broker, turns, listener):
    frame = build(Api.METADATA, 12, 30_000, ("topics",))
    with TlsRawClient(address_of(broker, listener), timeout_s=60) as client:
        if listener == "SASL_SSL":
            log_in(client)
        for _ in range(_TRIES):
            watch = LoopWatch(broker.core.runtime.loop)
            with watch.watching():
                client.send_frame(frame)
                assert len(decode_response(Api.METADATA, 12, client.read_frame()).topics) == 30_000
            if watch.longest_ms < LONGEST_MS:
                break
    assert watch.longest_ms < LONGEST_MS
    assert turns.longest_ms < LONGEST_TURN_MS


def log_in(client):
    assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    assert client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret").error_code == 0


def test_failed_logins_by_the_hundred(broker, fair, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(100):
        with TlsRawClient(address_of(broker, "SASL_SSL")) as client:
            client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            assert client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0wrong").error_code != 0
    assert len([line for line in caplog.messages if "failed authentication" in line]) < 20


# -- limits


def test_an_address_has_a_limited_number_of_connections_with_tls():
    with tls_broker(config={"max.connections.per.ip": 2}) as broker, ExitStack() as stack:
        first, second = (stack.enter_context(TlsRawClient(broker.bootstrap_servers)) for _ in range(2))
        assert is_answered(first)
        assert is_answered(second)
        with RawClient(broker.bootstrap_servers) as third:
            assert third.is_closed_by_peer(), "before any handshake"
        assert is_answered(first)


def test_a_listener_with_tls_has_a_limit_of_its_own():
    config = {**CONFIG, "listener.name.sasl_ssl.max.connections": 2}
    with tls_broker(config=config) as broker, ExitStack() as stack:
        silent = [stack.enter_context(RawClient(address_of(broker, "SASL_SSL"))) for _ in range(2)]
        with RawClient(address_of(broker, "SASL_SSL")) as third, TlsRawClient(address_of(broker)) as other:
            assert is_answered(other), "the other listener has no such limit"
            third.socket.settimeout(0.3)
            third.send_bytes(b"\x16")
            with pytest.raises(TimeoutError):
                third.socket.recv(1)
        for client in silent:
            client.close()
        with TlsRawClient(address_of(broker, "SASL_SSL")) as late:
            assert is_answered(late)


def test_a_connection_with_tls_that_does_nothing_is_closed():
    with tls_broker(config={**CONFIG, "connections.max.idle.ms": 500}) as broker:
        for listener in ("SSL", "SASL_SSL"):
            with TlsRawClient(address_of(broker, listener)) as idle:
                assert is_answered(idle)
                assert idle.is_closed_by_peer()
