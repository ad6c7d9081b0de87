"""The server of metrics: TLS, credentials, and clients that are slow, many or hostile."""

import http.client
import logging
import selectors
import socket
import ssl
import threading
import time

import pytest
import trustme

from headrace.http_endpoints import metrics_server
from headrace.http_endpoints.access import Access
from headrace.http_endpoints.metrics_server import MAX_CONNECTIONS, MAX_HEAD_BYTES, MetricsServer
from headrace.http_endpoints.protection import Protection
from headrace.properties import ConfigError

TOKEN = "a-token-that-nobody-guesses"
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Served:
    def __init__(self, protection, head_seconds=10.0):
        self.server = MetricsServer("127.0.0.1", 0, protection)
        self.server.head_seconds = head_seconds
        self.environs = []
        self.answers = threading.Event()
        self.answers.set()
        self.server.activate(self._application)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def _application(self, environ, start_response):
        self.environs.append(environ)
        assert self.answers.wait(10)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"metrics\n"]

    def connect(self):
        return socket.create_connection(self.server.endpoint, timeout=10)

    def get(self, context=None, **headers):
        host, port = self.server.endpoint
        kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
        connection = kind(host, port, timeout=10, **({} if context is None else {"context": context}))
        try:
            connection.request("GET", "/metrics", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def close(self):
        self.server.shutdown()
        self._thread.join(10)
        self.server.server_close()


@pytest.fixture
def serve():
    opened = []

    def start(protection=None, **more):
        opened.append(Served(protection or Protection(), **more))
        return opened[-1]

    yield start
    for served in opened:
        served.close()


def test_without_protection_everybody_on_this_host_is_answered(serve):
    assert serve().get()[:2] == (200, b"metrics\n")


def test_a_scraper_needs_the_credentials(serve, caplog):
    caplog.set_level(logging.DEBUG)
    served = serve(Protection(access=Access(TOKEN, "anna:secret-word")))
    status, body, headers = served.get()
    assert (status, body) == (401, b"unauthorized\n")
    assert headers.get_all("WWW-Authenticate") == ['Bearer realm="headrace"', 'Basic realm="headrace", charset="UTF-8"']
    assert served.get(Authorization="Bearer wrong-token")[0] == 401
    assert not served.environs
    assert served.get(Authorization=f"Bearer {TOKEN}")[:2] == (200, b"metrics\n")
    assert served.get(Authorization="Basic YW5uYTpzZWNyZXQtd29yZA==")[0] == 200
    assert all("HTTP_AUTHORIZATION" not in environ for environ in served.environs)
    assert "wrong or missing credentials" in caplog.text
    assert not any(secret in caplog.text for secret in (TOKEN, "wrong-token", "YW5uYT", "secret-word"))


def test_a_flood_of_wrong_credentials_is_one_line(serve, caplog):
    caplog.set_level(logging.INFO)
    served = serve(Protection(access=Access(bearer_token=TOKEN)))
    for _ in range(20):
        assert served.get(Authorization="Bearer wrong")[0] == 401
    assert caplog.messages == ["rejected scrape of 127.0.0.1: wrong or missing credentials"]


def test_the_line_of_a_request_cannot_break_the_log(serve, caplog):
    caplog.set_level(logging.DEBUG)
    served = serve()
    with served.connect() as client:
        client.sendall(b"GET /metrics\x1b[2J\x0bforged HTTP/1.1\r\nHost: x\r\n\r\n")
        while client.recv(1000):
            pass
    assert "metrics" in caplog.text
    assert all(line.isprintable() for line in caplog.messages)


def test_tls(serve, certificate, caplog):
    caplog.set_level(logging.INFO)
    served = serve(Protection(certificate.chain, certificate.key, access=Access(TOKEN)))
    assert served.server.url.startswith("https://127.0.0.1:")
    assert served.get(certificate.client_context)[0] == 401
    assert served.get(certificate.client_context, Authorization=f"Bearer {TOKEN}")[:2] == (200, b"metrics\n")
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        served.get()  # plain text is not answered
    with pytest.raises(ssl.SSLCertVerificationError):
        served.get(ssl.create_default_context())
    assert served.get(certificate.client_context, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_renewed_certificate_is_used_without_a_restart(serve, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = tmp_path / "both.pem"

    def renew():
        authority = trustme.CA()
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        return context

    old = renew()
    served = serve(Protection(str(file)))
    assert served.get(old)[0] == 200
    new = renew()
    assert served.get(new)[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        served.get(old)
    file.write_text("half of a file")
    assert served.get(new)[0] == 200
    assert "the renewed certificate is not used: cannot use the certificate" in caplog.text
    file.unlink()
    assert served.get(new)[0] == 200
    assert served.get(renew())[0] == 200


def test_old_versions_of_tls_are_refused(serve, certificate):
    context = certificate.client_context
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    served = serve(Protection(certificate.chain, certificate.key))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.get(old)
    assert served.get(context)[0] == 200


def test_one_slow_scraper_does_not_stop_the_others(serve, certificate):
    served = serve(Protection(certificate.chain, certificate.key))
    with served.connect() as silent, served.connect() as slow:
        slow.sendall(b"\x16\x03\x01")  # the first bytes of a handshake
        assert served.get(certificate.client_context)[0] == 200
        silent.sendall(b"")


def test_a_scrape_that_waits_does_not_stop_the_others(serve):
    served = serve()
    served.answers.clear()
    with served.connect() as first:
        first.sendall(GET)
        other = served.connect()
        other.sendall(GET)
        served.answers.set()
        assert other.recv(100).startswith(b"HTTP/1.0 200")
        assert first.recv(100).startswith(b"HTTP/1.0 200")
        other.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_request_has_to_arrive_in_time(serve, sent):
    served = serve(head_seconds=0.2)
    with served.connect() as slow:
        slow.sendall(sent)
        assert slow.recv(100) == b""


def test_bytes_one_by_one_do_not_prolong_the_time(serve):
    """Each byte arrives in time, but the head does not."""
    served = serve(head_seconds=0.3)
    with served.connect() as slow, selectors.DefaultSelector() as selector:
        selector.register(slow, selectors.EVENT_READ)
        for _ in range(200):
            try:
                slow.sendall(b"x")
            except ConnectionError:
                return
            if selector.select(0.05):
                try:
                    assert slow.recv(100) == b""
                except ConnectionResetError:
                    return
                return
    pytest.fail("the connection was not closed")


def test_a_handshake_has_to_end_in_time(serve, certificate):
    served = serve(Protection(certificate.chain, certificate.key), head_seconds=0.2)
    with served.connect() as slow:
        assert slow.recv(100) == b""


def test_a_head_that_is_too_large_closes_the_connection(serve):
    served = serve()
    with served.connect() as hostile, pytest.raises(ConnectionError):
        hostile.sendall(b"X: y\r\n" * MAX_HEAD_BYTES * 100)
    assert served.get()[0] == 200


def test_many_silent_connections_do_not_keep_others_out(serve):
    served = serve()
    silent = [served.connect() for _ in range(MAX_CONNECTIONS * 2)]
    assert served.get()[0] == 200
    assert silent[0].recv(10) == b""  # the oldest one had to go
    for connection in silent:
        connection.close()
    assert served.get()[0] == 200


def test_many_running_scrapes_are_bounded(serve, monkeypatch):
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 2)
    served = serve()
    served.answers.clear()
    running = [served.connect() for _ in range(2)]
    for connection in running:
        connection.sendall(GET)
    _wait_until(lambda: len(served.environs) == 2)
    with served.connect() as refused:
        assert refused.recv(10) == b""
    served.answers.set()
    for connection in running:
        assert connection.recv(100).startswith(b"HTTP/1.0 200")
        connection.close()
    _wait_until(lambda: served.server._answering == 0)
    assert served.get()[0] == 200


def _wait_until(is_so):
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.01)


def test_an_address_that_others_reach_is_refused_before_it_is_bound(certificate):
    with pytest.raises(
        ConfigError, match=r"other hosts can reach 0\.0\.0\.0, and there is no TLS and no password; do this"
    ):
        MetricsServer("", 0, Protection(), hints="do this")
    server = MetricsServer("", 0, Protection(certificate.chain, certificate.key, access=Access(TOKEN)))
    server.server_close()
    MetricsServer("", 0, Protection(allows_insecure=True)).server_close()
