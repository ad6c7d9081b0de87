"""The decoders of dump-log: records of internal topics as Kafka's dump tool shows them, keys and values as numbers."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from headrace.client.types import TopicPartition
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.protocol.record_body import ControlKind, Record
from headrace.protocol.wire.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from headrace.tools.dump_log.command import main

TOPIC_ID = UUID(int=1)
TEXT_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.fixture
def dump(capsys, tmp_path):
    """Keys and payloads of the records that are written to a log."""
    path: Path = tmp_path / "00000000000000000000.log"

    def run(records, *arguments, is_control=False):
        path.write_bytes(build_batch(records, base_offset=0, is_control=is_control))
        assert main(["--files", str(path), *arguments]) == 0
        return capsys.readouterr().out.splitlines()[0 if "--json" in arguments else 2 :][1:]

    return run


def shown(lines):
    """What follows the metadata."""
    return [line.split("headerKeys: [] ", 1)[1] for line in lines]


def commit(group, version=None, **fields):
    key = encode_key(RecordType.OFFSET_COMMIT, group=group, topic="t", partition=3)
    value = encode_value(RecordType.OFFSET_COMMIT, version, **fields) if fields else None
    return Record(0, 1, key, value)


COMMITTED = {"offset": 2, "leader_epoch": -1, "metadata": "m\0", "commit_timestamp": 5}
KEY = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'


@pytest.mark.parametrize(
    ("version", "more", "data"),
    [
        (0, {}, '"offset":2,"metadata":"m\\u0000","commitTimestamp":5'),
        (1, {"expire_timestamp": 9}, '"offset":2,"metadata":"m\\u0000","commitTimestamp":5,"expireTimestamp":9'),
        (3, {}, '"offset":2,"leaderEpoch":-1,"metadata":"m\\u0000","commitTimestamp":5'),
        (4, {}, '"offset":2,"leaderEpoch":-1,"metadata":"m\\u0000","commitTimestamp":5'),
        (4, {"topic_id": TOPIC_ID},
         f'"offset":2,"leaderEpoch":-1,"metadata":"m\\u0000","commitTimestamp":5,"topicId":"{TEXT_ID}"'),
    ],
)  # fmt: skip
def test_committed_offsets_in_all_versions(dump, version, more, data):
    lines = dump([commit("g", version, **COMMITTED, **more)], "--offsets-decoder")
    assert shown(lines) == [f'key: {KEY} payload: {{"version":"{version}","data":{{{data}}}}}']


def test_a_tombstone_is_a_deletion(dump):
    assert shown(dump([commit("g")], "--offsets-decoder")) == [f"key: {KEY} payload: <DELETE>"]


def test_machines_get_objects(dump):
    (line,) = dump([commit("g", 4, **COMMITTED)], "--offsets-decoder", "--json")
    assert json.loads(line)["key"]["data"] == {"group": "g", "topic": "t", "partition": 3}
    assert json.loads(line)["payload"]["data"]["offset"] == 2


def group_record(subscription, assignment, protocol_type="consumer"):
    member = {
        "member_id": "m", "group_instance_id": None, "client_id": "c", "client_host": "/h", "rebalance_timeout": 3,
        "session_timeout": 4, "subscription": subscription, "assignment": assignment,
    }  # fmt: skip
    value = encode_value(
        RecordType.GROUP_METADATA, protocol_type=protocol_type, generation=1, protocol="range", leader="m",
        current_state_timestamp=7, members=[member],
    )  # fmt: skip
    return Record(0, 1, encode_key(RecordType.GROUP_METADATA, group="g"), value)


def test_members_of_a_classic_group_are_opened(dump):
    subscription = encode_subscription(Subscription(("t",), b"", (TopicPartition("t", 0),), 5, None), 3)
    assignment = encode_assignment(Assignment((TopicPartition("t", 0), TopicPartition("t", 1)), b""))
    (line,) = shown(dump([group_record(subscription, assignment)], "--offsets-decoder"))
    assert line.startswith('key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":')
    assert '"subscription":{"topics":["t"],"userData":"","ownedPartitions":[{"topic":"t","partitions":[0]}],' in line
    assert '"generationId":5,"rackId":null},"assignment":{"assignedPartitions":[{"topic":"t",' in line


@pytest.mark.parametrize(("protocol_type", "data"), [("connect", b"\0\1"), ("consumer", b"\0\1")])
def test_members_that_are_no_consumers_stay_bytes(dump, protocol_type, data):
    (line,) = shown(dump([group_record(data, data, protocol_type)], "--offsets-decoder"))
    assert '"subscription":"AAE=","assignment":"AAE="' in line


def test_the_new_group_protocol(dump):
    member = {"group_id": "g", "member_id": "m"}
    kinds = [
        (RecordType.CONSUMER_GROUP_METADATA, {"group_id": "g"}, {"epoch": 2}, '{"epoch":2}'),
        (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member,
         {"topic_partitions": [{"topic_id": TOPIC_ID, "partitions": [0, 1]}]},
         f'{{"topicPartitions":[{{"topicId":"{TEXT_ID}","partitions":[0,1]}}]}}'),
        (RecordType.CONSUMER_GROUP_MEMBER_METADATA, member,
         {"instance_id": None, "rack_id": None, "client_id": "c", "client_host": "/h", "subscribed_topic_names": ["t"],
          "subscribed_topic_regex": None, "rebalance_timeout_ms": 1, "server_assignor": None},
         '{"instanceId":null,"rackId":null,"clientId":"c","clientHost":"/h","subscribedTopicNames":["t"],'
         '"subscribedTopicRegex":null,"rebalanceTimeoutMs":1,"serverAssignor":null,"classicMemberMetadata":null}'),
    ]  # fmt: skip
    for kind, key, value, wanted in kinds:
        (line,) = dump([Record(0, 1, encode_key(kind, **key), encode_value(kind, **value))], "--offsets-decoder")
        assert line.endswith(f'payload: {{"version":"0","data":{wanted}}}')


def test_states_of_transactions(dump):
    key = encode_key(RecordType.TRANSACTION, transactional_id="tx")
    value = encode_value(
        RecordType.TRANSACTION, producer_id=7, producer_epoch=1, transaction_timeout_ms=60, transaction_status=1,
        transaction_partitions=[{"topic": "t", "partition_ids": [1]}], transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4, client_transaction_version=2,
    )  # fmt: skip
    assert shown(dump([Record(0, 1, key, value)], "--transaction-log-decoder")) == [
        'key: {"type":"0","data":{"transactionalId":"tx"}} payload: {"version":"1","data":{"producerId":7,'
        '"producerEpoch":1,"transactionTimeoutMs":60,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[1]}],"transactionLastUpdateTimestampMs":5,'
        '"transactionStartTimestampMs":4,"clientTransactionVersion":2}}'
    ]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"\x7f\xff", "Unknown record type 32767 at offset 0, skipping."),
        (b"\0", "Error at offset 0, skipping. a record of __consumer_offsets cannot be read"),
        (b"\0\1", "Error at offset 0, skipping. a record of __consumer_offsets cannot be read"),
        (None, "Error at offset 0, skipping. The record has no key"),
    ],
)
def test_what_cannot_be_read_is_said_and_passed_over(dump, key, said):
    lines = shown(dump([Record(0, 1, key, b"\0\0")], "--offsets-decoder"))
    assert lines[0].startswith(f"key: {said}")


def test_numbers(dump):
    records = [Record(0, 1, b"\0\0\0\x07", b"\xff" * 8), Record(1, 1, b"abc", None)]
    decoders = ("--key-decoder-class", "kafka.serializer.IntegerDecoder", "--value-decoder-class", "LongDecoder")
    assert shown(dump(records, *decoders)) == ["key: 7 payload: -1", "key: not 4 bytes: b'abc'"]


def test_without_metadata_only_what_was_said_is_left(dump):
    lines = dump([Record(0, 1, b"k", b"v")], "--print-data-log", "--skip-record-metadata")
    assert lines == ["| key: k payload: v"]
    marker = control_record(ControlKind.abort, 5, offset=0, timestamp_ms=1)
    assert dump([marker], "--print-data-log", "--skip-record-metadata", is_control=True) == []
