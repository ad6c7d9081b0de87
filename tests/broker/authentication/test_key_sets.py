"""Keys of a provider: when they are fetched, from where, and what a provider cannot do to a broker."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from headrace.broker.authentication.key_sets import MAX_BYTES, MIN_INTERVAL_MS, ProvidedKeys, fetch_file, fetch_http
from headrace.security.sasl.oauthbearer import TokenRefused
from headrace.testing import ManualClock
from token_harness import key_set, public_keys


class Provider:
    def __init__(self) -> None:
        self.answers: list[bytes | Exception] = []
        self.asked = 0
        self.clock = ManualClock()
        self.keys = ProvidedKeys(
            "https://idp/keys", self.clock, refresh_ms=60_000, backoff_ms=100, max_backoff_ms=400, fetch=self.fetch
        )

    def fetch(self) -> bytes:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


RSA, EC, _ = public_keys()


def test_keys_are_fetched_once_and_again_when_they_are_old() -> None:
    provider = Provider()
    provider.answers = [key_set(RSA), key_set(EC)]
    assert "rsa" in provider.keys.with_key("rsa")
    provider.clock.advance(59_999)
    assert "rsa" in provider.keys.with_key("rsa")
    assert provider.asked == 1
    provider.clock.advance(1)
    assert "ec" in provider.keys.with_key("rsa")
    assert provider.asked == 2


def test_an_unknown_key_fetches_the_keys_at_most_once_per_interval() -> None:
    provider = Provider()
    provider.answers = [key_set(RSA), key_set(RSA), key_set(RSA, EC)]
    provider.keys.with_key("rsa")
    for number in range(100):
        provider.keys.with_key(f"unknown-{number}")
    assert provider.asked == 1
    provider.clock.advance(MIN_INTERVAL_MS)
    for number in range(100):
        provider.keys.with_key(f"unknown-{number}")
    assert provider.asked == 2
    provider.clock.advance(MIN_INTERVAL_MS)
    assert "ec" in provider.keys.with_key("ec"), "a new key of the provider is found"


def test_without_keys_no_token_is_valid_and_failures_back_off() -> None:
    provider = Provider()
    provider.answers = [OSError("refused"), b"no json", ValueError("large"), OSError("again"), key_set(RSA)]
    for wait_ms in (100, 200, 400, 400):
        with pytest.raises(TokenRefused, match="no keys"):
            provider.keys.with_key("rsa")
        asked = provider.asked
        provider.clock.advance(wait_ms - 1)
        with pytest.raises(TokenRefused):
            provider.keys.with_key("rsa")
        assert provider.asked == asked
        provider.clock.advance(1)
    assert "rsa" in provider.keys.with_key("rsa")


def test_earlier_keys_stay_if_the_provider_fails() -> None:
    provider = Provider()
    provider.answers = [key_set(RSA), OSError("refused")]
    provider.keys.with_key("rsa")
    provider.clock.advance(60_000)
    assert "rsa" in provider.keys.with_key("rsa")
    assert provider.asked == 2


def test_one_thread_fetches_while_the_others_go_on() -> None:
    provider = Provider()
    provider.answers = [key_set(RSA)]
    provider.keys.with_key("rsa")
    fetching, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        fetching.set()
        assert go_on.wait(10)
        return key_set(EC)

    provider.keys._fetch = slow
    provider.clock.advance(60_000)
    thread = threading.Thread(target=provider.keys.with_key, args=("rsa",))
    thread.start()
    assert fetching.wait(10)
    assert "rsa" in provider.keys.with_key("rsa")
    go_on.set()
    thread.join()
    assert "ec" in provider.keys.with_key("ec")


# -- from a file and from a server


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "the keys.json"
    file.write_bytes(key_set())
    assert fetch_file(file.as_uri()) == key_set()
    file.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(ValueError, match="larger than"):
        fetch_file(file.as_uri())
    with pytest.raises(OSError, match="No such file"):
        fetch_file((tmp_path / "missing").as_uri())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200 if self.path in ("/keys?a=b", "/large") else 404)
        self.end_headers()
        self.wfile.write(key_set() if self.path != "/large" else b"x" * (MAX_BYTES + 1))

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(authority: trustme.CA) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"https://localhost:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.fixture
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_a_server(server: str, tls: ssl.SSLContext) -> None:
    assert fetch_http(f"{server}/keys?a=b", tls) == key_set()


def test_a_server_of_this_host_without_tls() -> None:
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        assert fetch_http(f"http://127.0.0.1:{http.server_port}/keys?a=b", None) == key_set()
        http.shutdown()
        thread.join()


def test_http_is_for_this_host_only() -> None:
    with pytest.raises(AssertionError):
        fetch_http("http://192.0.2.1/keys", None)


def test_a_token_without_a_key_id_fetches_the_keys_once() -> None:
    provider = Provider()
    provider.answers = [key_set(RSA)]
    for _ in range(3):
        assert len(provider.keys.with_key(None)) == 1
    assert provider.asked == 1


def test_redirects_are_not_followed_and_large_answers_are_refused(server: str, tls: ssl.SSLContext) -> None:
    with pytest.raises(OSError, match="status 302"):
        fetch_http(f"{server}/redirect", tls)
    with pytest.raises(OSError, match="status 404"):
        fetch_http(f"{server}/missing", tls)
    with pytest.raises(ValueError, match="larger than"):
        fetch_http(f"{server}/large", tls)


def test_a_server_with_an_unknown_certificate_is_refused(server: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        fetch_http(f"{server}/keys?a=b", None)
