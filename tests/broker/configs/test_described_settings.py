"""DescribeConfigs beside Apache Kafka 4.3: type, default, source, synonyms, and what is sensitive or read-only.

``kafka_described_settings.csv`` has what an Apache Kafka of one node answered for a topic with ``retention.ms`` and for
its broker. ``DIFFERENT`` has the reason of every answer that differs.
"""

import csv
from pathlib import Path

import pytest
from broker_harness import BROKER, TOPIC, Client

from headrace import Broker
from headrace.broker.configs.registry import without_meaning
from headrace.protocol.api import Api

FACTS = Path(__file__).parent / "kafka_described_settings.csv"
#: What the recorded node was told.
TOLD = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}
_OF_THE_NODE = "the node's own address, id or folder"
_NO_EFFECT = "the setting has no effect here, so DescribeConfigs says that it is read-only"
DIFFERENT = {
    "advertised.listeners": _OF_THE_NODE,
    "broker.id": _OF_THE_NODE,
    "listener.security.protocol.map": _OF_THE_NODE,
    "listeners": _OF_THE_NODE,
    "log.dirs": _OF_THE_NODE,
    "node.id": _OF_THE_NODE,
    "controller.listener.names": "there is no KRaft quorum",
    "group.coordinator.rebalance.protocols": "there are no streams groups",
    "group.initial.rebalance.delay.ms": "an embedded broker does not wait for more members",
    "file.delete.delay.ms": "an embedded broker deletes files at once",
    "log.segment.delete.delay.ms": "an embedded broker deletes files at once",
    "log.dir": "the default is ./headrace-data, and a broker without a folder is refused",
    "min.insync.replicas": "KRaft stores a cluster-wide default for eligible leader replicas",
    "log.local.retention.bytes": _NO_EFFECT,
    "log.local.retention.ms": _NO_EFFECT,
    "metric.reporters": "metrics are served at headrace.metrics.listener; the recorded node had a reporter",
    "ssl.engine.factory.class": _NO_EFFECT,
    "ssl.keymanager.algorithm": _NO_EFFECT,
    "ssl.provider": _NO_EFFECT,
    "ssl.secure.random.implementation": _NO_EFFECT,
    "ssl.trustmanager.algorithm": _NO_EFFECT,
}


@pytest.fixture(scope="module")
def described():
    with Broker(config=TOLD) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic(retention_ms=5000)
        found = {}
        for kind, label, name in ((TOPIC, "topic", topic), (BROKER, "broker", "0")):
            resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
            fields = {"include_synonyms": True, "include_documentation": True}
            (result,) = client.ask(Api.DESCRIBE_CONFIGS, 4, resources=[resource], **fields).results
            found.update({(label, entry.name): as_row(entry) for entry in result.configs})
        return found


def as_row(entry):
    return {
        "type": str(entry.config_type),
        "read_only": str(int(entry.read_only)),
        "sensitive": str(int(entry.is_sensitive)),
        "source": str(entry.config_source),
        "value": "null" if entry.value is None else entry.value,
        "synonyms": " ".join(f"{each.source}:{each.name}" for each in entry.synonyms),
        "documented": str(int(entry.documentation is not None)),
    }


def facts():
    with FACTS.open(encoding="utf-8", newline="") as file:
        return {(row.pop("kind"), row.pop("name")): row for row in csv.DictReader(file)}


def test_every_setting_is_described_as_by_apache_kafka(described):
    expected = facts()
    different = {
        key: (expected[key], row) for key, row in described.items() if key in expected and expected[key] != row
    }
    assert {name for _, name in different} <= DIFFERENT.keys(), different


def test_no_reason_is_outdated(described):
    expected = facts()
    different = {name for (kind, name), row in described.items() if expected.get((kind, name), row) != row}
    assert DIFFERENT.keys() == different


def test_no_difference_is_about_secrets_or_types(described):
    expected = facts()
    for key, row in described.items():
        if key in expected:
            assert (row["type"], row["sensitive"], row["documented"]) == (
                expected[key]["type"],
                expected[key]["sensitive"],
                expected[key]["documented"],
            ), key


def test_settings_that_are_not_described_have_a_reason(described):
    missing = {name for kind, name in facts() if kind == "broker" and ("broker", name) not in described}
    assert not [name for name in missing if without_meaning(name) is None]
    assert not [name for kind, name in facts() if kind == "topic" and ("topic", name) not in described]
