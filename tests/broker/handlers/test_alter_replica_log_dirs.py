"""AlterReplicaLogDirs: a partition moves to another folder of its broker."""

import pytest
from broker_harness import BROKER, NOW_MS, OTHER_KAFKA, Client, all_versions, batch, headers, on_loop, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock

_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def client(request, tmp_path, address):
    """Of a broker with two log dirs, which every Kafka that these tests are run against must have too."""
    if OTHER_KAFKA:
        with Client(OTHER_KAFKA) as made:
            yield made
        return
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker(config={"log.dirs": folders}) as broker, Client(broker.bootstrap_servers) as made:
        made.broker = broker
        yield made


def alter(client, path, topic, partition=0, version=2):
    wanted = [{"path": path, "topics": [{"name": topic, "partitions": [partition]}]}]
    (result,) = client.ask(Api.ALTER_REPLICA_LOG_DIRS, version, dirs=wanted).results
    assert result.topic_name == topic
    (answer,) = result.partitions
    assert answer.partition_index == partition
    return answer.error_code


def places(client, topic):
    """Where the partition is, and where it goes."""
    wanted = [{"topic": topic, "partitions": [0]}]
    current, future = [], []
    for result in client.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=wanted).results:
        for found in result.topics:
            for part in found.partitions:
                (future if part.is_future_key else current).append((result.log_dir, part))
    return current, future


def other_dir(client, topic):
    ((current, _),), _ = places(client, topic)
    paths = [result.log_dir for result in client.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=[]).results]
    return next(path for path in paths if path != current)


def wait_for(client, topic, path):
    for _ in range(20_000):
        current, future = places(client, topic)
        if [folder for folder, _ in current] == [path] and not future:
            return
    raise AssertionError(f"{topic} is not in {path} but {current}, {future}")


@pytest.mark.parametrize("version", all_versions(Api.ALTER_REPLICA_LOG_DIRS))
def test_every_version(client, topic, version):
    client.produce(topic, batch(3))
    target = other_dir(client, topic)
    assert alter(client, target, topic, version=version) == 0
    wait_for(client, topic, target)
    assert len(headers(client.read(topic).records)) == 1
    assert client.produce(topic).base_offset == 3
    assert client.offset(topic, -1).offset == 4


def test_where_it_is_already(client, topic):
    ((current, _),), _ = places(client, topic)
    assert alter(client, current, topic) == 0
    assert places(client, topic)[1] == []


def test_a_folder_that_is_none(client, topic):
    assert alter(client, "/nowhere", topic) == ErrorCode.log_dir_not_found
    assert alter(client, "relative", topic) == ErrorCode.log_dir_not_found
    assert alter(client, "/nowhere", unique()) == ErrorCode.log_dir_not_found


def test_unknown_topic_and_partition(client, topic):
    target = other_dir(client, topic)
    assert alter(client, target, unique()) == ErrorCode.unknown_topic_or_partition
    assert alter(client, target, topic, 5) == ErrorCode.unknown_topic_or_partition


def test_a_partition_that_comes_later_goes_to_the_requested_dir(client, topic):
    """Not to the folder that has the fewest, which is the other one."""
    ((requested, _),), _ = places(client, topic)
    name = unique()
    assert alter(client, requested, name) == ErrorCode.unknown_topic_or_partition
    client.create_topic(name)
    ((folder, _),), future = places(client, name)
    assert (folder, future) == (requested, [])


def test_a_folder_that_failed(client, topic, ours):
    target = other_dir(client, topic)
    log_dir = next(log_dir for log_dir in client.broker.core.logs.log_dirs if log_dir.path == target)
    log_dir.error = OSError(5, "failed by the test")
    assert alter(client, target, topic) == ErrorCode.kafka_storage_error
    log_dir.error = None


def test_there_and_back(client, topic):
    ((first, _),), _ = places(client, topic)
    second = other_dir(client, topic)
    client.produce(topic)
    for target in (second, first):
        assert alter(client, target, topic) == 0
        wait_for(client, topic, target)
    assert len(headers(client.read(topic).records)) == 1


