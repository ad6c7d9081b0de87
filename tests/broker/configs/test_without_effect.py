"""Settings of listeners that are accepted, and protect nothing: the broker says so."""

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.without_effect import without_effect

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'
SECURED = {
    "listeners": "OUTER://127.0.0.1:0",
    "listener.security.protocol.map": "OUTER:SASL_SSL",
    "inter.broker.listener.name": "OUTER",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.outer.plain.sasl.jaas.config": JAAS,
    "listener.name.outer.ssl.keystore.type": "PEM",
}


def lines(tmp_path, **settings):
    return list(without_effect(BrokerConfig.load({"log.dirs": str(tmp_path), **SECURED, **settings})))


def test_settings_that_are_in_force(tmp_path):
    assert lines(tmp_path, **{"listener.name.outer.ssl.client.auth": "required", "ssl.client.auth": "required"}) == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("listener.name.outr.ssl.client.auth", "required", "there is no such listener"),
        ("listener.name.OUTER.ssl.client.auth", "required", "in lower case"),
        ("listener.name.outer.plian.connections.max.reauth.ms", "1000", "plian is not one of"),
        ("ssl.client.auth", "required", "clients log in there by SASL"),
        ("metric.reporters", "com.foo.Bar", "metrics are served at headrace.metrics.listener"),
    ],
)
def test_settings_without_effect(tmp_path, name, value, reason):
    (line,) = lines(tmp_path, **{name: value})
    assert line.startswith(name)
    assert reason in line


def test_stores_for_a_connection_to_zookeeper_that_is_not_encrypted(tmp_path):
    stores = {
        "zookeeper.connect": "zk:2181",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "zookeeper.ssl.truststore.location": "ca.pem",
    }
    (line,) = lines(tmp_path, **stores)
    assert line.startswith("zookeeper.ssl.truststore.location has no effect: the connection to ZooKeeper is not")
    assert lines(tmp_path, **stores, **{"zookeeper.ssl.client.enable": "true"}) == []
    assert lines(tmp_path, **stores | {"zookeeper.connect": ""}) == [], "a broker alone has no such connection"


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("ssl.client.auth", "required", "TLS"),
        ("ssl.keystore.location", "server.p12", "TLS"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512", "logins"),
        ("sasl.jaas.config", JAAS, "logins"),
    ],
)
def test_settings_of_tls_and_logins_without_a_listener_that_has_them(tmp_path, name, value, feature):
    (line,) = without_effect(BrokerConfig.load({"log.dirs": str(tmp_path), name: value}))
    assert line.startswith(f"{name} has no effect: no listener has {feature}")
    assert JAAS not in line
    assert lines(tmp_path, **{"listener.name.outer.ssl.client.auth": "none", name: value}) == []


def test_settings_that_ask_for_nothing_need_no_listener(tmp_path):
    asked = {"log.dirs": str(tmp_path), "ssl.client.auth": "none", "sasl.enabled.mechanisms": ""}
    assert list(without_effect(BrokerConfig.load(asked))) == []
