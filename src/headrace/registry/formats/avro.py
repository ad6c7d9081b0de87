"""Parses Avro schemas with fastavro.

fastavro checks the schema and gives every type its full name. References are schemas that are parsed first, so that
their types are known. The names of references do not matter: Avro finds types by their full names. What fastavro does
not check is in :mod:`headrace.registry.formats.avro_rules`.
"""

from __future__ import annotations

from typing import Any

from headrace.registry.formats import avro_rules, json_text
from headrace.registry.formats.parsing import InvalidSchema, Parsed, Resolved
from headrace.registry.schemas import AVRO

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_ANNOTATIONS = ("__fastavro_parsed__", "__named_schemas")


class AvroContent:
    """
    :ivar schema: the schema with full names, as fastavro writes it.
    :ivar named: its named types and those of its references, by full name.
    """

    def __init__(self, schema: Any, named: dict[str, Any]) -> None:
        self.schema = schema
        self.named = named


def parse(resolved: Resolved) -> Parsed:
    """
    :raises InvalidSchema: if it is not an Avro schema.
    """
    named: dict[str, Any] = {}
    for name, dependency in resolved.dependencies:
        if dependency.kind != AVRO:
            raise InvalidSchema(f"the reference {name} is not an Avro schema")
        _parsed(json_text.load(dependency.text), named)
    value = json_text.load(resolved.schema.text)
    content = _without_annotations(_parsed(value, named))
    identity = json_text.compact(_simplified(content), sort_keys=True)
    stored = json_text.compact(_simplified(value))
    return Parsed(
        AVRO, stored, identity, lambda: identity, AvroContent(content, named), lambda: avro_rules.check(value)
    )


def _parsed(value: Any, named: dict[str, Any]) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        return parse_schema(value, named_schemas=named, _force=True)
    except UnknownType as error:
        raise InvalidSchema(f"the type {error.name} is unknown; a type of another subject needs a reference") from None
    except (SchemaParseException, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InvalidSchema(f"it is not an Avro schema: {reason}") from None


def _without_annotations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_annotations(each) for key, each in value.items() if key not in _ANNOTATIONS}
    return [_without_annotations(each) for each in value] if isinstance(value, list) else value


def _simplified(value: Any) -> Any:
    """Writes ``{"type": "string"}`` as ``"string"``, which is the same schema. Default values stay as they are."""
    if isinstance(value, list):
        return [_simplified(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"type"} and isinstance(value["type"], str) and value["type"] in _PRIMITIVES:
        return value["type"]
    return {key: _simplified_member(key, each) for key, each in value.items()}


def _simplified_member(key: str, value: Any) -> Any:
    if key in ("type", "items", "values"):
        return _simplified(value)
    if key == "fields" and isinstance(value, list):
        return [
            {name: _simplified_member(name, each) for name, each in field.items()} if isinstance(field, dict) else field
            for field in value
        ]
    return value
