"""Queries over HTTP with TLS and credentials, and clients that are slow or hostile."""

import http.client
import logging
import socket
import ssl
import threading
from argparse import Namespace
from contextlib import suppress

import pytest
import trustme

from headrace.http_endpoints.access import Access
from headrace.http_endpoints.asgi_protection import MAX_HEAD_BYTES, BoundedProtocol
from headrace.http_endpoints.protection import Protection
from headrace.pipeline.runner.metrics_server import MetricsServer
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.http.server import HttpServer
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.tools.shared.http_options import protection_of
from headrace.tools.views.command import main, parser

TOKEN = "readers-token"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def serve(tmp_path):
    opened = []

    def start(protection):
        server = HttpServer(f"sqlite:///{tmp_path}/views.db", protection=protection)
        thread = threading.Thread(target=server.run)
        thread.start()
        opened.append((server, thread))
        return server.port

    yield start
    for server, thread in opened:
        server.stop()
        thread.join(20)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A PEM file with key and certificate, and a context that trusts it."""
    authority = trustme.CA()
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return str(file), context


def get(connection, path="/", *, method="GET", body=None, headers=None):
    try:
        connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def plain(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=10)


def test_a_query_needs_the_credentials(serve, caplog):
    caplog.set_level(logging.DEBUG)
    port = serve(Protection(access=Access(TOKEN, "anna:secret-word")))
    status, body, headers = get(plain(port), "/query?sql=SELECT%201")
    assert (status, body) == (401, b'{"error":"wrong or missing credentials","kind":"unauthorized"}')
    assert headers.get_all("WWW-Authenticate") == ['Bearer realm="headrace"', 'Basic realm="headrace", charset="UTF-8"']
    assert get(plain(port), headers={"Authorization": "Bearer wrong-token"})[0] == 401
    assert get(plain(port), "/query", method="POST", body=b"x" * 100_000)[0] == 401
    assert get(plain(port), headers=AUTHORIZED)[0] == 200
    assert get(plain(port), headers={"Authorization": "Basic YW5uYTpzZWNyZXQtd29yZA=="})[0] == 200
    assert not any(secret in caplog.text for secret in (TOKEN, "wrong-token", "YW5uYT", "secret-word"))


def test_two_authorization_headers_are_refused(serve):
    port = serve(Protection(access=Access(TOKEN)))
    line = f"Authorization: Bearer {TOKEN}\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + line * 2 + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 401")


def test_queries_over_tls(serve, tls):
    file, context = tls
    port = serve(Protection(file, access=Access(TOKEN)))
    assert get(http.client.HTTPSConnection("127.0.0.1", port, context=context))[0] == 401
    assert get(http.client.HTTPSConnection("127.0.0.1", port, context=context), headers=AUTHORIZED)[0] == 200
    with pytest.raises((http.client.BadStatusLine, ConnectionError)):
        get(plain(port), headers=AUTHORIZED)


def issue(file):
    """Writes a certificate with its key, and returns a context that trusts it."""
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_a_renewed_certificate_is_used_without_a_restart(serve, tmp_path):
    file = tmp_path / "both.pem"
    old = issue(file)
    port = serve(Protection(str(file)))
    assert get(http.client.HTTPSConnection("127.0.0.1", port, context=old))[0] == 200
    new = issue(file)
    assert get(http.client.HTTPSConnection("127.0.0.1", port, context=new))[0] == 200


def test_an_address_that_others_reach_needs_protection(tmp_path, tls):
    url, metrics = f"sqlite:///{tmp_path}/views.db", PipelineMetrics()
    for make in (lambda p: HttpServer(url, "0.0.0.0", 0, p), lambda p: MetricsServer(metrics, "0.0.0.0", 0, p)):
        with pytest.raises(ServingError, match="there is no TLS and no password; give --tls-certificate"):
            make(None)
        with pytest.raises(ServingError, match="there is no TLS; give --tls-certificate"):
            make(Protection(access=Access(TOKEN)))
        with pytest.raises(ServingError, match="there is no password; give --tls-certificate"):
            make(Protection(tls[0]))
    MetricsServer(metrics, "0.0.0.0", 0, Protection(tls[0], access=Access(TOKEN))).close()
    MetricsServer(metrics, "0.0.0.0", 0, Protection(allows_insecure=True)).close()


def test_metrics_of_views_need_the_credentials():
    server = MetricsServer(PipelineMetrics(), "127.0.0.1", 0, Protection(access=Access(TOKEN)))
    assert get(plain(server.port), "/metrics")[0] == 401
    assert get(plain(server.port), "/metrics", headers=AUTHORIZED)[0] == 200
    server.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_request_has_to_arrive_in_time(serve, monkeypatch, sent):
    monkeypatch.setattr(BoundedProtocol, "request_seconds", 0.2)
    port = serve(Protection())
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(sent)
        with suppress(ConnectionResetError):  # closed, too
            assert slow.recv(100) == b""
    assert get(plain(port))[0] == 200


def test_a_slow_client_does_not_stop_the_others(serve, tls):
    file, context = tls
    port = serve(Protection(file))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(b"\x16\x03\x01")
        assert get(http.client.HTTPSConnection("127.0.0.1", port, context=context))[0] == 200


def test_a_head_that_is_too_large_is_refused(serve):
    port = serve(Protection())
    with socket.create_connection(("127.0.0.1", port), timeout=10) as hostile:
        hostile.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * (MAX_HEAD_BYTES + 10))
        assert hostile.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "command",
    [["serve", "--listen", "0.0.0.0:0"], ["run", "--serve", "0.0.0.0:0"], ["run", "--metrics-listen", "0.0.0.0:0"]],
)
def test_the_command_refuses_at_once(tmp_path, command, capsys):
    """Before Spark starts, and with the exit code of wrong usage."""
    (tmp_path / "headrace.toml").write_text("[log]\n")
    assert main([*command, "--project", str(tmp_path)]) == 2
    assert "other hosts can reach 0.0.0.0, and there is no TLS and no password" in capsys.readouterr().err
    assert main([*command, "--project", str(tmp_path), "--tls-certificate", str(tmp_path / "no.pem")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_the_options_of_the_command(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    arguments = ["--tls-certificate", "a.pem", "--tls-key", "a.key", "--bearer-token-file", str(tmp_path / "token")]
    for command in ("serve", "run"):
        options = parser().parse_args([command, *arguments])
        assert protection_of(options, {}) == Protection("a.pem", "a.key", access=Access(TOKEN))
    none = dict.fromkeys(("tls_certificate", "tls_key", "bearer_token_file", "basic_auth_file"))
    environment = {"HEADRACE_HTTP_BEARER_TOKEN": TOKEN, "HEADRACE_HTTP_BASIC_AUTH": "a:b"}
    assert protection_of(Namespace(**none, insecure=True), environment) == Protection(
        access=Access(TOKEN, "a:b"), allows_insecure=True
    )
