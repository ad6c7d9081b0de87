"""A broker's metrics with TLS and credentials, as its settings say."""

import http.client
import logging
import ssl

import pytest
import trustme

from headrace import Broker
from headrace.broker.broker import StartError

TOKEN = "scraper-token"


def test_metrics_over_tls_with_a_token(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    (tmp_path / "token").write_text(TOKEN)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    settings = {
        "headrace.metrics.listener": "0.0.0.0:0",
        "headrace.metrics.ssl.certificate.location": str(tmp_path / "both.pem"),
        "headrace.metrics.bearer.token.file": str(tmp_path / "token"),
    }
    with Broker(config=settings) as broker:
        port = broker.core.metrics_exporter.endpoint[1]
        answers = {}
        for token in ("wrong", TOKEN):
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answers[token] = answer.status, b"kafka_server_brokertopicmetrics" in answer.read()
            connection.close()
    assert answers == {"wrong": (401, False), TOKEN: (200, True)}
    assert TOKEN not in caplog.text


def test_an_address_that_others_reach_needs_protection(monkeypatch):
    asked = {"headrace.metrics.listener": "0.0.0.0:0"}
    with pytest.raises(StartError) as caught:
        Broker(config=asked).start()
    assert str(caught.value).startswith(
        "cannot serve metrics on 0.0.0.0:0: other hosts can reach 0.0.0.0, and there is no TLS and no password; set "
    )
    assert "headrace.metrics.allow.insecure=true" in str(caught.value)
    with Broker(config={**asked, "headrace.metrics.allow.insecure": "true"}) as broker:
        assert broker.core.metrics_exporter is not None
    monkeypatch.setenv("HEADRACE_METRICS_BASIC_AUTH", "anna:secret")
    with pytest.raises(StartError, match="there is no TLS; set "):
        Broker(config=asked).start()


def test_a_password_of_the_environment_is_in_force_on_loopback(monkeypatch):
    monkeypatch.setenv("HEADRACE_METRICS_BASIC_AUTH", "anna:secret")
    with Broker(config={"headrace.metrics.listener": "127.0.0.1:0"}) as broker:
        connection = http.client.HTTPConnection(*broker.core.metrics_exporter.endpoint, timeout=10)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("WWW-Authenticate")) == (401, 'Basic realm="headrace", charset="UTF-8"')
        connection.close()


def test_a_secret_that_cannot_be_read_is_one_line(tmp_path):
    asked = {"headrace.metrics.listener": "127.0.0.1:0", "headrace.metrics.bearer.token.file": str(tmp_path / "no")}
    with pytest.raises(StartError, match=r"^cannot serve metrics on 127.0.0.1:0: cannot read .*/no: No such file"):
        Broker(config=asked).start()
