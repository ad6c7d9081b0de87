"""The formatters of console-consumer."""

import json
from struct import pack

import pytest

from headrace.client.types import ConsumedRecord, TimestampType
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.tools.console_consumer.formatters import deserializer_named, formatter_named

RECORD = ConsumedRecord(
    "t", 3, 42, 1000, TimestampType.create_time, b"k", b"v", (("h", b"1"), ("i", None)), 7
)  # fmt: skip
EVERYTHING = {
    f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
}


def test_by_default_the_value_alone():
    assert formatter_named("default", {})(RECORD) == b"v\n"


def test_everything_in_kafkas_order():
    show = formatter_named("org.apache.kafka.tools.consumer.DefaultMessageFormatter", EVERYTHING)
    assert show(RECORD) == b"CreateTime:1000\tPartition:3\tOffset:42\tEpoch:7\th:1,i:null\tk\tv\n"
    bare = ConsumedRecord("t", 0, 0, -1, TimestampType.create_time, None, None)
    assert show(bare) == b"NO_TIMESTAMP\tPartition:0\tOffset:0\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull\n"
    assert show(RECORD._replace(timestamp_type=TimestampType.log_append_time)).startswith(b"LogAppendTime:1000\t")


def test_separators_and_the_word_for_null():
    properties = EVERYTHING | {
        "print.timestamp": "false", "print.epoch": "no", "key.separator": "|", "line.separator": ";",
        "headers.separator": "&", "null.literal": "-",
    }  # fmt: skip
    assert formatter_named("default", properties)(RECORD) == b"Partition:3|Offset:42|h:1&i:-|k|v;"


def test_bytes_that_are_no_text_stay_as_they_are():
    assert formatter_named("default", {})(RECORD._replace(value=b"\xff\0")) == b"\xff\0\n"


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("org.apache.kafka.common.serialization.LongDeserializer", pack(">q", -5), b"-5"),
        ("IntegerDeserializer", pack(">i", 7), b"7"),
        ("Short", pack(">h", 7), b"7"),
        ("Double", pack(">d", 1.5), b"1.5"),
        ("Float", pack(">f", 0.5), b"0.5"),
        ("Boolean", b"\1", b"true"),
        ("UUID", b"00000000-0000-0000-0000-000000000001", b"00000000-0000-0000-0000-000000000001"),
        ("StringDeserializer", b"x", b"x"),
    ],
)
def test_deserializers(name, data, shown):
    assert formatter_named("default", {"value.deserializer": name})(RECORD._replace(value=data)) == shown + b"\n"


@pytest.mark.parametrize(("name", "data"), [("Long", b"1"), ("Boolean", b"x"), ("UUID", b"x"), ("Void", b"")])
def test_what_a_deserializer_cannot_read_is_an_error(name, data):
    with pytest.raises(ValueError):
        deserializer_named(name)(data)


@pytest.mark.parametrize(
    ("name", "properties", "said"),
    [
        ("mine.Formatter", {}, "there is no formatter mine.Formatter; there are default, logging"),
        ("default", {"print.keys": "true"}, "there is no formatter property print.keys"),
        ("default", {"key.deserializer": "mine.Deserializer"}, "there is no deserializer mine.Deserializer"),
    ],
)
def test_names_that_are_none(name, properties, said):
    with pytest.raises(ValueError, match=said):
        formatter_named(name, properties)


def test_other_forms():
    assert formatter_named("no-op", {})(RECORD) == b""
    assert formatter_named("logging", {})(RECORD) == b"CreateTime:1000, key:k, value:v\n"
    assert json.loads(formatter_named("json", {})(RECORD._replace(key=b"\xff"))) == {
        "topic": "t", "partition": 3, "offset": 42, "timestamp": 1000, "timestampType": "CreateTime", "leaderEpoch": 7,
        "headers": [["h", "1"], ["i", None]], "key": {"base64": "/w=="}, "value": "v",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("Long", pack(">q", 5), 5),
        ("org.apache.kafka.common.serialization.DoubleDeserializer", pack(">d", 1.5), 1.5),
        ("Double", pack(">d", float("inf")), "inf"),
        ("Boolean", b"\1", True),
        ("String", b"5", "5"),
        ("Long", None, None),
    ],
)
def test_deserializers_count_for_json_too(name, data, shown):
    show = formatter_named("json", {f"{part}.deserializer": name for part in ("key", "value", "header")})
    found = json.loads(show(RECORD._replace(key=data, value=data, headers=(("h", data),))))
    assert (found["key"], found["value"], found["headers"]) == (shown, shown, [["h", shown]])


def test_what_json_cannot_be_made_of_is_an_error():
    with pytest.raises(ValueError, match="is not 8 but 1"):
        formatter_named("json", {"value.deserializer": "Long"})(RECORD)
    with pytest.raises(ValueError, match="there is no deserializer mine"):
        formatter_named("json", {"value.deserializer": "mine"})


COMMIT = RECORD._replace(
    key=encode_key(RecordType.OFFSET_COMMIT, group="g", topic="t", partition=0),
    value=encode_value(RecordType.OFFSET_COMMIT, offset=2, leader_epoch=-1, metadata="", commit_timestamp=5),
)
GROUP = RECORD._replace(key=encode_key(RecordType.GROUP_METADATA, group="g"), value=None)
TRANSACTION = RECORD._replace(key=encode_key(RecordType.TRANSACTION, transactional_id="tx"), value=None)


def test_internal_records():
    offsets = formatter_named("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", {})
    assert offsets(COMMIT) == (
        b'{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":{"version":4,"data":'
        b'{"offset":2,"leaderEpoch":-1,"metadata":"","commitTimestamp":5}}}\n'
    )
    assert offsets(GROUP) == b""
    groups = formatter_named("group-metadata", {})
    assert groups(GROUP) == b'{"key":{"type":2,"data":{"group":"g"}},"value":null}\n'
    assert groups(COMMIT) == b""
    assert b'"transactionalId":"tx"' in formatter_named("transaction-log", {})(TRANSACTION)
    assert offsets(RECORD._replace(key=b"\x7f\xff")) == b"" == offsets(RECORD._replace(key=None))
