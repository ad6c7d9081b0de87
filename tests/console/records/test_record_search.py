"""The search over all partitions: what it finds, where it stops, its bounds, and its downloads."""

from __future__ import annotations

import csv
import io
import json

import pytest
from console_harness import Elements

from headrace.console.records import downloads, searches

RECORDS = 600


@pytest.fixture(scope="module")
def topic(admin, producer) -> str:
    """A topic whose record N has the key kN, a JSON value with N, and a time of N seconds after 1000 s."""
    admin.create_topic("searched", num_partitions=3)
    for number in range(RECORDS):
        value = {"number": number, "user": "ann" if number % 100 == 7 else "bob", "deep": {"list": [number, "x"]}}
        producer.send(
            "searched", key=b"k%d" % number, value=json.dumps(value).encode(), partition=number % 3,
            timestamp_ms=1_000_000 + number * 1_000, headers={"trace": b"t%d" % number} if number % 50 == 0 else {},
        )  # fmt: skip
    producer.flush()
    return "searched"


async def numbers(console, topic, query):
    found = await console.json(f"/api/topics/{topic}/search?go=true&{query}")
    assert found["state"] == "complete", found["problem"]
    return sorted(json.loads(row["value"]["text"])["number"] for row in found["records"])


ANN = [7, 107, 207, 307, 407, 507]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("text=%22ann%22", ANN),
        ("text=ANN", []),
        ("text=(?i)ANN&expression=true", ANN),
        ("text=^%5C{.number.: 1[02]7,&expression=true", [107, 127]),
        ("text=k107&inside=key", [107]),
        ("text=k107", []),
        ("text=k107&inside=key or value", [107]),
        ("text=t50&inside=header", [50, 500]),
        ("text=t50&inside=header&header=trace", [50, 500]),
        ("text=t50&inside=header&header=other", []),
        ("inside=header&header=trace&until_offset=20", [0, 50]),
        ("text=ann&partition=1", [7, 307]),
        ("text=ann&from_time=1300000&until_time=1407000", [307]),
        ("text=ann&from_offset=100&until_offset=150", [307, 407]),
        ("filter=value.user = 'ann' and value.number > 300", [307, 407, 507]),
        ("filter=.deep.list[0] in (5, 6) or key = 'k8'", [5, 6, 8]),
        ("filter=headers.trace matches '^t1.0$'", [100, 150]),
        ("filter=partition = 2 and offset < 2", [2, 5]),
        ("filter=value.missing is not null", []),
        ("text=ann&filter=value.number < 200", [7, 107]),
        ("from_time=1599000", [599]),
        ("from_time=2040-01-01", []),
    ],
)
async def test_what_is_searched_is_found(console, topic, query, expected):
    assert await numbers(console, topic, query) == expected


async def test_a_search_that_found_enough_goes_on_where_it_was(console, topic):
    found, positions = [], ""
    for _ in range(4):
        query = f"go=true&text=ann&results=2&positions={positions}"
        answer = await console.json(f"/api/topics/{topic}/search?{query}")
        found += [json.loads(row["value"]["text"])["number"] for row in answer["records"]]
        positions = answer["following"]
        if answer["state"] == "complete":
            break
        assert answer["state"] == "enough found"
    assert sorted(found) == ANN


async def test_the_page_shows_what_was_found(console, topic):
    empty = Elements(await console.page(f"/topics/{topic}/search"))
    assert not [each for each in empty.named("section") if each.get("data-state")]
    page = Elements(await console.page(f"/topics/{topic}/search?go=true&text=ann"))
    (section,) = page.named("section")
    assert section["data-state"] == "complete"
    assert "Complete: 6 found in 600 records" in page.text
    links = [each["href"] for each in page.named("a")]
    assert f"/topics/{topic}/records/1/2" in links
    assert sum("/search/download?" in link for link in links) == 3


