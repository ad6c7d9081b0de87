"""Converts a JSON schema to columns as Spark writes them.

===============================  ====================================================================================
JSON schema                      column
===============================  ====================================================================================
integer, number, boolean         BIGINT, DOUBLE, BOOLEAN
string                           STRING; with the format date-time TIMESTAMP, with date DATE
array with items                 ARRAY
object with properties           STRUCT; without them MAP<STRING, ...> if additionalProperties has a type, else VARIANT
a type or null                   the type; also as oneOf or anyOf
$ref within the schema           what it refers to; a reference to another schema, or to itself: VARIANT
several types, no type           VARIANT
===============================  ====================================================================================

A property that is required and cannot be null is NOT NULL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.pipeline.inference.types import quoted

_SIMPLE = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
_ANYTHING = "VARIANT"
_MAX_DEPTH = 20
_NULL = {"type": "null"}


def json_schema_columns(text: str) -> str:
    """
    :raises ValueError: if this is not the schema of an object whose properties are known.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
    converter = _Converter(schema if isinstance(schema, dict) else {})
    found = converter.properties(converter.root, 0)
    if not found:
        raise ValueError("the JSON schema has no properties that could be columns")
    return ", ".join(f"{name} {kind}" for name, kind in found)


class _Converter:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def properties(self, schema: Mapping[str, Any], depth: int) -> list[tuple[str, str]]:
        """The quoted name and the type of each property."""
        resolved, _ = self._resolved(schema)
        properties, required = resolved.get("properties"), resolved.get("required")
        found = []
        for name, each in (properties if isinstance(properties, dict) else {}).items():
            kind, may_be_null = self._type(each, depth + 1)
            is_required = isinstance(required, list) and name in required and not may_be_null
            found.append((quoted(name), kind + (" NOT NULL" if is_required else "")))
        return found

    def _type(self, schema: object, depth: int) -> tuple[str, bool]:
        """The type, and whether it may be null."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return _ANYTHING, True
        resolved, may_be_null = self._resolved(schema)
        kinds = _kinds(resolved)
        may_be_null = may_be_null or not kinds or "null" in kinds
        others = [kind for kind in kinds if kind != "null"]
        return (self._single(others[0], resolved, depth) if len(others) == 1 else _ANYTHING), may_be_null

    def _single(self, kind: str, schema: Mapping[str, Any], depth: int) -> str:
        if kind == "string":
            return _FORMATS.get(str(schema.get("format")), "STRING")
        if kind == "array":
            items = schema.get("items")
            return f"ARRAY<{self._type(items, depth + 1)[0]}>" if isinstance(items, dict) else _ANYTHING
        return self._object(schema, depth) if kind == "object" else _SIMPLE.get(kind, _ANYTHING)

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        fields = self.properties(schema, depth)
        if fields:
            return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in fields)}>"
        others = schema.get("additionalProperties")
        return f"MAP<STRING, {self._type(others, depth + 1)[0]}>" if isinstance(others, dict) else _ANYTHING

    def _resolved(self, schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """The schema without references and without a choice between null and one other; whether null is a choice."""
        may_be_null = False
        for _ in range(_MAX_DEPTH):
            choices = schema.get("oneOf") or schema.get("anyOf")
            others = [each for each in choices if each != _NULL] if isinstance(choices, list) else []
            if isinstance(choices, list) and len(others) == 1 and isinstance(others[0], dict):
                may_be_null, schema = may_be_null or len(others) < len(choices), others[0]
            elif isinstance(schema.get("$ref"), str):
                schema = self._referred(schema["$ref"])
            else:
                return schema, may_be_null
        return {}, True

    def _referred(self, reference: str) -> Mapping[str, Any]:
        """A part of the schema, such as ``#/$defs/money``."""
        found: object = self.root if reference.startswith("#") else {}
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    if kind is None:
        return ["object"] if "properties" in schema else []
    return [str(each) for each in kind] if isinstance(kind, list) else [str(kind)]
