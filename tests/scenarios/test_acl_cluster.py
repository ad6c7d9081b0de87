"""Three brokers with ACLs: a change on one broker is in force on all of them within a second, and survives restarts."""

import time
from contextlib import ExitStack, closing

from cluster_scenario_harness import as_options, until

from headrace import Admin, Consumer, Producer
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclBinding, AclFilter, AclOperation, ResourceType
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="broker" password="b" user_broker="b" user_admin="c" user_alice="a";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker;User:admin",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
TOPIC = ResourceType.TOPIC
WITHIN_S = 1.0


def login(user, password, servers):
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


class Alice:
    """A bare connection of alice to one broker, so that no other broker answers instead."""

    def __init__(self, address):
        self._client = RawClient(address)
        self._client.ask(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert self._client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0a").error_code == 0

    def close(self):
        self._client.close()

    def sees(self, topic):
        asked = [{"topic_id": None, "name": topic}]
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        (found,) = self._client.ask(Api.METADATA, 12, topics=asked, **fields).topics
        assert found.error_code in (ErrorCode.none, ErrorCode.topic_authorization_failed)
        return found.error_code is ErrorCode.none


def wait_for_all(alices, topic, *, is_seen):
    began = time.monotonic()
    until(lambda: all(alice.sees(topic) is is_seen for alice in alices), f"{is_seen} everywhere")
    return time.monotonic() - began


def test_a_change_is_in_force_on_all_brokers_within_a_second(tmp_path):
    options = as_options(SETTINGS)
    made = ClusterProcess(tmp_path / "data", *options, protocol="SASL_PLAINTEXT", session_timeout_ms=3_000)
    with made as cluster, ExitStack() as stack:
        addresses = cluster.bootstrap_servers.split(",")
        alices = [stack.enter_context(closing(Alice(address))) for address in addresses]
        may_read = AclBinding.of(TOPIC, "orders", "User:alice", AclOperation.READ)
        with Admin(login("admin", "c", cluster.bootstrap_servers)) as admin:
            admin.create_topic("orders", num_partitions=3)
            assert not any(alice.sees("orders") for alice in alices)
            for _ in range(3):
                admin.create_acls([may_read]).all()
                assert wait_for_all(alices, "orders", is_seen=True) < WITHIN_S
                admin.delete_acls([AclFilter(TOPIC, "orders")]).all()
                assert wait_for_all(alices, "orders", is_seen=False) < WITHIN_S
            admin.create_acls(
                [
                    may_read,
                    AclBinding.of(TOPIC, "orders", "User:alice", AclOperation.WRITE),
                    AclBinding.of(ResourceType.GROUP, "g", "User:alice", AclOperation.READ),
                ]
            ).all()
        wait_for_all(alices, "orders", is_seen=True)
        client = login("alice", "a", cluster.bootstrap_servers)
        with Producer(client) as producer:
            for number in range(30):
                producer.send("orders", str(number).encode())
        assert cluster.stop(1) == 0
        cluster.restart(1)
        assert stack.enter_context(closing(Alice(addresses[0]))).sees("orders")
        with Consumer(config={**client, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["orders"])
            found = set()
            until(lambda: _more(consumer, found) == 30, "all records")


def _more(consumer, found):
    found.update(record.value for record in consumer.poll(500))
    return len(found)
