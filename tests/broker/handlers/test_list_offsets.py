"""ListOffsets: the special times, times, and who may ask."""

import pytest
from broker_harness import NOW_MS, all_versions, batch, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6


@pytest.fixture
def filled(client, topic):
    """Five records at offsets 0 to 4, the fourth the youngest, the first one deleted."""
    for after_ms in (0, 10, 20, 90, 30):
        client.produce(topic, batch(timestamp_ms=NOW_MS + after_ms))
    wanted = [{"partition_index": 0, "offset": 1}]
    client.ask(Api.DELETE_RECORDS, 2, topics=[{"name": topic, "partitions": wanted}], timeout=1000)
    return topic


def found(answer):
    assert answer.error_code == 0
    return answer.offset, answer.timestamp


@pytest.mark.parametrize("version", all_versions(Api.LIST_OFFSETS))
def test_every_version(client, filled, version):
    assert found(client.offset(filled, LATEST, version=version)) == (5, -1)
    assert found(client.offset(filled, EARLIEST, version=version)) == (1, -1)
    by_time = client.offset(filled, NOW_MS + 15, version=version)
    assert found(by_time) == (2, NOW_MS + 20)
    if version >= 4:
        assert by_time.leader_epoch == 0


def test_the_largest_timestamp(client, filled):
    assert found(client.offset(filled, MAX_TIMESTAMP)) == (3, NOW_MS + 90)


@pytest.mark.parametrize(
    ("timestamp", "since"),
    [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9), (EARLIEST_PENDING_UPLOAD, 11)],
)
def test_each_special_time_has_its_first_version(client, filled, timestamp, since):
    answer = client.offset(filled, timestamp, version=since - 1)
    assert (answer.error_code, answer.offset) == (ErrorCode.unsupported_version, -1)
    assert client.offset(filled, timestamp, version=since).error_code == 0


def test_the_largest_timestamp_of_what_is_left(client, filled, ours):
    """Apache Kafka names a record that is deleted."""
    wanted = [{"partition_index": 0, "offset": 4}]
    client.ask(Api.DELETE_RECORDS, 2, topics=[{"name": filled, "partitions": wanted}], timeout=1000)
    assert found(client.offset(filled, MAX_TIMESTAMP)) == (4, NOW_MS + 30)
    wanted = [{"partition_index": 0, "offset": -1}]
    client.ask(Api.DELETE_RECORDS, 2, topics=[{"name": filled, "partitions": wanted}], timeout=1000)
    assert found(client.offset(filled, MAX_TIMESTAMP)) == (-1, -1)


def test_nothing_is_tiered(client, filled):
    assert found(client.offset(filled, EARLIEST_LOCAL, version=8)) == (1, -1)
    assert found(client.offset(filled, LATEST_TIERED, version=9)) == (-1, -1)


def test_nothing_waits_to_be_tiered(client, filled):
    assert found(client.offset(filled, EARLIEST_PENDING_UPLOAD, version=11)) == (-1, -1)


@pytest.mark.parametrize("timestamp", [-7, -100])
def test_other_negative_times(client, filled, timestamp):
    answer = client.offset(filled, timestamp, version=11)
    assert answer.error_code == ErrorCode.unsupported_version


@pytest.mark.parametrize(
    ("after_ms", "offset"), [(-5000, 1), (10, 1), (11, 2), (20, 2), (21, 3), (90, 3)], ids=lambda value: str(value)
)
def test_a_time_finds_the_first_record_at_or_after_it(client, filled, after_ms, offset):
    assert client.offset(filled, NOW_MS + after_ms).offset == offset


def test_a_time_inside_a_batch(client, topic):
    from headrace.protocol.batch_building import build_batch
    from headrace.protocol.record_body import Record

    records = [Record(number, NOW_MS + 10 * number, b"k", b"v", ()) for number in range(5)]
    client.produce(topic, build_batch(records))
    assert found(client.offset(topic, NOW_MS + 25)) == (3, NOW_MS + 30)


def test_a_time_after_all_records(client, filled):
    assert found(client.offset(filled, NOW_MS + 91)) == (-1, -1)


def test_an_empty_partition(client, topic):
    assert found(client.offset(topic, LATEST)) == (0, -1)
    assert found(client.offset(topic, EARLIEST)) == (0, -1)
    assert found(client.offset(topic, MAX_TIMESTAMP)) == (-1, -1)
    assert found(client.offset(topic, NOW_MS)) == (-1, -1)


def test_unknown_topic_and_partition(client, topic):
    assert client.offset(unique(), LATEST).error_code == ErrorCode.unknown_topic_or_partition
    answer = client.offset(topic, LATEST, partition=3)
    assert (answer.error_code, answer.offset) == (ErrorCode.unknown_topic_or_partition, -1)
    assert answer.timestamp == -1


def test_leader_epochs(client, topic):
    assert client.offset(topic, LATEST, current_leader_epoch=0).error_code == 0
    assert client.offset(topic, LATEST, current_leader_epoch=9).error_code == ErrorCode.unknown_leader_epoch


def test_a_partition_that_is_named_twice(client, topic):
    wanted = [{"partition_index": 0, "timestamp": when} for when in (LATEST, EARLIEST)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": wanted}]}
    (answer,) = client.ask(Api.LIST_OFFSETS, 7, **fields).topics
    assert [part.error_code for part in answer.partitions] == [ErrorCode.invalid_request]


def test_read_committed_without_transactions(client, filled):
    fields = {"replica_id": -1, "isolation_level": 1}
    wanted = [{"partition_index": 0, "timestamp": LATEST}]
    (answer,) = client.ask(Api.LIST_OFFSETS, 7, topics=[{"name": filled, "partitions": wanted}], **fields).topics
    assert answer.partitions[0].offset == 5
