"""Clients of other projects on a broker with ACLs: what they may do, what they may not, and their admin methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import kafka.errors
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headrace import Admin, Broker
from headrace.security import acls

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
)
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "transaction.state.log.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
}
WITHIN_S = 20
DENIED = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
Op, Kind = acls.AclOperation, acls.ResourceType


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker(config=CONFIG) as broker, Admin(options(broker.bootstrap_servers, "admin")) as admin:
        for topic in ("orders", "secrets"):
            admin.create_topic(topic)
        admin.create_acls(
            [
                acls.AclBinding.of(Kind.TOPIC, "orders", "User:alice", Op.WRITE),
                acls.AclBinding.of(Kind.TOPIC, "orders", "User:alice", Op.READ),
                acls.AclBinding.of(Kind.GROUP, "shop-", "User:alice", Op.READ, pattern_type=acls.PatternType.PREFIXED),
                acls.AclBinding.of(Kind.TRANSACTIONAL_ID, "t", "User:alice", Op.WRITE),
            ]
        ).all()
        yield broker.bootstrap_servers


def options(address: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def python_options(address: str, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-secret",
    }


def produced(producer: confluent_kafka.Producer, topic: str) -> int:
    """The code of the delivery: 0 if the record was stored."""
    codes: list[int] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(WITHIN_S)
    return codes[0]


@pytest.mark.parametrize("idempotent", [True, False])
def test_confluent_produces_only_where_it_may(address: str, idempotent: bool) -> None:
    producer = confluent_kafka.Producer({**options(address, "alice"), "enable.idempotence": idempotent})
    assert produced(producer, "orders") == 0
    assert produced(producer, "secrets") == DENIED
    assert produced(producer, "never-there") == DENIED


def test_confluent_transactions(address: str) -> None:
    producer = confluent_kafka.Producer({**options(address, "alice"), "transactional.id": "t"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    assert produced(producer, "orders") == 0
    producer.commit_transaction(WITHIN_S)
    other = confluent_kafka.Producer({**options(address, "alice"), "transactional.id": "another"})
    with pytest.raises(confluent_kafka.KafkaException) as failure:
        other.init_transactions(WITHIN_S)
    assert failure.value.args[0].code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_consumes_only_what_it_may(address: str, protocol: str) -> None:
    producer = confluent_kafka.Producer(options(address, "alice"))
    assert produced(producer, "orders") == 0
    more = {"auto.offset.reset": "earliest", "group.protocol": protocol}
    consumer = confluent_kafka.Consumer({**options(address, "alice"), "group.id": f"shop-{protocol}", **more})
    consumer.subscribe(["^(orders|secrets)$"])
    record = consumer.poll(WITHIN_S)
    assert record is not None
    assert (record.error(), record.topic()) == (None, "orders")
    assert {part.topic for part in consumer.assignment()} == {"orders"}
    consumer.close()
    stranger = confluent_kafka.Consumer({**options(address, "alice"), "group.id": "other", **more})
    stranger.subscribe(["orders"])
    failed = stranger.poll(WITHIN_S)
    assert failed is not None
    assert failed.error().code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    stranger.close()


def test_bob_sees_no_topic(address: str) -> None:
    admin = AdminClient(options(address, "bob"))
    assert set(admin.list_topics(timeout=WITHIN_S).topics) == set()
    python = kafka.KafkaConsumer(**python_options(address, "bob"))
    assert python.topics() == set()
    python.close()


def test_confluent_manages_acls(address: str) -> None:
    admin = AdminClient(options(address, "admin"))
    acl = AclBinding(
        ResourceType.TOPIC, "invoices", ResourcePatternType.PREFIXED, "User:bob", "10.0.0.1", AclOperation.ALTER,
        AclPermissionType.DENY,
    )  # fmt: skip
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "invoices-2026", ResourcePatternType.MATCH, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    for future in admin.create_acls([acl]).values():
        assert future.result(WITHIN_S) is None
    assert admin.describe_acls(wanted).result(WITHIN_S) == [acl]
    for future in admin.delete_acls([wanted]).values():
        assert future.result(WITHIN_S) == [acl]
    assert admin.describe_acls(wanted).result(WITHIN_S) == []
    bob = AdminClient(options(address, "bob"))
    (denied,) = bob.create_acls([acl]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        denied.result(WITHIN_S)


def test_kafka_python_manages_acls(address: str) -> None:
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourcePatternFilter
    from kafka.admin import ACLResourcePatternType as PatternType
    from kafka.admin import ResourceType as PythonType

    admin = kafka.KafkaAdminClient(**python_options(address, "admin"))
    acl = ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.ALLOW, ResourcePattern(PythonType.GROUP, "python"))
    pattern = ResourcePatternFilter(PythonType.GROUP, "python", PatternType.LITERAL)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    assert admin.create_acls([acl])["failed"] == []
    found, _ = admin.describe_acls(wanted)
    assert [each.principal for each in found] == ["User:bob"]
    admin.delete_acls([wanted])
    assert admin.describe_acls(wanted)[0] == []
    admin.close()
