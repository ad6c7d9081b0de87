"""Checks the compatibility rules of the three types of schemas against tables of cases, and the levels."""

from __future__ import annotations

import json
from typing import Any

import avro_cases
import json_schema_cases
import protobuf_cases
import pytest

from headrace.registry.compatibility.levels import LEVELS, problems
from headrace.registry.formats.parsing import Parsed, Resolved, SchemaParser
from headrace.registry.schemas import AVRO, JSON, PROTOBUF, SchemaText

PARSER = SchemaParser()


def parsed(kind: str, schema: Any) -> Parsed:
    text = schema if kind == PROTOBUF else json.dumps(schema)
    return PARSER.parse(Resolved(SchemaText(kind, text)))


def _check(kind: str, case: tuple[str, Any, Any, bool, bool]) -> None:
    _, earlier, new, backward, forward = case
    old, newer = parsed(kind, earlier), parsed(kind, new)
    found = {level: problems(level, newer, [old]) for level in ("BACKWARD", "FORWARD", "FULL")}
    assert (not found["BACKWARD"]) == backward, found
    assert (not found["FORWARD"]) == forward, found
    assert (not found["FULL"]) == (backward and forward), found


@pytest.mark.parametrize("case", avro_cases.CASES, ids=lambda case: case[0])
def test_avro(case: tuple[str, Any, Any, bool, bool]) -> None:
    _check(AVRO, case)


@pytest.mark.parametrize("case", json_schema_cases.CASES, ids=lambda case: case[0])
def test_json_schema(case: tuple[str, Any, Any, bool, bool]) -> None:
    _check(JSON, case)


@pytest.mark.parametrize("case", protobuf_cases.CASES, ids=lambda case: case[0])
def test_protobuf(case: tuple[str, Any, Any, bool, bool]) -> None:
    _check(PROTOBUF, case)


def test_only_transitive_levels_compare_with_all_versions() -> None:
    first = parsed(AVRO, avro_cases.record())
    second = parsed(AVRO, avro_cases.record(avro_cases.field("x", "int", default=1)))
    third = parsed(AVRO, avro_cases.record(avro_cases.field("x", "int")))
    found = {level: not problems(level, third, [first, second]) for level in LEVELS}
    assert found == {
        "NONE": True,
        "BACKWARD": True,
        "BACKWARD_TRANSITIVE": False,
        "FORWARD": True,
        "FORWARD_TRANSITIVE": True,
        "FULL": True,
        "FULL_TRANSITIVE": False,
    }


def test_another_type_of_schema_is_incompatible() -> None:
    found = problems("BACKWARD", parsed(JSON, {"type": "string"}), [parsed(AVRO, "string")])
    assert found == ["the type of the schema changes from AVRO to JSON"]
    assert problems("NONE", parsed(JSON, {"type": "string"}), [parsed(AVRO, "string")]) == []


def test_a_problem_names_the_place() -> None:
    old = avro_cases.record(avro_cases.field("n", avro_cases.record(name="N")))
    new = avro_cases.record(avro_cases.field("n", avro_cases.record(avro_cases.field("y", "int"), name="N")))
    found = problems("BACKWARD", parsed(AVRO, new), [parsed(AVRO, old)])
    assert found == [
        "the new schema cannot read data of an earlier schema: the field /n/y is missing, and has no default"
    ]


def test_alternatives_of_alternatives_are_bounded() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 30):
        below = {"$ref": f"#/definitions/d{number - 1}"}
        definitions[f"d{number}"] = {"anyOf": [below, {"allOf": [below, {"maxLength": 3}]}], "minLength": number}
    schema = {"definitions": definitions, "$ref": "#/definitions/d29"}
    other = {"definitions": {**definitions, "d0": {"type": "integer"}}, "$ref": "#/definitions/d29"}
    found = problems("BACKWARD", parsed(JSON, other), [parsed(JSON, schema)])
    assert found == [
        "the new schema cannot read data of an earlier schema: the schemas have too many alternatives to compare"
    ]
