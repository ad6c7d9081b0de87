"""The settings of listeners with SASL: what is refused before the broker starts, in one line without secrets."""

from __future__ import annotations

import pytest

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.properties import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LINE = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
BASE = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "SASL_PLAINTEXT"}


def load(**settings: str) -> BrokerConfig:
    return BrokerConfig.load({**BASE, **{name.replace("__", "."): value for name, value in settings.items()}})


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        {"sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256"},
        {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"},
        {"sasl.enabled.mechanisms": "PLAIN", LINE: f'{PLAIN} required user_alice="x";'},
        {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256", "sasl.jaas.config": f'{PLAIN} required user_alice="x";'},
    ],
    ids=str,
)
def test_accepted(settings: dict[str, str]) -> None:
    assert not load(**settings).unknown


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "GSSAPI is not supported, which is Kafka's default: set it to some of PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI is not supported"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5 is not supported"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "X"}, "listener.name.sasl_plaintext.sasl.enabled"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"no users: set {LINE}"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f"{PLAIN} required;"}, "no users"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f'{PLAIN} required user_a="hidden"'}, LINE),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: f'{SCRAM} required user_a="hidden";'}, "not the login module of"),
        ({"sasl.enabled.mechanisms": "PLAIN", LINE: 'com.example.Module required a="hidden";'}, "does not have"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": f'{SCRAM} required a="hidden";'}, "no users"),
    ],
    ids=str,
)
def test_refused(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(**settings)
    (line,) = error.value.problems
    assert expected in line
    assert "hidden" not in line


def test_a_listener_without_sasl_needs_nothing() -> None:
    assert BrokerConfig.load({"listeners": "PLAINTEXT://127.0.0.1:0"}).list("sasl.enabled.mechanisms") == ("GSSAPI",)


def test_brokers_of_a_cluster_need_credentials_for_each_other() -> None:
    cluster = {"zookeeper__connect": "127.0.0.1:1", "sasl__enabled__mechanisms": "SCRAM-SHA-256"}
    with pytest.raises(ConfigError, match=r"inter\.broker\.protocol is GSSAPI, but it has to be one of"):
        load(**cluster)
    with pytest.raises(ConfigError, match="there are no credentials: set username and password"):
        load(**cluster, sasl__mechanism__inter__broker__protocol="SCRAM-SHA-256")