def test_a_large_log_moves_in_the_background(client, ours):
    topic = client.create_topic(segment_bytes=1_048_576)
    for _ in range(6):
        client.produce(topic, batch(value=b"v" * 600_000))
    target = other_dir(client, topic)
    broker = client.broker.core

    def begin():
        log_dir = next(log_dir for log_dir in broker.logs.log_dirs if log_dir.path == target)
        broker.maintenance.relocations.move(broker.logs.get(topic, 0), log_dir)
        (move,) = broker.maintenance.relocations
        return move.log.next_offset - move.next_offset, move.size_bytes

    assert on_loop(client.broker, begin) == (6, 0)
    wait_for(client, topic, target)
    assert client.offset(topic, -1).offset == 6
    assert client.read(topic, 5).error_code == 0


def test_a_move_under_way_is_shown(client, ours):
    topic = client.create_topic()
    client.produce(topic, batch(value=b"v" * 1000))
    target = other_dir(client, topic)
    broker = client.broker.core
    broker.maintenance.relocations._run_soon = lambda job: job.close()  # it never gets a turn
    assert alter(client, target, topic) == 0
    ((current, part),), ((future, coming),) = places(client, topic)
    assert (future, coming.offset_lag, coming.partition_size) == (target, 1, 0)
    assert current != target
    assert part.partition_size > 1000
    assert alter(client, current, topic) == 0
    assert places(client, topic)[1] == []


def test_a_topic_that_is_deleted_while_it_moves(client, ours):
    topic = client.create_topic(segment_bytes=1_048_576)
    for _ in range(4):
        client.produce(topic, batch(value=b"v" * 600_000))
    assert alter(client, other_dir(client, topic), topic) == 0
    answer = client.ask(Api.DELETE_TOPICS, 3, topic_names=[topic], timeout=1000)
    assert answer.responses[0].error_code == 0
    while on_loop(client.broker, lambda: len(client.broker.core.maintenance.relocations)):
        pass
    assert client.metadata([topic]).topics[0].error_code == ErrorCode.unknown_topic_or_partition
    assert all(log_dir.error is None for log_dir in client.broker.core.logs.log_dirs)


def test_stopping_the_broker_ends_a_move(client, topic, ours, tmp_path):
    for _ in range(3):
        client.produce(topic, batch(value=b"v" * 900_000))
    assert alter(client, other_dir(client, topic), topic) == 0
    client.broker.stop()
    assert len(list(tmp_path.glob(f"?/{topic}-0"))) == 1  # there or here, never in both


def test_a_higher_rate_speeds_up_a_move_under_way(client, ours):
    """replica.alter.log.dirs.io.max.bytes.per.second"""
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    topic = client.create_topic(segment_bytes=1_048_576)
    for _ in range(6):
        client.produce(topic, batch(value=b"v" * 600_000))
    target = other_dir(client, topic)
    assert client.alter(BROKER, "", (rate, 0, "1000")).error_code == 0
    assert alter(client, target, topic) == 0
    for _ in range(100):
        current, future = places(client, topic)
        assert [folder for folder, _ in current] != [target], "3.6 MB at 1 KB per second take an hour"
    assert [folder for folder, _ in future] == [target]
    assert client.alter(BROKER, "", (rate, 0, "1000000000")).error_code == 0
    wait_for(client, topic, target)


@pytest.mark.usefixtures("ours")
def test_all_moves_of_a_broker_share_the_rate(tmp_path):
    """It is measured over alter.log.dirs.replication.quota.window.*"""
    clock = ManualClock(NOW_MS)
    config = {
        "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "replica.alter.log.dirs.io.max.bytes.per.second": 1_000_000,
        "alter.log.dirs.replication.quota.window.num": 2,
    }
    with Broker(config=config, clock=clock) as broker, Client(broker.bootstrap_servers) as client:
        topics = [client.create_topic(), client.create_topic()]
        targets = {}
        for topic in topics:
            for _ in range(4):
                client.produce(topic, batch(value=b"v" * 900_000))
            targets[topic] = other_dir(client, topic)
            assert alter(client, targets[topic], topic) == 0
        for _ in range(20):  # the clock stands still: the rate allows a megabyte in the first window
            assert any(places(client, topic)[1] for topic in topics)
        assert client.alter(BROKER, "", (_MOVE_RATE, 0, "1000000000")).error_code == 0
        for topic in topics:
            wait_for(client, topic, targets[topic])
