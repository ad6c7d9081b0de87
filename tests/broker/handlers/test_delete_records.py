"""DeleteRecords: the start of a partition moves."""

import pytest
from broker_harness import all_versions, batch, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def delete(client, topic, offset, *, partition=0, version=2):
    wanted = [{"partition_index": partition, "offset": offset}]
    fields = {"topics": [{"name": topic, "partitions": wanted}], "timeout": 10_000}
    return client.ask(Api.DELETE_RECORDS, version, **fields).topics[0].partitions[0]


@pytest.fixture
def filled(client, topic):
    for _ in range(3):
        client.produce(topic, batch(3))
    return topic


@pytest.mark.parametrize("version", all_versions(Api.DELETE_RECORDS))
def test_every_version(client, filled, version):
    answer = delete(client, filled, 4, version=version)
    assert (answer.partition_index, answer.error_code, answer.low_watermark) == (0, 0, 4)
    assert client.offset(filled, -2).offset == 4
    assert client.offset(filled, -1).offset == 9


def test_up_to_the_high_watermark(client, filled):
    assert delete(client, filled, -1).low_watermark == 9
    assert client.offset(filled, -2).offset == 9
    assert client.produce(filled).base_offset == 9


@pytest.mark.parametrize("offset", [10, -2])
def test_outside_of_the_log(client, filled, offset):
    answer = delete(client, filled, offset)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.offset_out_of_range, -1)


def test_what_is_gone_already(client, filled):
    delete(client, filled, 5)
    answer = delete(client, filled, 2)
    assert (answer.error_code, answer.low_watermark) == (0, 5)


def test_unknown_topic_and_partition(client, topic):
    assert delete(client, unique(), 0).error_code == ErrorCode.unknown_topic_or_partition
    answer = delete(client, topic, 0, partition=3)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.unknown_topic_or_partition, -1)


def test_a_compacted_topic(client):
    topic = client.create_topic(cleanup_policy="compact")
    client.produce(topic)
    assert delete(client, topic, 1).error_code == ErrorCode.policy_violation


def test_a_topic_that_is_compacted_and_deleted(client):
    topic = client.create_topic(cleanup_policy="compact,delete")
    client.produce(topic)
    assert delete(client, topic, 1).error_code == 0


def test_an_internal_topic(client, ours):
    assert delete(client, "__consumer_offsets", 0).error_code == ErrorCode.invalid_topic_exception


def test_segments_that_lie_below_are_dropped(shared_broker, client):
    topic = client.create_topic(segment_bytes=1_048_576)
    for _ in range(3):
        client.produce(topic, batch(value=b"v" * 600_000))
    log = shared_broker.core.logs.get(topic, 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    delete(client, topic, 2)
    assert [segment.base_offset for segment in log.segments] == [2]
