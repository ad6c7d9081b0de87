"""Three brokers with logins and ACLs: changes reach all of them, and clients that act as brokers are denied.

Brokers and clients log in by PLAIN and by SCRAM on a listener without TLS, which is all that these rules need.
"""

from __future__ import annotations

import time

import pytest
from acls.cells import ALLOW, LITERAL, Kind, Op
from acls.rows_records import batch, produce_fields
from acls.session import LoginFailed, Session
from cluster_scenario_harness import until

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.ports import free_port

BROKERS = (1, 2, 3)
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = 'username="admin" password="matrix-secret" user_admin="matrix-secret" user_mallory="matrix-secret"'
_TOPIC = "guarded"


class SecuredCluster:
    """Users log in by PLAIN with one password; ``admin`` is the super user and the user of the brokers."""

    def __init__(self, folder):
        self._addresses = {number: f"127.0.0.1:{free_port()}" for number in BROKERS}
        self._zookeeper = BrokerProcess(folder / "zookeeper", "--tick-time", "500", command="zookeeper")
        self.brokers = {}
        for number in BROKERS:
            settings = {
                "broker.id": number,
                "zookeeper.connect": self._zookeeper.address,
                "listeners": f"SASL_PLAINTEXT://{self._addresses[number]}",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_MODULE} {_USERS};",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:admin",
                "replica.lag.time.max.ms": 30_000,
            }
            path = folder / f"broker-{number}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            self.brokers[number] = BrokerProcess(folder / f"broker-{number}", "--config", str(path), listen=None)

    def session(self, number, user):
        return Session(self._addresses[number], user)

    def leader(self):
        """The topic's leader and its first follower; the topic is created if it is not there."""
        with self.session(1, "admin") as admin:
            topic = {"name": _TOPIC, "num_partitions": 1, "replication_factor": 3, "assignments": (), "configs": ()}
            admin.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=20_000, validate_only=False)
            found = until(lambda: self._partition(admin), "the topic has a leader and three replicas in sync")
        return found.leader_id, next(each for each in found.replica_nodes if each != found.leader_id)

    def _partition(self, admin):
        topics = [{"topic_id": None, "name": _TOPIC}]
        fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        (topic,) = admin.ask(Api.METADATA, 12, topics=topics, **fields).topics
        (partition,) = topic.partitions or (None,)
        return partition if partition and partition.leader_id > 0 and len(partition.isr_nodes) == 3 else None

    def close(self):
        for process in (*self.brokers.values(), self._zookeeper):
            process.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = SecuredCluster(tmp_path_factory.mktemp("secured-cluster"))
    yield made
    made.close()


pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(120)]


def rule(operation):
    return {
        "resource_type": int(Kind.TOPIC), "resource_name": _TOPIC, "resource_pattern_type": LITERAL,
        "principal": "User:mallory", "host": "*", "operation": int(operation), "permission_type": ALLOW,
    }  # fmt: skip


def fetch(session, replica_id, offset):
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
        "log_start_offset": 0, "partition_max_bytes": 1_000_000,
    }  # fmt: skip
    answer = session.ask(
        Api.FETCH, 12, cluster_id=None, replica_id=replica_id, max_wait=0, min_bytes=0, max_bytes=1_000_000,
        isolation_level=0, session_id=0, session_epoch=-1, forgotten_topics_data=(), rack_id="",
        topics=[{"topic": _TOPIC, "partitions": [partition]}],
    )  # fmt: skip
    return answer.responses[0].partitions[0]


def test_a_client_that_fetches_as_a_replica_is_denied_and_commits_nothing(cluster):
    """CVE-2018-1288: with a follower's id a client could pretend that the follower has records, and lose them."""
    leader, follower = cluster.leader()
    with cluster.session(leader, "admin") as admin, cluster.session(leader, "mallory") as mallory:
        admin.ask(Api.CREATE_ACLS, 3, creations=[rule(Op.READ)])
        until(lambda: fetch(mallory, -1, 0).error_code == 0, "mallory may read")
        committed = fetch(admin, -1, 0).high_watermark
        cluster.brokers[follower].pause()
        try:
            admin.ask(Api.PRODUCE, 12, **{**produce_fields({_TOPIC: batch()}), "acks": 1})
            denied = fetch(mallory, follower, committed + 1)
            assert denied.error_code == ErrorCode.topic_authorization_failed
            assert fetch(mallory, -1, 0).high_watermark == committed
        finally:
            cluster.brokers[follower].resume()
        until(lambda: fetch(admin, -1, 0).high_watermark == committed + 1, "the real follower has the record")


def test_a_client_may_not_send_the_requests_of_a_controller_or_of_a_broker(cluster):
    with cluster.session(1, "mallory") as mallory:
        common = {"controller_id": 1, "is_k_raft_controller": False, "controller_epoch": 1_000, "broker_epoch": -1}
        answers = [
            mallory.ask(Api.LEADER_AND_ISR, 7, **common, type=0, topic_states=(), live_leaders=()),
            mallory.ask(Api.STOP_REPLICA, 4, **common, topic_states=()),
            mallory.ask(Api.UPDATE_METADATA, 8, **common, type=0, topic_states=(), live_brokers=()),
            mallory.ask(Api.CONTROLLED_SHUTDOWN, 3, broker_id=2, broker_epoch=-1),
        ]
    assert [answer.error_code for answer in answers] == [ErrorCode.cluster_authorization_failed] * 4


def test_a_rule_is_in_force_on_all_brokers_within_a_second(cluster):
    leader, _ = cluster.leader()
    others = [number for number in BROKERS if number != leader]
    with cluster.session(others[0], "admin") as admin, cluster.session(leader, "mallory") as mallory:
        write = produce_fields({_TOPIC: batch()})

        def code():
            return mallory.ask(Api.PRODUCE, 12, **write).responses[0].partition_responses[0].error_code

        assert code() == ErrorCode.topic_authorization_failed
        admin.ask(Api.CREATE_ACLS, 3, creations=[rule(Op.WRITE)])
        created = time.monotonic()
        until(lambda: code() == 0, "mallory may write")
        assert time.monotonic() - created < 1.0
        filters = {
            "resource_type_filter": int(Kind.TOPIC), "resource_name_filter": _TOPIC, "pattern_type_filter": LITERAL,
            "principal_filter": "User:mallory", "host_filter": None, "operation": int(Op.WRITE), "permission_type": 1,
        }  # fmt: skip
        admin.ask(Api.DELETE_ACLS, 3, filters=[filters])
        deleted = time.monotonic()
        until(lambda: code() == ErrorCode.topic_authorization_failed, "mallory may not write any more")
        assert time.monotonic() - deleted < 1.0


def test_a_wrong_password_is_refused_by_every_broker(cluster):
    for number in BROKERS:
        with pytest.raises(LoginFailed, match="sasl_authentication_failed"):
            Session(cluster._addresses[number], "mallory", "wrong")
