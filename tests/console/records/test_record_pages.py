"""The pages that browse the records of a topic and show one record, on a real broker."""

from __future__ import annotations

import json

import pytest
from console_harness import Elements

from headrace import Producer


def fill(producer, topic, count, *, partitions=1, first_ms=1_000_000):
    for number in range(count):
        producer.send(
            topic, key=b"k%d" % number, value=b'{"number": %d}' % number, partition=number % partitions,
            timestamp_ms=first_ms + number * 1_000, headers={"trace": b"t%d" % number},
        )  # fmt: skip
    producer.flush()


def places(answer):
    return [(row["partition"], row["offset"]) for row in answer["records"]]


async def follow(console, topic, query, link):
    """All places of a topic, read page by page."""
    found = []
    answer = await console.json(f"/api/topics/{topic}/records?{query}")
    while True:
        found.append(places(answer))
        if not answer[link]:
            return found
        parameter = {"following": "positions", "preceding": "before"}[link]
        answer = await console.json(f"/api/topics/{topic}/records?{query}&{parameter}={answer[link]}")


async def test_the_newest_records_come_first(console, new_topic, producer):
    topic = new_topic(3)
    fill(producer, topic, 30, partitions=3)
    found = await console.json(f"/api/topics/{topic}/records?rows=4")
    assert places(found) == [(2, 9), (1, 9), (0, 9), (2, 8)]
    assert found["following"] == ""
    row = found["records"][0]
    assert json.loads(row["value"]["text"]) == {"number": 29}
    assert (row["value"]["format"], row["key"]["format"], row["key"]["text"]) == ("json", "text", "k29")
    assert row["headers"] == [
        {"name": "trace", "value": {"format": "text", "text": "t29", "size_bytes": 3, "is_cut": False, "problem": ""}}
    ]


@pytest.mark.parametrize(("start", "link"), [("oldest", "following"), ("newest", "preceding")])
async def test_pages_have_every_record_once(console, new_topic, producer, start, link):
    topic = new_topic(3)
    fill(producer, topic, 50, partitions=3)
    pages = await follow(console, topic, f"rows=7&start={start}", link)
    everything = [place for page in pages for place in page]
    assert sorted(everything) == sorted((number % 3, number // 3) for number in range(50))
    assert all(len(page) == 7 for page in pages[:-1])


async def test_records_are_read_from_an_offset_and_from_a_time(console, new_topic, producer):
    topic = new_topic(2)
    fill(producer, topic, 20, partitions=2)
    by_offset = await console.json(f"/api/topics/{topic}/records?start=offset&offset=8&partition=1")
    assert places(by_offset) == [(1, 8), (1, 9)]
    by_time = await console.json(f"/api/topics/{topic}/records?start=time&time=1017000")
    assert places(by_time) == [(1, 8), (0, 9), (1, 9)]
    late = await console.json(f"/api/topics/{topic}/records?start=time&time=2031-01-01")
    assert places(late) == []
    for query in ("start=offset", "start=time", "time=yesterday", "positions=0-1", "positions=7:0", "partition=2"):
        assert (await console.get(f"/api/topics/{topic}/records?{query}")).status_code in (404, 422)


async def test_a_transaction_shows_its_producer_and_its_end(console, new_topic, broker):
    topic = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="by-console") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value=b"inside")
        producer.send(topic, value=b"inside too")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, value=b"aborted")
        producer.flush()
        producer.abort_transaction()
    shown = (await console.json(f"/api/topics/{topic}/records?start=oldest&control=true"))["records"]
    assert [row["control"] for row in shown] == ["", "", "commit", "", "abort"]
    batch = (await console.json(f"/api/topics/{topic}/records/0/1"))["record"]["batch"]
    assert batch["is_transactional"]
    assert (batch["producer_id"] >= 0, batch["producer_epoch"], batch["sequence"]) == (True, 0, 1)
    page = Elements(await console.page(f"/topics/{topic}/records?control=true")).text
    assert "commit of a transaction" in page
    assert "is the abort of a transaction" in Elements(await console.page(f"/topics/{topic}/records/0/4")).text
    assert len((await console.json(f"/api/topics/{topic}/records"))["records"]) == 3


async def test_a_record_has_a_page_with_links_to_its_neighbours(console, new_topic, producer):
    topic = new_topic()
    fill(producer, topic, 3)
    page = Elements(await console.page(f"/topics/{topic}/records/0/1"))
    links = [each["href"] for each in page.named("a")]
    assert {f"/topics/{topic}/records/0/0", f"/topics/{topic}/records/0/2"} <= set(links)
    first = await console.json(f"/api/topics/{topic}/records/0/0")
    assert (first["previous_offset"], first["next_offset"]) == (None, 1)
    for path in ("0/3", "1/0"):
        assert (await console.get(f"/topics/{topic}/records/{path}")).status_code == 404
    assert (await console.get(f"/topics/{topic}/records/a/b")).status_code == 422


