"""The actions that send a record and copy one, checked by a consumer."""

from __future__ import annotations

import base64

import pytest
from console_harness import Elements

from headrace import Consumer
from headrace.client.types import TopicPartition


@pytest.fixture
def records_of(broker):
    """Reads all records of a partition."""

    def read(topic, partition=0):
        at = TopicPartition(topic, partition)
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            end = consumer.end_offsets(at)[at]
            found = []
            while consumer.position(at) < end:
                found += consumer.poll(timeout_ms=5_000)
            return found

    return read


async def test_a_record_is_sent_by_the_form(console, new_topic, records_of):
    topic = new_topic(2)
    fields = {
        "topic": topic, "key": "k1", "value": '{"a": 1}', "value_form": "json", "headers": "trace=abc\nempty=",
        "partition": "1",
    }  # fmt: skip
    confirmation = await console.submit("produce-record", **fields)
    assert "goes to partition 1" in confirmation.text
    assert "console-producer" in confirmation.text
    assert records_of(topic, 1) == []
    done = await console.submit("produce-record", step="run", **fields)
    assert (done.status_code, done.headers["location"]) == (303, f"/topics/{topic}/records/1/0")
    (record,) = records_of(topic, 1)
    assert (record.key, record.value) == (b"k1", b'{"a": 1}')
    assert record.headers == (("trace", b"abc"), ("empty", b""))
    assert "at offset 0 of partition 1" in Elements(await console.page(f"/topics/{topic}/records/1/0")).text


async def test_keys_and_values_are_bytes_texts_or_null(console, new_topic, records_of):
    topic = new_topic()
    raw = base64.b64encode(b"\xff\x00").decode()
    for fields in ({"key": "k", "value_form": "null"}, {"value": ""}, {"value": raw, "value_form": "base64"}):
        assert (await console.call("produce-record", topic=topic, **fields)).status_code == 200
    assert [(each.key, each.value) for each in records_of(topic)] == [(b"k", None), (None, b""), (None, b"\xff\x00")]


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"value": "{", "value_form": "json"}, "not JSON"),
        ({"value": "[" * 100_000, "value_form": "json"}, "not JSON"),
        ({"value": "*", "value_form": "base64"}, "not base64"),
        ({"key": "{", "key_form": "json", "value": "x"}, "not JSON"),
        ({"value": "x", "headers": "no value"}, "not NAME=VALUE"),
        ({"value": "x", "partition": "7"}, "has the partitions 0 to 0"),
    ],
)
async def test_what_cannot_be_sent_is_said_at_the_form(console, new_topic, records_of, fields, wrong):
    topic = new_topic()
    answer = await console.submit("produce-record", topic=topic, **fields)
    assert (answer.status_code, wrong in Elements(answer.text).text) == (422, True)
    assert records_of(topic) == []


async def test_a_record_is_copied_with_its_bytes(console, new_topic, producer, records_of):
    source, target = new_topic(), new_topic(2)
    producer.send(source, key=b"\xff", value=b"\x00v", headers={"h": b"1"}, timestamp_ms=5_000).result()
    fields = {"topic": source, "partition": 0, "offset": 0, "to_topic": target, "to_partition": 1, "keep_time": True}
    answer = await console.call("copy-record", **fields)
    assert answer.json()["location"] == f"/topics/{target}/records/1/0"
    (record,) = records_of(target, 1)
    assert (record.key, record.value, record.headers) == (b"\xff", b"\x00v", (("h", b"1"),))
    assert record.timestamp_ms == 5_000


@pytest.mark.parametrize(
    ("change", "status"), [({"offset": 9}, 422), ({"partition": 9}, 422), ({"to_topic": "no"}, 404)]
)
async def test_a_copy_needs_a_record_and_a_topic(console, new_topic, producer, change, status):
    topic = new_topic()
    producer.send(topic, value=b"x").result()
    fields = {"topic": topic, "partition": 0, "offset": 0, "to_topic": topic, **change}
    assert (await console.call("copy-record", **fields)).status_code == status


async def test_a_copy_is_confirmed_by_the_form(console, new_topic, producer):
    source, target = new_topic(), new_topic()
    producer.send(source, value=b"x").result()
    fields = {"topic": source, "partition": "0", "offset": "0", "to_topic": target, "to_partition": ""}
    form = Elements(await console.page(f"/actions/copy-record?topic={source}&partition=0&offset=0"))
    page = Elements(await console.page(f"/topics/{source}/records/0/0"))
    assert f"/actions/copy-record?topic={source}&partition=0&offset=0" in [each["href"] for each in page.named("a")]
    given = {each["name"]: each.get("value") for each in form.named("input")}
    assert (given["topic"], given["partition"], given["offset"]) == (source, "0", "0")
    confirmation = await console.submit("copy-record", **fields)
    assert confirmation.status_code == 200, Elements(confirmation.text).text
    assert f"is sent to {target}" in confirmation.text
    done = await console.submit("copy-record", step="run", **fields)
    assert done.headers["location"] == f"/topics/{target}/records/0/0"
