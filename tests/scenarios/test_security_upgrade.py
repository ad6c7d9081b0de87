"""A cluster goes from PLAINTEXT to SASL_SSL by restarts of one broker at a time, under load, and loses nothing.

The steps are those of Kafka's documentation: open the secured listener beside the old one, move the clients, secure the
traffic between the brokers, close the old listener. One producer writes by PLAINTEXT until the old listener closes;
another one writes by SASL_SSL from the moment when that is open.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

import pytest
import trustme
from cluster_scenario_harness import Load, until
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.ports import free_port

BROKERS = (1, 2, 3)
_PARTITIONS = 3
_LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="b-secret";'
#: Step by step: the listeners, and the one by which brokers talk to each other.
STEPS = (
    (("PLAINTEXT",), "PLAINTEXT"),
    (("PLAINTEXT", "SASL_SSL"), "PLAINTEXT"),
    (("PLAINTEXT", "SASL_SSL"), "SASL_SSL"),
    (("SASL_SSL",), "SASL_SSL"),
)


class Brokers:
    """Three brokers and their ZooKeeper; each broker is restarted with the settings of the next step."""

    def __init__(self, folder):
        self._folder = folder
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
        self._ports = {(number, name): free_port() for number in BROKERS for name in ("PLAINTEXT", "SASL_SSL")}
        self.zookeeper = BrokerProcess(folder / "zookeeper", "--tick-time", "500", command="zookeeper")
        self._running = {}

    def start(self, number, step):
        listeners, between = STEPS[step]
        settings = {
            "broker.id": number,
            "zookeeper.connect": self.zookeeper.address,
            "listeners": ",".join(f"{name}://127.0.0.1:{self._ports[number, name]}" for name in listeners),
            "security.inter.broker.protocol": between,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.num.partitions": 3,
        }
        if "SASL_SSL" in listeners:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._folder / "server.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self._folder / "ca.pem",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _LOGIN,
            }
        path = self._folder / f"broker-{number}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return BrokerProcess(self._folder / f"broker-{number}", "--config", str(path), listen=None)

    def start_all(self):
        self._running = {number: self.start(number, 0) for number in BROKERS}

    def roll_to(self, step, is_in_sync):
        """Restarts one broker after the other; the next one waits until all replicas are in sync."""
        for number in BROKERS:
            assert self._running[number].terminate() == 0
            self._running[number].close()
            self._running[number] = self.start(number, step)
            until(is_in_sync, f"all replicas are in sync after broker {number}, step {step}")

    def client(self, name):
        """The settings of a client at that listener."""
        servers = ",".join(f"127.0.0.1:{self._ports[number, name]}" for number in BROKERS)
        settings = {"bootstrap.servers": servers, "security.protocol": name, "log_level": 0}
        if name == "SASL_SSL":
            settings |= {"ssl.ca.location": str(self._folder / "ca.pem"), "sasl.mechanism": "SCRAM-SHA-512"}
            settings |= {"sasl.username": "alice", "sasl.password": "a-secret"}
        return settings

    def log(self):
        return "\n".join(f"-- broker {number}\n{each.log[-3000:]}" for number, each in self._running.items())

    def close(self):
        for process in (*self._running.values(), self.zookeeper):
            process.close()


class SecuredTopic:
    """A topic that a :class:`Load` writes to."""

    partitions = _PARTITIONS

    def __init__(self, brokers, topic):
        self.topic = topic
        self.cluster = self
        self.bootstrap_servers = ""  # each load brings its own
        self._brokers = brokers

    def records(self):
        consumer = Consumer({**self._brokers.client("SASL_SSL"), "group.id": "reader", "enable.auto.commit": False})
        found = defaultdict(list)
        try:
            ends = [consumer.get_watermark_offsets(TopicPartition(self.topic, index), 10)[1] for index in range(3)]
            consumer.assign([TopicPartition(self.topic, index, 0) for index in range(_PARTITIONS)])
            while sum(map(len, found.values())) < sum(ends):
                messages = consumer.consume(1_000, 10)
                assert messages, "the records do not come"
                for message in messages:
                    assert message.error() is None, message.error()
                    found[message.partition()].append(int(message.value()))
        finally:
            consumer.close()
        return found


@pytest.fixture
def brokers(tmp_path):
    made = Brokers(tmp_path)
    try:
        made.start_all()
        yield made
    finally:
        made.close()


def in_sync(admin, topics):
    def condition():
        found = admin.list_topics(timeout=10)
        return len(found.brokers) == len(BROKERS) and all(
            len(one.isrs) == len(BROKERS) for topic in topics for one in found.topics[topic].partitions.values()
        )

    return condition


def create_users(admin):
    changes = [
        UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password)
        for user, password in (("broker", b"b-secret"), ("alice", b"a-secret"))
    ]
    for done in admin.alter_user_scram_credentials(changes).values():
        done.result(10)


@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(180)
def test_from_plaintext_to_sasl_ssl_nothing_is_lost(brokers):
    old_admin = AdminClient(brokers.client("PLAINTEXT"))
    topics = ("old", "new")
    for done in old_admin.create_topics([NewTopic(topic, _PARTITIONS, 3) for topic in topics]).values():
        done.result(20)
    create_users(old_admin)
    loads = [
        Load(SecuredTopic(brokers, topic), rate=500, **brokers.client(name))
        for topic, name in zip(topics, ("PLAINTEXT", "SASL_SSL"), strict=True)
    ]
    with ExitStack() as stack:
        stack.enter_context(loads[0])
        brokers.roll_to(1, in_sync(old_admin, topics))
        stack.enter_context(loads[1])
        new_admin = AdminClient(brokers.client("SASL_SSL"))
        brokers.roll_to(2, in_sync(new_admin, topics))
        loads[0].flows(100)
        loads[0].stop()
        brokers.roll_to(3, in_sync(new_admin, topics))
        loads[1].flows(100)
    for load in loads:
        load.check()


def test_a_broker_does_not_start_with_a_step_left_out(tmp_path):
    """The listener between brokers must be one of the broker's own."""
    path = tmp_path / "wrong.properties"
    path.write_text("listeners=PLAINTEXT://127.0.0.1:0\nsecurity.inter.broker.protocol=SASL_SSL\n")
    with pytest.raises(StartFailed, match=r"SASL_SSL"):
        BrokerProcess(tmp_path / "data", "--config", str(path), listen=None)
