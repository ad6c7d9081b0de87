"""The source that is guessed from records, and how records differ from a source."""

from __future__ import annotations

import json
import tomllib

import pytest

from headrace.pipeline.inference.guess import Guess, drift, guess
from headrace.pipeline.inference.source_text import source_text
from headrace.pipeline.inference.types import ddl, merge, split_columns, type_of


def _json(*documents: object, key: bytes | None = None) -> list[tuple[bytes | None, bytes | None]]:
    return [(key, json.dumps(each).encode()) for each in documents]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "BIGINT"),
        (2**70, "DECIMAL(38,0)"),
        (1.5, "DOUBLE"),
        (True, "BOOLEAN"),
        ("x", "STRING"),
        ("2026-11-17", "DATE"),
        ("2026-11-17T08:00:00.123Z", "TIMESTAMP"),
        ("2026-11-17 08:00", "TIMESTAMP"),
        ("2026-02-30", "STRING"),
        ("0000-00-00 00:00:00", "STRING"),
        ("2026-11-17T25:00:00Z", "STRING"),
        (10**38, "STRING"),
        (None, "STRING"),
        ([1, None, 2.5], "ARRAY<DOUBLE>"),
        ([], "ARRAY<STRING>"),
        ({"a": {"b c": [1]}}, "STRUCT<a: STRUCT<`b c`: ARRAY<BIGINT>>>"),
        ({}, "VARIANT"),
        ({"a": {}}, "STRUCT<a: VARIANT>"),
        ({"a": 1, "A": 2}, "VARIANT"),
        ({"": 1}, "VARIANT"),
        ({str(number): 1 for number in range(300)}, "VARIANT"),
        ([{"a": 1}, {"b": 2}], "ARRAY<STRUCT<a: BIGINT, b: BIGINT>>"),
    ],
)
def test_the_type_of_a_value(value, kind):
    assert ddl(type_of(value)) == kind


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (1, 2.5, "DOUBLE"),
        (1, 2**70, "DECIMAL(38,0)"),
        ("2026-11-17", "2026-11-17T08:00:00Z", "TIMESTAMP"),
        ("2026-11-17", "x", "STRING"),
        (1, "x", "STRING"),
        (True, 1, "STRING"),
        ({"a": 1}, [1], "STRING"),
        ({"a": 1}, None, "STRUCT<a: BIGINT>"),
        ({"a": 1}, {"a": "x", "b": 1}, "STRUCT<a: STRING, b: BIGINT>"),
    ],
)
def test_the_type_of_two_values(one, other, kind):
    assert ddl(merge(type_of(one), type_of(other))) == kind
    assert ddl(merge(type_of(other), type_of(one))).replace("b: BIGINT, a: STRING", "a: STRING, b: BIGINT") == kind


def test_json_events():
    records = _json(*({"id": n, "note": None if n else "x", "_key": 1, "ID": 2} for n in range(20)))
    found = guess(records, is_compacted=False)
    assert (found.kind, found.key_fields) == ("events", {})
    assert found.fields == {"format": "json", "schema": "id BIGINT NOT NULL, note STRING"}
    assert found.notes == [
        "the field note is missing or null in 19 of 20 records",
        "the field _key is left out: names with _ are taken",
        "the field ID is left out: another column has this name in other case",
    ]


def test_a_field_without_a_name_is_left_out():
    found = guess(_json({"id": 1, "": 2}), is_compacted=False)
    assert (found.fields["schema"], found.notes) == ("id BIGINT", ["the field '' is left out: a column needs a name"])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_json_that_views_cannot_decode_is_not_json(encoding):
    records = [(None, json.dumps({"id": 1}).encode(encoding))]
    assert guess(records, is_compacted=False).fields == {"format": "raw"}


def test_events_that_only_look_like_changes():
    found = guess(_json({"op": "c", "after": 5}, {"op": "u", "after": 6}), is_compacted=False)
    assert (found.kind, found.fields["schema"]) == ("events", "op STRING, after BIGINT")


def test_few_records_prove_nothing_about_null():
    assert guess(_json({"id": 1}), is_compacted=False).fields["schema"] == "id BIGINT"


