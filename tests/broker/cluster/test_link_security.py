"""How brokers connect to each other: stores and credentials of their listener, read again when they change."""

import os

import pytest

from certificates import certificate
from headrace.broker.cluster.link_security import link_security
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SASL = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
}
JAAS = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"


def config(**settings):
    return BrokerConfig.load(settings)


def test_plain_text():
    assert link_security(config(listeners="PLAINTEXT://127.0.0.1:1")).protocol == "PLAINTEXT"


async def test_credentials_are_those_of_the_listeners_mechanism():
    security = link_security(config(**SASL, **{JAAS: f'{SCRAM} username="broker" password="s";'}))
    assert (security.protocol, security.credentials.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert b"n=broker" in (await security.credentials.begin()).first()


def test_missing_credentials_stop_the_broker():
    with pytest.raises(ConfigError, match=r"scram-sha-512\.sasl\.jaas\.config"):
        link_security(config(**SASL, **{JAAS: f'{SCRAM} username="broker";'}))


def test_new_connections_use_a_store_that_has_changed(tmp_path, caplog):
    settings = certificate().write(tmp_path)
    tls = {"security.inter.broker.protocol": "SSL", "listeners": "SSL://127.0.0.1:1"}
    security = link_security(config(**tls, **settings))
    assert security.protocol == "SSL"
    first = security.tls()
    assert security.tls() is first
    (tmp_path / "server-issuer.pem").write_text(certificate(issuer="two").issuer + certificate().issuer)
    second = security.tls()
    assert second is not first
    assert len(second.get_ca_certs()) == 2
    (tmp_path / "server-issuer.pem").write_text("broken")
    assert security.tls() is second
    assert "cannot be read again" in caplog.text


def test_a_store_that_is_not_there_stops_the_broker(tmp_path):
    settings = certificate().write(tmp_path)
    os.unlink(tmp_path / "server-issuer.pem")
    with pytest.raises(ConfigError, match=r"server-issuer\.pem"):
        link_security(config(listeners="SSL://127.0.0.1:1", **{"security.inter.broker.protocol": "SSL"}, **settings))