async def test_formats_are_chosen_by_the_reader(console, new_topic, producer):
    topic = new_topic()
    producer.send(topic, value=b'{"a":1}').result()
    for name, text in (("json", '{\n  "a": 1\n}'), ("text", '{"a":1}')):
        found = await console.json(f"/api/topics/{topic}/records/0/0?value_format={name}")
        assert found["record"]["value"]["text"] == text
    found = await console.json(f"/api/topics/{topic}/records/0/0?value_format=hex")
    assert found["record"]["value"]["text"].startswith("00000000  7b 22 61 22 3a 31 7d ")
    found = await console.json(f"/api/topics/{topic}/records/0/0?value_format=registry")
    assert "no --registry" in found["record"]["value"]["problem"]


async def test_whole_values_are_downloaded(console, new_topic, producer):
    topic = new_topic(**{"max.message.bytes": 20_000_000})
    large = b"x" * 10_000_000
    producer.send(topic, key=b"\xff\x00", value=large).result()
    shown = (await console.json(f"/api/topics/{topic}/records/0/0"))["record"]
    assert (len(shown["value"]["text"]), shown["value"]["is_cut"]) == (10_001, True)
    page = await console.get(f"/topics/{topic}/records/0/0")
    assert len(page.text) < 100_000
    answer = await console.get(f"/topics/{topic}/records/0/0/download")
    assert answer.content == large
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert (await console.get(f"/topics/{topic}/records/0/0/download?part=key")).content == b"\xff\x00"


async def test_a_tail_returns_what_came_since(console, new_topic, producer):
    topic = new_topic(2)
    fill(producer, topic, 4, partitions=2)
    begin = await console.json(f"/api/topics/{topic}/tail")
    assert (begin["records"], begin["following"]) == ([], "0:2,1:2")
    fill(producer, topic, 3, partitions=2)
    found = await console.json(f"/api/topics/{topic}/tail?positions={begin['following']}")
    while len(found["records"]) < 3:
        more = await console.json(f"/api/topics/{topic}/tail?positions={found['following']}")
        found = more | {"records": found["records"] + more["records"]}
    assert sorted(row["value"] for row in found["records"]) == ['{"number": 0}', '{"number": 1}', '{"number": 2}']
    assert (found["following"], found["dropped"], found["behind"]) == ("0:4,1:3", 0, 0)


async def test_a_tail_says_what_it_left_out(console, new_topic, producer, monkeypatch):
    from headrace.console.records import tail

    monkeypatch.setattr(tail, "MOST_BEHIND", 50)
    monkeypatch.setattr(tail, "_KEPT_BEHIND", 10)
    topic = new_topic()
    fill(producer, topic, 100)
    found = await console.json(f"/api/topics/{topic}/tail?positions=0:0")
    assert (found["dropped"], found["following"], found["behind"]) == (90, "0:90", 10)


async def test_a_tail_goes_on_behind_deleted_records(console, new_topic, producer, admin):
    from headrace.client.types import TopicPartition

    topic = new_topic()
    fill(producer, topic, 10)
    admin.delete_records({TopicPartition(topic, 0): 6})
    found = await console.json(f"/api/topics/{topic}/tail?positions=0:2")
    assert (found["dropped"], found["following"]) == (4, "0:6")


async def test_new_partitions_and_new_topics_of_the_same_name_are_read(console, new_topic, producer, admin):
    topic = new_topic()
    fill(producer, topic, 2)
    assert len((await console.json(f"/api/topics/{topic}/records"))["records"]) == 2
    assert (await console.call("add-partitions", topic=topic, partitions=2)).status_code == 200
    assert (await console.call("produce-record", topic=topic, value="x", partition=1)).status_code == 200
    assert len((await console.json(f"/api/topics/{topic}/records"))["records"]) == 3
    admin.delete_topic(topic)
    admin.create_topic(topic, num_partitions=1)
    assert (await console.call("produce-record", topic=topic, value="y")).status_code == 200
    assert len((await console.json(f"/api/topics/{topic}/records"))["records"]) == 1


async def test_a_batch_of_many_records_is_taken_apart_only_as_far_as_needed(console, new_topic, producer):
    from headrace.console.records.batches import records_of
    from headrace.protocol.batch_building import build_batch
    from headrace.protocol.record_body import Record
    from headrace.protocol.records import read_header

    batch = build_batch([Record(number, 1, None, b"") for number in range(1_000)])
    found = records_of(0, read_header(batch), memoryview(batch), 10)
    assert next(found).offset == 10


async def test_a_program_leaves_no_session_behind(console, new_topic, producer):
    topic = new_topic()
    fill(producer, topic, 1)
    stranger = console.new_browser()
    for path in ("records/0/0/download", "search/download"):
        answer = await stranger.get(f"/topics/{topic}/{path}")
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
    await stranger.aclose()
    assert len(console.services.sessions) == 0