def test_a_table():
    records = [*_json({"name": "ann"}, key=b'{"id":1}'), (b'{"id":2}', None)]
    found = guess(records, is_compacted=True)
    assert (found.kind, found.fields["schema"]) == ("table", "name STRING")
    assert found.key_fields == {"format": "json", "schema": "id BIGINT"}
    assert guess(_json({"id": 1}, key=b'{"id":1}'), is_compacted=True).key_fields == {}  # the value has it
    assert guess(_json({"id": 1}, key=b"17"), is_compacted=True).key_fields == {"format": "csv", "schema": "key BIGINT"}
    assert guess(_json({"id": 1}, key=b"ann"), is_compacted=True).key_fields == {}
    assert guess(_json({"id": 1}, key=b"9" * 20), is_compacted=True).key_fields == {}  # no BIGINT
    assert guess(_json({"id": 1}), is_compacted=True).kind == "events"  # no keys


@pytest.mark.parametrize("has_schema", [False, True])
def test_changes(has_schema):
    envelopes = [
        {"op": "c", "before": None, "after": {"id": 1, "name": "ann"}},
        {"op": "d", "before": {"id": 1}, "after": None},
    ]
    documents = [{"schema": {}, "payload": each} for each in envelopes] if has_schema else envelopes
    found = guess([*_json(*documents, key=b'{"id":1}'), (b'{"id":1}', None)], is_compacted=False)
    assert (found.kind, found.fields) == ("changes", {"format": "json", "schema": "id BIGINT, name STRING"})
    assert found.key_fields == {}


def test_other_formats():
    assert guess(_json([1], 2, "x"), is_compacted=False).fields == {"format": "json", "schema": "v VARIANT"}
    lines = [(None, line) for line in (b"ann;7;2026-11-17", b'"b;b";8;2026-11-18\n')]
    assert guess(lines, is_compacted=False).fields == {
        "format": "csv", "schema": "c1 STRING, c2 BIGINT, c3 DATE", "options": {"sep": ";"}}  # fmt: skip
    assert guess([(None, b"\xff\xfe")], is_compacted=False).fields == {"format": "raw"}
    framed = guess([(None, b'\0\0\0\0\x07{"id":1}')], is_compacted=False)
    assert framed.fields == {"format": "json", "schema": "id BIGINT", "framing": "confluent"}
    assert guess([(None, b"\0\0\0\0\x07\x02\x04")], is_compacted=False).notes[0] == (
        "the values begin with ids of schemas: 7"
    )


def test_a_few_bad_records():
    records = [*_json(*({"id": 1} for _ in range(19))), (None, b"{bad")]
    assert guess(records, is_compacted=False).notes[0].startswith("1 of 20 records are not JSON")


def test_nothing_to_look_at():
    with pytest.raises(ValueError, match="no record has a value"):
        guess([(b"k", None)], is_compacted=True)


def test_the_file_is_valid():
    fields = {"format": "csv", "schema": ", ".join(f"column_{n} STRUCT<a: INT, b: INT>" for n in range(9)),
              "options": {"sep": "\t"}}  # fmt: skip
    made = Guess("table", fields, {"format": "json", "schema": "`a b` INT"}, ["look at this"])
    read = tomllib.loads(source_text('my"topic', made, record_count=3))
    assert read["kind"] == "table"
    assert read["topics"] == ['my"topic']
    assert read["decode"]["options"] == {"sep": "\t"}
    assert " ".join(read["decode"]["schema"].split()) == fields["schema"]
    assert read["decode"]["key"] == {"format": "json", "schema": "`a b` INT"}


def test_columns_are_cut_at_their_commas():
    schema = "a STRUCT<b: INT, c: DECIMAL(3,1)>, `x, y` INT NOT NULL, d INT"
    assert split_columns(schema) == ["a STRUCT<b: INT, c: DECIMAL(3,1)>", "`x, y` INT NOT NULL", "d INT"]


def test_drift():
    records = _json({"id": 1, "Name": "ann", "price": None}, {"id": 2, "extra": [1]})
    assert drift("id BIGINT, name STRING, price DOUBLE, gone INT", records) == (
        ["name", "price", "gone"],  # Spark reads a field of another case as NULL
        {"Name": "STRING", "extra": "ARRAY<BIGINT>"},
    )
    assert drift("id BIGINT COMMENT 'a, b', extra ARRAY<INT>", _json({"id": 1, "extra": [1]})) == ([], {})
    assert drift("v VARIANT", records) == ([], {})
    changes = _json({"op": "c", "before": None, "after": {"id": 1}})
    assert drift("id BIGINT", changes) == ([], {})
    assert drift("id BIGINT", [(None, b'\0\0\0\0\x01{"id":1}')], is_framed=True) == ([], {})
