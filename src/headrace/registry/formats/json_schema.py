"""Parses JSON Schemas with the library jsonschema, which checks them against the meta-schema of their draft.

Without ``$schema`` a schema is of draft 7, as in Confluent's registry. A reference is found by the address in ``$ref``:
the name of the reference, or the ``$id`` of the schema.
"""

from __future__ import annotations

from typing import Any

from headrace.registry.formats import json_references, json_text
from headrace.registry.formats.parsing import InvalidSchema, Parsed, Resolved
from headrace.registry.schemas import JSON

_MAX_MESSAGE = 300


class JsonContent:
    """
    :ivar schema: the schema as a JSON value: an object or a boolean.
    :ivar documents: the schemas that it refers to, by name and by ``$id``.
    """

    def __init__(self, schema: Any, documents: dict[str, Any]) -> None:
        self.schema = schema
        self.documents = documents


def parse(resolved: Resolved) -> Parsed:
    """
    :raises InvalidSchema: if it is not a JSON Schema.
    """
    documents: dict[str, Any] = {}
    for name, dependency in resolved.dependencies:
        if dependency.kind != JSON:
            raise InvalidSchema(f"the reference {name} is not a JSON Schema")
        document = json_text.load(dependency.text)
        documents[name] = document
        if isinstance(document, dict) and isinstance(document.get("$id"), str):
            documents.setdefault(document["$id"], document)
    value = json_text.load(resolved.schema.text)
    _check(value)
    identity = json_text.compact(value, sort_keys=True)
    content = JsonContent(value, documents)
    return Parsed(
        JSON,
        json_text.compact(value),
        identity,
        lambda: identity,
        content,
        lambda: json_references.check(value, documents),
    )


def _check(value: Any) -> None:
    from jsonschema import Draft7Validator  # type: ignore[import-untyped]
    from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    if not isinstance(value, dict | bool):
        raise InvalidSchema("a JSON Schema is an object or a boolean")
    if isinstance(value, dict) and not isinstance(value.get("$schema", ""), str):
        raise InvalidSchema("$schema is not text")
    try:
        validator_for(value, default=Draft7Validator).check_schema(value)
    except SchemaError as error:
        place = "/".join(str(each) for each in error.absolute_path)
        raise InvalidSchema(f"it is not a JSON Schema: {error.message[:_MAX_MESSAGE]} (at #/{place})") from None
