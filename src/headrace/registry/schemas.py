"""Holds a schema as clients send it: its type, its text, and the schemas that it refers to. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headrace.registry.errors import RegistryError, invalid_schema, unprocessable
from headrace.registry.guids import guid_of
from headrace.registry.records import UnreadableRecord

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)
#: A record of the topic has at most a mebibyte by default, and JSON escapes quotes and newlines.
MAX_SCHEMA_CHARACTERS = 700_000
MAX_REFERENCES = 100
LATEST = -1
_MAX_INT = 2**31 - 1


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses.

    :ivar name: the name under which the schema uses it: a type of Avro, an address of JSON, a file of Protobuf.
    """

    name: str
    subject: str
    version: int

    def fields(self) -> dict[str, object]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class SchemaText:
    """
    :ivar metadata: JSON, or empty. The registry stores and returns it, and gives it no meaning; so with the rules.
    """

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    rule_set: str = ""

    @cached_property
    def guid(self) -> str:
        return guid_of(self)

    def metadata_property(self, name: str) -> object:
        """A property of the metadata; None if it has none."""
        metadata = json.loads(self.metadata) if self.metadata else {}
        properties = metadata.get("properties")
        return properties.get(name) if isinstance(properties, dict) else None

    def fields(self) -> dict[str, object]:
        """Its members in records and answers. Like Confluent's registry, the type is left out if it is Avro."""
        found: dict[str, object] = {}
        if self.kind != AVRO:
            found["schemaType"] = self.kind
        if self.references:
            found["references"] = [reference.fields() for reference in self.references]
        if self.metadata:
            found["metadata"] = json.loads(self.metadata)
        if self.rule_set:
            found["ruleSet"] = json.loads(self.rule_set)
        return {**found, "schema": self.text}


def schema_text_of(value: Mapping[str, Any]) -> SchemaText:
    """The schema in the value of a record.

    :raises UnreadableRecord: if there is none.
    """
    try:
        return _schema_text(value)
    except RegistryError as error:
        raise UnreadableRecord(error.message) from None


def requested_schema(body: Mapping[str, Any]) -> SchemaText:
    """The schema in the body of a request.

    :raises RegistryError: if there is none, or it is too large.
    """
    found = _schema_text(body)
    if len(found.text) > MAX_SCHEMA_CHARACTERS:
        raise invalid_schema(f"it has {len(found.text)} characters; at most {MAX_SCHEMA_CHARACTERS} are possible")
    if not found.text.strip():
        raise invalid_schema("it is empty")
    return found


def with_previous(schema: SchemaText, previous: SchemaText, body: Mapping[str, Any]) -> SchemaText:
    """A schema of a request with the metadata and the rules of the version before, where the request has none.

    A request that has them as an empty object leaves them out on purpose.
    """
    metadata = previous.metadata if body.get("metadata") is None else schema.metadata
    rule_set = previous.rule_set if body.get("ruleSet") is None else schema.rule_set
    return replace(schema, metadata=metadata, rule_set=rule_set)


def _schema_text(body: Mapping[str, Any]) -> SchemaText:
    text, kind = body.get("schema"), body.get("schemaType") or AVRO
    if not isinstance(text, str):
        raise unprocessable('the body has no schema: send {"schema": "...", "schemaType": "AVRO"}')
    if kind not in TYPES:
        raise unprocessable(f"the schemaType {str(kind)[:40]!r} is unknown; use AVRO, JSON or PROTOBUF")
    given = body.get("references") or []
    if not isinstance(given, list) or len(given) > MAX_REFERENCES:
        raise unprocessable(f"references must be a list of at most {MAX_REFERENCES} objects")
    references = tuple(_reference(each) for each in given)
    return SchemaText(kind, text, references, _json(body.get("metadata")), _json(body.get("ruleSet")))


def _reference(given: object) -> Reference:
    if isinstance(given, dict):
        name, subject, version = given.get("name"), given.get("subject"), given.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int) and _is_version(version):
            return Reference(name, subject, version)
    raise unprocessable('a reference is {"name": "...", "subject": "...", "version": 1}')


def _is_version(number: int) -> bool:
    return not isinstance(number, bool) and (number == LATEST or 1 <= number <= _MAX_INT)


def _json(value: object) -> str:
    if not value:
        return ""
    if not isinstance(value, dict):
        raise unprocessable("metadata and ruleSet must be objects")
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
