"""Three brokers answer clients as one broker does. Each test is a case where one broker was right and three were not.

The suites of clients run on three brokers by ``HEADRACE_TEST_BROKERS=3`` (tests/interop) and ``script/interop
cluster``.
"""

import re
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster_scenario_harness import until
from prometheus_client.parser import text_string_to_metric_families

from headrace import Admin, Producer, TopicPartition
from headrace.client.admin.types import TopicPartitionReplica
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), "--metrics", "127.0.0.1:0") as made:
        yield made


def test_topics_that_are_not_there_cannot_be_deleted(cluster):
    for address in cluster.addresses.values():
        with RawClient(address) as client:
            topics = [{"name": "nowhere", "topic_id": None}]
            (answer,) = client.ask(Api.DELETE_TOPICS, 6, topics=topics, timeout=5_000).responses
            assert answer.error_code == ErrorCode.unknown_topic_or_partition
            assert client.ask(Api.DELETE_TOPICS, 6, topics=(), timeout=5_000).responses == ()


def test_whoever_has_no_replica_says_that_it_does_not_lead(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("at-one", assignments={0: [1]})
    with RawClient(cluster.addresses[2]) as client:
        asked = [{"name": "at-one", "partitions": [{"partition_index": index, "timestamp": -1} for index in (0, 1)]}]
        answer = client.ask(Api.LIST_OFFSETS, 1, replica_id=-1, topics=asked)
    codes = {found.partition_index: found.error_code for found in answer.topics[0].partitions}
    assert codes == {0: ErrorCode.not_leader_or_follower, 1: ErrorCode.unknown_topic_or_partition}


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


def test_what_one_broker_has_done_the_others_know(cluster):
    """A client may ask any of them next, and some do not ask twice."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(address)) for address in cluster.addresses.values()]
        for number in range(12):
            name = f"known-{number}"
            maker = clients[number % 3]
            topic = {"name": name, "num_partitions": 2, "replication_factor": 3, "assignments": (), "configs": ()}
            maker.ask(Api.CREATE_TOPICS, 5, topics=[topic], timeout=10_000, validate_only=False)
            assert [len(found.partitions) for found in described(clients, name)] == [2, 2, 2]
            more = {"name": name, "count": 5, "assignments": None}
            maker.ask(Api.CREATE_PARTITIONS, 2, topics=[more], timeout=10_000, validate_only=False)
            assert [len(found.partitions) for found in described(clients, name)] == [5, 5, 5]
            maker.ask(Api.DELETE_TOPICS, 4, topic_names=[name], timeout=10_000)
            gone = [found.error_code for found in described(clients, name)]
            assert gone == [ErrorCode.unknown_topic_or_partition] * 3


def scraped(cluster, number):
    (url,) = re.findall(r"serving metrics at (\S+)", cluster.log(number))
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_metrics_tell_what_goes_on_between_brokers(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("counted", 1, 3)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send("counted", b"v" * 10_000).result(10)
    found = [scraped(cluster, number) for number in cluster.brokers]
    replicated = "kafka_server_brokertopicmetrics_replicationbytes{}_total"
    for way in ("in", "out"):
        assert sum(one[(replicated.format(way),)] for one in found) >= 20_000, way
    queue = "kafka_controller_controllerchannelmanager_{}"
    (controller,) = [one for one in found if one[("kafka_controller_kafkacontroller_activecontrollercount",)] == 1]
    for number in cluster.brokers:
        assert controller[queue.format("requestrateandqueuetimems_count"), str(number)] > 0
        assert (queue.format("queuesize"), str(number)) in controller
    assert (queue.format("totalqueuesize"),) in controller


def described(clients, name):
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    return [client.ask(Api.METADATA, 7, **asked).topics[0] for client in clients]
