"""Three brokers answer clients as one does; each test is something that one did and three did not.

Suites of clients run on three brokers by ``HEADRACE_TEST_BROKERS=3`` (tests/interop) and ``script/interop cluster``.
"""

from pathlib import Path

import pytest
from cluster_scene import until

from headrace import Admin, Producer, TopicPartition
from headrace.client.admin_types import TopicPartitionReplica
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ClusterProcess(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_topics_that_are_not_there_cannot_be_deleted(cluster):
    for address in cluster.addresses.values():
        with RawClient(address) as client:
            topics = [{"name": "nowhere", "topic_id": None}]
            (answer,) = client.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=5_000).responses
            assert answer.error_code == ErrorCode.unknown_topic_or_partition
            assert client.ask(Api.DELETE_TOPICS, 6, topics=(), timeout=5_000).responses == ()


def test_any_replica_tells_of_its_producers(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("told", 1, 3)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("told", b"v").result(10)
        partition = TopicPartition("told", 0)
        for number in cluster.addresses:
            until(
                lambda number=number: admin.describe_producers([partition], broker_id=number)[partition],
                f"broker {number} has the record",
            )


def test_any_replica_moves_to_another_log_dir(tmp_path):
    with (
        BrokerProcess(tmp_path / "zookeeper", command="zookeeper") as zookeeper,
        BrokerProcess(tmp_path / "1", "--zookeeper", zookeeper.address, "--broker-id", "1") as leader,
        BrokerProcess(Path(f"{tmp_path}/2a,{tmp_path}/2b"), "--zookeeper", zookeeper.address, "--broker-id", "2"),
        Admin(bootstrap_servers=leader.address) as admin,
    ):
        admin.create_topic("moved", assignments={0: [1, 2]})

        def homes():
            return [path for path in (tmp_path / "2a", tmp_path / "2b") if (path / "moved-0").exists()]

        (before,) = until(homes, "the follower has it")
        (other,) = {tmp_path / "2a", tmp_path / "2b"} - {before}
        admin.alter_replica_log_dirs({TopicPartitionReplica("moved", 0, 2): str(other)})
        until(lambda: homes() == [other], "it has moved")
        with Producer(bootstrap_servers=leader.address, acks="all") as producer:
            producer.send("moved", b"v").result(10)


@pytest.mark.parametrize("name", ["zookeeper.ssl.client.enable", "zookeeper.set.acl"])
def test_safety_that_is_not_there_is_not_pretended(tmp_path, name):
    with pytest.raises(StartFailed, match=f"headrace: {name} is not there yet"):
        BrokerProcess(tmp_path, "--zookeeper", "127.0.0.1:1", "-o", f"{name}=true")
