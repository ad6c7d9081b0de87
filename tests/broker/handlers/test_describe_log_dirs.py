"""DescribeLogDirs: which folder holds what."""

import pytest
from broker_harness import Client, all_versions, batch, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def describe(client, topics=None, version=4):
    wanted = None if topics is None else [{"topic": name, "partitions": parts} for name, parts in topics.items()]
    return client.ask(Api.DESCRIBE_LOG_DIRS, version, topics=wanted).results


def partitions(results):
    return {
        (topic.name, part.partition_index): (result.log_dir, part)
        for result in results
        for topic in result.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", all_versions(Api.DESCRIBE_LOG_DIRS))
def test_every_version(client, topic, version):
    client.produce(topic, batch(3))
    results = describe(client, {topic: [0]}, version)
    assert {result.error_code for result in results} == {0}
    ((key, (_, part)),) = partitions(results).items()
    assert key == (topic, 0)
    assert (part.partition_size, part.offset_lag, part.is_future_key) == (len(batch(3)), 0, False)
    if version >= 4:
        assert results[0].total_bytes > results[0].usable_bytes > 0


def test_all_topics(client, topic):
    assert (topic, 0) in partitions(describe(client))


def test_what_is_not_there_is_left_out(client, topic):
    found = partitions(describe(client, {topic: [0, 5], unique(): [0]}))
    assert [*found] == [(topic, 0)]


def test_no_topics(client, topic):
    results = describe(client, {})
    assert results
    assert partitions(results) == {}


@pytest.fixture
def two_dirs(tmp_path, ours):
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with Broker(config={"log.dirs": folders}) as broker, Client(broker.bootstrap_servers) as client:
        client.broker = broker
        yield client


def test_partitions_are_spread_over_the_folders(two_dirs, tmp_path):
    topic = two_dirs.create_topic(partitions=4)
    found = partitions(describe(two_dirs, {topic: range(4)}))
    assert sorted(folder for folder, _ in found.values()) == [str(tmp_path / "a")] * 2 + [str(tmp_path / "b")] * 2


def test_a_folder_that_failed(two_dirs, tmp_path):
    topic = two_dirs.create_topic(partitions=4)
    log_dir = two_dirs.broker.core.logs.log_dirs[1]
    log_dir.error = OSError(5, "failed by the test")
    results = {result.log_dir: result for result in describe(two_dirs)}
    failed = results[str(tmp_path / "b")]
    assert (failed.error_code, failed.topics) == (ErrorCode.kafka_storage_error, ())
    assert len(partitions(results.values())) == 2
    log_dir.error = None
    assert topic
