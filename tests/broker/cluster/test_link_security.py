"""Connections between brokers: stores and credentials of their listener, read again when they change."""

import asyncio
import os
import ssl

import pytest

from certificates import certificate
from headrace.broker.cluster.link_security import link_security as security_of_links
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError
from headrace.security.tls import TlsOptions, server_context
from headrace.security.tls.handshake import shake_hands
from token_harness import answer, endpoint

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


def link_security(settings):
    return security_of_links(settings, asyncio.to_thread)


def test_plain_text():
    assert link_security(config(listeners="PLAINTEXT://127.0.0.1:1")).protocol == "PLAINTEXT"


async def test_credentials_are_those_of_the_listeners_mechanism():
    security = link_security(config(**SASL, **{JAAS: f'{SCRAM} username="broker" password="s";'}))
    assert (security.protocol, security.credentials.mechanism) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert b"n=broker" in (await security.credentials.begin()).first()


async def test_all_connections_share_a_token_and_its_successor():
    line = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    validator = 'unsecuredValidatorAllowableClockSkewMs="0"'
    with endpoint(answer("a.b.c", expires_in=600), answer("d.e.f", expires_in=0)) as (url, asked):
        made = config(
            **SASL
            | {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": url,
                "org.apache.kafka.sasl.oauthbearer.allowed.urls": url,
                line: f'{module} clientId="broker" clientSecret="s" {validator};',
            }
        )
        security = link_security(made)
        for _ in range(3):
            assert b"auth=Bearer a.b.c" in (await security.credentials.begin()).first()
        assert len(asked) == 1
        made.apply_dynamic({line: f'{module} clientId="other" clientSecret="s" {validator};'}, {})
        for count in (2, 3):  # a token that has ended is used for one login
            assert b"auth=Bearer d.e.f" in (await security.credentials.begin()).first()
            assert len(asked) == count
    assert asked[0][1] != asked[1][1]


def test_missing_credentials_stop_the_broker():
    with pytest.raises(ConfigError, match=r"scram-sha-512\.sasl\.jaas\.config"):
        link_security(config(**SASL, **{JAAS: f'{SCRAM} username="broker";'}))


async def test_a_changed_store_counts_when_settings_are_sent_again(tmp_path, caplog):
    """As in Kafka, a changed file alone changes nothing: it may be half written."""
    settings = certificate().write(tmp_path)
    tls = {"security.inter.broker.protocol": "SSL", "listeners": "SSL://127.0.0.1:1"}
    made = config(**tls, **settings)
    security = link_security(made)
    assert security.protocol == "SSL"
    first = security.tls()
    await made.sent_again()
    assert security.tls() is first
    (tmp_path / "server-issuer.pem").write_text(certificate(issuer="two").issuer + certificate().issuer)
    assert security.tls() is first
    await made.sent_again()
    second = security.tls()
    assert second is not first
    assert len(second.get_ca_certs()) == 2
    (tmp_path / "server-issuer.pem").write_text("broken")
    await made.sent_again()
    assert security.tls() is second
    assert "the client of other brokers keeps its key and trust stores" in caplog.text


async def test_a_changed_setting_counts_at_once(tmp_path):
    settings = certificate().write(tmp_path)
    made = config(**{"security.inter.broker.protocol": "SSL", "listeners": "SSL://127.0.0.1:1"}, **settings)
    security = link_security(made)
    first = security.tls()
    (tmp_path / "two.pem").write_text(certificate(issuer="two").issuer + certificate().issuer)
    made.apply_dynamic({"listener.name.ssl.ssl.truststore.location": str(tmp_path / "two.pem")}, {})
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert security.tls() is not first
    assert len(security.tls().get_ca_certs()) == 2


def test_a_store_that_is_not_there_stops_the_broker(tmp_path):
    settings = certificate().write(tmp_path)
    os.unlink(tmp_path / "server-issuer.pem")
    with pytest.raises(ConfigError, match=r"server-issuer\.pem"):
        link_security(config(listeners="SSL://127.0.0.1:1", **{"security.inter.broker.protocol": "SSL"}, **settings))


async def test_another_mechanism_counts_for_the_next_login():
    """sasl.mechanism.inter.broker.protocol"""
    settings = {**SASL, "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN"}
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = f'{plain} user_b="s" username="b" password="s";'
    made = config(**settings, **{JAAS: f'{SCRAM} username="a" password="s";'})
    credentials = link_security(made).credentials
    assert (await credentials.begin()).name == credentials.mechanism == "SCRAM-SHA-512"
    made.apply_dynamic({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, {})
    assert (await credentials.begin()).name == credentials.mechanism == "PLAIN"


async def test_settings_of_the_tls_client_count_for_the_next_connection(tmp_path):
    """ssl.protocol, ssl.endpoint.identification.algorithm: shown by handshakes with a broker of another name."""
    elsewhere = TlsOptions.from_settings(certificate("elsewhere").write(tmp_path, "elsewhere"))
    settings = certificate().write(tmp_path)
    made = config(**{"security.inter.broker.protocol": "SSL", "listeners": "SSL://127.0.0.1:1"}, **settings)
    security = link_security(made)

    def version(server):
        client, _ = shake_hands(security.tls(), server_context(server), "localhost")
        return client.version()

    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        version(elsewhere)
    assert version(TlsOptions.from_settings(settings)) == "TLSv1.3"
    made.apply_dynamic({"ssl.protocol": "TLSv1.2", "ssl.endpoint.identification.algorithm": ""}, {})
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    assert version(elsewhere) == "TLSv1.2"
