"""Dead letters: what the dead-letter topic contains for each bad record."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import Admin, Consumer, TopicPartition
from headrace.pipeline.decoding.bad_positions import with_positions
from headrace.pipeline.decoding.dead_letters import DeadLetters
from headrace.pipeline.decoding.text_columns import MORE_THAN_JSON, NOT_JSON, NOT_UTF8
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.catalog_tables.sent_dead_letters import SentDeadLetters

AT = datetime(2026, 11, 16, 8, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)
COLUMNS = {
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"), "reason": pa.string(),
}  # fmt: skip


@pytest.fixture
def project(kafka, tmp_path) -> Project:
    return Project(tmp_path, kafka.bootstrap_servers, "sqlite://", str(tmp_path), "local[2]", log_options={
        "isolation.level": "read_committed", "client.id": "views",
    })  # fmt: skip


def view(dead_letters: str) -> ViewDefinition:
    query = FileText("pages.sql", "SELECT 1")
    return ViewDefinition("pages", ("clicks",), "", "lambda", query, Decode(), dead_letters=dead_letters, file=Path())


def table(*rows: tuple[object, ...]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, COLUMNS.values(), strict=True)],
                    names=list(COLUMNS))  # fmt: skip


def letters(project: Project, topic: str):
    with Consumer(bootstrap_servers=project.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        end = consumer.end_offsets(TopicPartition(topic, 0))[TopicPartition(topic, 0)]
        found = []
        while consumer.position(TopicPartition(topic, 0)) < end:
            found += consumer.poll(1000)
        return found


def test_a_dead_letter_is_the_record_and_says_why_it_is_there(project):
    bad = [(b"k", b"{", "clicks", 1, 7, AT, "no JSON"), (None, None, "clicks", 0, 8, None, "the record has no value")]
    with DeadLetters(project, view("clicks.dead")) as dead_letters:
        assert dead_letters.send(table(*bad)) == 2
        assert dead_letters.send(table(*bad[:1])) == 1
    first, second, third = letters(project, "clicks.dead")
    assert (first.key, first.value) == (b"k", b"{")
    assert dict(first.headers) == {
        "headrace.reason": b"no JSON", "headrace.view": b"pages", "headrace.topic": b"clicks",
        "headrace.partition": b"1", "headrace.offset": b"7", "headrace.timestamp": b"%d" % AT_MS,
    }  # fmt: skip
    assert first.timestamp_ms != AT_MS
    assert (second.key, second.value) == (None, None)
    assert dict(second.headers)["headrace.offset"] == b"8"
    assert dict(second.headers)["headrace.timestamp"] is None
    assert third.value == b"{"


def test_a_new_reason_is_logged_once(project, caplog):
    missing = "price: missing, but the schema says NOT NULL"
    with DeadLetters(project, view("")) as dead_letters:
        for offset in range(3):
            dead_letters.send(table((None, b"{}", "clicks", 1, offset, AT, missing)))
        dead_letters.send(table(*((None, b"{", "clicks", 0, at, AT, f"reason\n{at}") for at in range(100))))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == f"pages: records do not decode, the first is clicks:1:0: {missing}"
    assert lines[1] == "pages: records do not decode, the first is clicks:0:0: reason 0"
    assert len(lines) == 20


def test_rows_as_decoding_names_them_and_headers_that_a_record_had(project):
    rows = table((b"k", b"{", "clicks", 1, 7, AT, "no JSON"))
    names = {"key": "_key", "value": "_value", "reason": "_error"}
    rows = rows.rename_columns([names.get(name, f"_{name}") for name in rows.column_names])
    kind = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    rows = rows.append_column("_headers", pa.array([[{"key": "trace", "value": b"1"}]], kind))
    with DeadLetters(project, view("had.headers")) as dead_letters:
        dead_letters.send(rows)
    (letter,) = letters(project, "had.headers")
    assert [key for key, _ in letter.headers][:2] == ["trace", "headrace.reason"]
    assert letter.value == b"{"


def test_a_record_that_the_topic_does_not_take_comes_without_its_value(project):
    with Admin(bootstrap_servers=project.bootstrap) as admin:
        admin.create_topic("small.dead", configs={"max.message.bytes": 2000})
    bad = [(b"k", b"x" * size, "clicks", 0, size, AT, "too long to be true") for size in (10, 5000, 20)]
    with DeadLetters(project, view("small.dead")) as dead_letters:
        assert dead_letters.send(table(*bad)) == 3
    found = {dict(letter.headers)["headrace.offset"]: letter for letter in letters(project, "small.dead")}
    assert found[b"10"].value == b"x" * 10
    assert found[b"5000"].value is None
    assert found[b"5000"].key == b"k"
    assert dict(found[b"5000"].headers)["headrace.left_out"] == b"5000"


@pytest.mark.parametrize(
    ("reason", "value", "expected"),
    [
        (NOT_JSON, b'{"a":1,}', r": .*, at character 8"),
        (NOT_JSON, b'{"a":1', r": Expecting ',' delimiter, at character 7"),
        (NOT_JSON, b"{'a':1,}", ""),
        (NOT_JSON, b"7", ""),
        (NOT_JSON, b"[" * 100_000, ""),
        (MORE_THAN_JSON, b'{"a":1}{"a":2}', ": at character 8"),
        (MORE_THAN_JSON, b' {"a":1}\n x', ": at character 11"),
        (MORE_THAN_JSON, b"{'a':1}{}", ""),
        (NOT_UTF8, b"ab\xff", ": at byte 3"),
        ("ms: the value does not fit BIGINT", b"{", ""),
    ],
)
def test_a_reason_says_where_in_the_value(reason, value, expected):
    reasons, values = pa.chunked_array([["other", reason]]), pa.chunked_array([[None, value]])
    other, found = with_positions(reasons, values).to_pylist()
    assert other == "other"
    assert re.fullmatch(re.escape(reason) + expected, found), found


def test_a_dead_letter_says_where_in_its_value(project):
    bad = [(None, b'{"a":1} x', "clicks", 0, 7, AT, MORE_THAN_JSON), (None, b"x", "clicks", 0, 8, AT, "no JSON")]
    with DeadLetters(project, view("positions.dead")) as dead_letters:
        dead_letters.send(table(*bad))
    reasons = [dict(letter.headers)["headrace.reason"] for letter in letters(project, "positions.dead")]
    assert reasons == [b"text follows the JSON document: at character 9", b"no JSON"]


def test_the_guide_has_every_header(project):
    with Admin(bootstrap_servers=project.bootstrap) as admin:
        admin.create_topic("guide.dead", configs={"max.message.bytes": 2000})
    with DeadLetters(project, view("guide.dead")) as dead_letters:
        dead_letters.send(table((b"k", b"x" * 5000, "clicks", 0, 7, AT, "no JSON")))
    (letter,) = letters(project, "guide.dead")
    guide = (Path(__file__).parents[3] / "docs" / "views.md").read_text()
    documented = set(re.findall(r"`(headrace\.\w+)`", guide.partition("| Header |")[2].partition("\n\n")[0]))
    assert documented == {key for key, _ in letter.headers}


def test_without_a_topic_bad_records_are_only_counted(project):
    with DeadLetters(replace(project, bootstrap="127.0.0.1:1"), view("")) as dead_letters:
        assert dead_letters.send(table((b"k", b"{", "clicks", 1, 7, AT, "no JSON"))) == 1
        assert dead_letters.send(table((b"k", b"{", "clicks", 1, 7, AT, "no JSON")).slice(0, 0)) == 0


def test_what_was_sent_is_not_sent_again_by_whoever_comes_next(project, database):
    Catalog(database)
    bad = [(b"k", b"{", "clicks", at, offset, AT, "no JSON") for at in (0, 1) for offset in (3, 7)]
    bad.append((b"k", b"{", "other", 0, 3, AT, "no JSON"))

    def sends(version: int, *rows: tuple[object, ...], up_to: dict[str, dict[int, int]]) -> None:
        notes = SentDeadLetters(database, "pages", version)
        with DeadLetters(project, view(topic), notes) as dead_letters:
            assert dead_letters.send(table(*rows)) == len(rows)
            dead_letters.sent_up_to(up_to)

    def places() -> list[str]:
        headers = [dict(letter.headers) for letter in letters(project, topic)]
        return [f"{each['headrace.topic']}-{each['headrace.partition']}@{each['headrace.offset']}"
                for each in ({name: value.decode() for name, value in found.items()} for found in headers)]  # fmt: skip

    topic = f"noted-{database.is_sqlite}"
    sends(1, *bad[:3], up_to={"clicks": {0: 8, 1: 4}})
    sends(1, *bad, up_to={"clicks": {1: 8}, "other": {0: 4}})
    assert places() == ["clicks-0@3", "clicks-0@7", "clicks-1@3", "clicks-1@7", "other-0@3"]
    assert SentDeadLetters(database, "pages", 1).read() == {"clicks": {0: 8, 1: 8}, "other": {0: 4}}
    sends(2, bad[0], up_to={"clicks": {0: 8}})
    assert places()[5:] == ["clicks-0@3"], "another version sends its own"


def test_nothing_is_noted_where_nothing_was_sent(project, database):
    Catalog(database)
    notes = SentDeadLetters(database, "pages", 1)
    with DeadLetters(project, view("none.dead"), notes) as dead_letters:
        dead_letters.sent_up_to({"clicks": {0: 8}})
    assert notes.read() == {}