async def test_a_page_follows_its_search_and_a_new_run_searches_again(console, topic, producer, new_topic):
    topic = new_topic()
    producer.send(topic, value=b"needle").result()
    path = f"/topics/{topic}/search?go=true&text=needle"
    assert "1 found" in Elements(await console.page(path)).text
    producer.send(topic, value=b"needle").result()
    assert "1 found" in Elements(await console.page(path)).text
    assert "2 found" in Elements(await console.page(f"{path}&run=2")).text


@pytest.mark.parametrize(
    "query", ["filter=value.a =", "text=(&expression=true", "from_time=x", "results=0", "seconds=301", "positions=9:1"]
)
async def test_wrong_searches_are_refused(console, topic, query):
    assert (await console.get(f"/api/topics/{topic}/search?go=true&{query}")).status_code == 422
    assert (await console.get(f"/topics/{topic}/search?go=true&{query}")).status_code == 422


async def test_a_search_stops_when_it_is_told(console, topic):
    # The search is told before its first batch is searched.
    answer = await console.get(f"/topics/{topic}/search?go=true&text=nothing&stop=true")
    assert answer.status_code == 200
    (section,) = Elements(answer.text).named("section")
    assert section["data-state"] in ("stopped", "complete")


async def test_only_some_searches_run_at_once(console, topic, monkeypatch):
    monkeypatch.setattr(searches, "MOST_RUNNING", 0)
    answer = await console.get(f"/api/topics/{topic}/search?go=true&text=x")
    assert (answer.status_code, answer.json()["error"]) == (429, "too_many")


async def test_what_was_found_is_downloaded(console, topic):
    path = f"/topics/{topic}/search/download?text=ann&go=true"
    lines = [json.loads(line) for line in (await console.get(path)).text.splitlines()]
    assert sorted(line["value"]["number"] for line in lines) == ANN
    assert lines[0] == {
        "partition": 0, "offset": 69, "timestamp": 1_207_000, "key": "k207", "key_encoding": "text",
        "value": {"number": 207, "user": "ann", "deep": {"list": [207, "x"]}}, "value_encoding": "json", "headers": [],
    }  # fmt: skip
    answer = await console.get(f"{path}&as=csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="searched.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert sorted(json.loads(row["value"])["number"] for row in rows) == ANN


async def test_parquet_needs_pyarrow(console, topic, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    path = f"/topics/{topic}/search/download?text=ann&as=parquet"
    table = pq.read_table(io.BytesIO((await console.get(path)).content))
    assert sorted(json.loads(value)["number"] for value in table["value"].to_pylist()) == ANN
    monkeypatch.setattr("headrace.console.record_answers.has_parquet", lambda: False)
    answer = await console.get(path)
    assert (answer.status_code, "pip install" in answer.text) == (501, True)


async def test_a_cell_is_no_formula_of_a_spreadsheet(console, new_topic, producer):
    topic = new_topic()
    producer.send(topic, key=b"-1+2", value=b"=HYPERLINK(1)").result()
    answer = await console.get(f"/topics/{topic}/search/download?as=csv")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["key"], row["value"]) == ("'-1+2", "'=HYPERLINK(1)")


async def test_a_damaged_batch_is_counted_and_does_not_end_a_search():
    from headrace.console.records.criteria import Criteria, Term
    from headrace.console.records.decoding import Decoder
    from headrace.console.records.masking import Masks
    from headrace.console.records.matching import Matcher
    from headrace.protocol.batch_building import build_batch
    from headrace.protocol.record_body import Record
    from headrace.protocol.records import read_header

    good = build_batch([Record(0, 1, None, b"needle")])
    damaged = bytearray(good)
    damaged[-3] ^= 1
    matcher = Matcher(Criteria(Term("value", "needle", False)), Decoder(Masks()))
    assert list(matcher.of_batch(0, read_header(damaged), memoryview(damaged), 0)) == []
    assert len(list(matcher.of_batch(0, read_header(good), memoryview(good), 0))) == 1
    assert matcher.unreadable == 1


def test_files_have_a_bound():
    assert downloads.MOST_RECORDS == 100_000
