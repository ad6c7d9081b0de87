"""Columns from a JSON schema."""

from __future__ import annotations

import json

import pytest

from headrace.pipeline.inference.json_schema import json_schema_columns

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b c": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("property_", "column"),
    [
        ({"type": "integer"}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": "string"}, "STRING"),
        ({"type": "string", "format": "date-time"}, "TIMESTAMP"),
        ({"type": "string", "format": "date"}, "DATE"),
        ({"type": "string", "format": "email"}, "STRING"),
        ({"type": ["null", "integer"]}, "BIGINT"),
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, "DOUBLE"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "VARIANT"),
        ({"type": ["string", "number"]}, "VARIANT"),
        ({}, "VARIANT"),
        (True, "VARIANT"),
        ({"type": "array", "items": {"type": "string"}}, "ARRAY<STRING>"),
        ({"type": "array"}, "VARIANT"),
        (OBJECT, "STRUCT<a: BIGINT NOT NULL, `b c`: STRING>"),
        ({"type": "object"}, "VARIANT"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "MAP<STRING, BIGINT>"),
        ({"$ref": "#/$defs/money"}, "STRUCT<cents: BIGINT>"),
        ({"$ref": "#/$defs/nothing"}, "VARIANT"),
        ({"$ref": "other.json"}, "VARIANT"),
        ({"$ref": "#/$defs/loop"}, "VARIANT"),
    ],
)
def test_types(property_, column):
    definitions = {
        "money": {"type": "object", "properties": {"cents": {"type": "integer"}}},
        "loop": {"$ref": "#/$defs/loop"},
    }
    schema = {"type": "object", "properties": {"x": property_}, "$defs": definitions}
    assert json_schema_columns(json.dumps(schema)) == f"x {column}"


def test_required_properties_are_not_null_unless_they_may_be_null():
    properties = {
        "id": {"type": "integer"},
        "note": {"type": ["string", "null"]},
        "any": {},
        "more": {"type": "string"},
    }
    schema = {"type": "object", "properties": properties, "required": ["id", "note", "any"]}
    assert json_schema_columns(json.dumps(schema)) == "id BIGINT NOT NULL, note STRING, any VARIANT, more STRING"


def test_a_type_that_contains_itself_ends():
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert json_schema_columns(json.dumps(node)).startswith("next STRUCT<next: STRUCT<")


@pytest.mark.parametrize("text", ["", "[]", "true", '{"type": "string"}', '{"type": "object"}'])
def test_schemas_without_columns(text):
    with pytest.raises(ValueError, match="JSON"):
        json_schema_columns(text)
