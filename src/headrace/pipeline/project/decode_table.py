"""Reads the table [decode] of a view or of a source, and the table [decode.key] for the keys of its records."""

from __future__ import annotations

import json
import re

from headrace.pipeline.project.decode import FORMATS, FRAMINGS, Decode, FileText
from headrace.pipeline.project.field_reader import FUNCTION, FieldReader
from headrace.pipeline.project.registry_options import read_registry_options
from headrace.pipeline.project.toml_files import Section

_NO_SCHEMA = {
    "raw": "its only column is value BINARY",
    "protobuf": "its columns are the fields of the message",
}
#: The formats that schema registries know, whose values begin with the id of a schema.
_FORMATS_WITH_IDS = ("json", "avro", "protobuf")
_KEY_FORMATS = tuple(name for name in FORMATS if name != "raw")


class DecodeTable:
    def __init__(self, fields: FieldReader) -> None:
        self._fields = fields

    def decode(self) -> Decode:
        return self._decode("decode", key=self._key())

    def _key(self) -> Decode | None:
        value = self._fields.file.content.get("decode")
        return self._decode("decode", "key") if isinstance(value, dict) and "key" in value else None

    def _decode(self, *path: str, key: Decode | None = None) -> Decode:
        section = self._fields.file.section(*path)
        is_key = len(path) > 1
        format_ = section.text("format", "json", _KEY_FORMATS if is_key else FORMATS)
        table = ".".join(path)
        registry, registry_options = self._registry(section, table, format_)
        descriptor, message = self._protobuf(section, table, format_)
        made = Decode(
            format=format_,
            schema=self._schema(section, table, format_),
            options=section.mapping("options"),
            function=self._function(section, table, format_),
            framing=self._framing(section, table, format_, registry),
            key=key,
            registry=registry,
            registry_options=registry_options,
            descriptor=descriptor,
            message=message,
        )
        section.finish(*(() if is_key else ("key",)))
        return made

    def _schema(self, section: Section, table: str, format_: str) -> str:
        problems = self._fields.file.problems
        known = len(problems)
        schema = section.text("schema")
        has_problem = len(problems) > known
        if format_ in _NO_SCHEMA and schema:
            section.report("schema", f"format {format_} has no schema: {_NO_SCHEMA[format_]}; remove {table}.schema")
        if format_ not in _NO_SCHEMA and not schema and not has_problem:
            section.report(
                "schema", f'{table}.schema is missing: format {format_} needs one, such as "user STRING, ms BIGINT"'
            )
        return self._avro_schema(section, table, schema) if format_ == "avro" and schema else schema

    def _function(self, section: Section, table: str, format_: str) -> FileText | None:
        function = section.text("function")
        if bool(function) != (format_ == "python"):
            section.report(
                "function", 'format = "python" and function = "FILE.py:FUNCTION" need each other: set both or none'
            )
        elif function and not FUNCTION.fullmatch(function):
            section.report("function", f"{table}.function must be 'FILE.py:FUNCTION', not {function!r}")
        elif function:
            return self._fields.text(section, "function", function)
        return None

    def _framing(self, section: Section, table: str, format_: str, registry: str) -> str:
        framing = section.text("framing", "confluent" if registry else "none", FRAMINGS)
        if framing == "confluent" and format_ not in _FORMATS_WITH_IDS:
            section.report("framing", f"format {format_} has no ids of schemas: remove {table}.framing")
        if framing == "none" and registry:
            section.report("framing", f'{table}.registry needs framing = "confluent", which is the default')
        return framing

    def _registry(self, section: Section, table: str, format_: str) -> tuple[str, dict[str, str]]:
        registry = section.text("registry")
        if registry and not re.match(r"https?://[^/@\s]+", registry):
            section.report("registry", f"{table}.registry must be an address such as http://registry:8081")
        if registry and format_ not in _FORMATS_WITH_IDS:
            known = ", ".join(_FORMATS_WITH_IDS)
            section.report("registry", f"a registry has no schemas for format {format_}: use one of {known}")
        return registry, read_registry_options(section, table, self._fields.folder)

    def _protobuf(self, section: Section, table: str, format_: str) -> tuple[str, str]:
        """The content of the descriptor file in base64, and the name of the message."""
        file, message = section.text("descriptor"), section.text("message")
        if format_ != "protobuf":
            for name, value in (("descriptor", file), ("message", message)):
                if value:
                    section.report(name, f"only format protobuf has a {name}: remove {table}.{name}")
            return "", ""
        if not file:
            section.report(
                "descriptor", f"{table}.descriptor is missing: the file that protoc --descriptor_set_out writes"
            )
        if not message:
            section.report("message", f'{table}.message is missing: the full name, such as "shop.Order"')
        return self._fields.content(section, "descriptor", file), message

    def _avro_schema(self, section: Section, table: str, schema: str) -> str:
        """The schema itself, or the content of the file that it names."""
        text = schema if schema.lstrip().startswith("{") else self._fields.text(section, "schema", schema).text
        try:
            if text and json.loads(text).get("type") != "record":
                section.report("schema", f"{table}.schema must be an Avro record")
        except (ValueError, AttributeError) as error:
            section.report("schema", f"{table}.schema is not an Avro schema in JSON: {error}")
        return text
