"""Compares Avro schemas by the rules of schema resolution in Avro's specification.

A reader's schema reads a writer's schema if their types match, or the writer's type can be promoted::

    int -> long, float, double      long -> float, double      float -> double      string <-> bytes

Named types match by their names without namespace, or by an alias of the reader. A field that only the reader has
needs a default. A symbol of an enum that only the writer has needs a default symbol at the reader. Every branch of a
writer's union must be readable, by any branch of the reader's union. Logical types do not count, because a reader may
ignore them.
"""

from __future__ import annotations

from typing import Any

from headrace.registry.formats.avro import AvroContent

_PROMOTED = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NAMED = ("record", "error", "enum", "fixed")


def problems(reader: AvroContent, writer: AvroContent) -> list[str]:
    return _Comparison(reader, writer).compare(reader.schema, writer.schema, "")


class _Comparison:
    """Compares the types of two schemas. A pair of named types is compared once, so recursive types end."""

    def __init__(self, reader: AvroContent, writer: AvroContent) -> None:
        self._reader = reader
        self._writer = writer
        self._compared: dict[tuple[str, str], list[str]] = {}

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        reader, writer = _resolved(reader, self._reader), _resolved(writer, self._writer)
        if isinstance(writer, list):
            return [each for branch in writer for each in self._branch(reader, branch, path)]
        if isinstance(reader, list):
            return self._union(reader, writer, path)
        kind, written = _kind(reader), _kind(writer)
        if kind != written:
            if kind in _PROMOTED.get(written, ()):
                return []
            return [f"the type at {path or '/'} is {kind}, and was written as {written}"]
        if kind in _NAMED:
            return self._named(reader, writer, path)
        if kind == "array":
            return self.compare(reader["items"], writer["items"], f"{path}/items")
        if kind == "map":
            return self.compare(reader["values"], writer["values"], f"{path}/values")
        return []

    def _branch(self, reader: Any, branch: Any, path: str) -> list[str]:
        found = self.compare(reader, branch, path)
        if found and isinstance(reader, list):
            return [f"no type of the union at {path or '/'} reads {_label(_resolved(branch, self._writer))}"]
        return found

    def _union(self, reader: list[Any], writer: Any, path: str) -> list[str]:
        attempts = [self.compare(branch, writer, path) for branch in reader]
        if any(not each for each in attempts):
            return []
        # The reasons of the branch of the same name say the most.
        for branch, found in zip(reader, attempts, strict=True):
            if _label(_resolved(branch, self._reader)) == _label(writer):
                return found
        return [f"no type of the union at {path or '/'} reads {_label(writer)}"]

    def _named(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        pair = reader["name"], writer["name"]
        if pair in self._compared:
            return self._compared[pair]
        self._compared[pair] = []  # assumed while the pair is being compared
        found = self._compare_named(reader, writer, path)
        self._compared[pair] = found
        return found

    def _compare_named(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        kind = _kind(reader)
        if not _has_name(reader, writer["name"]):
            return [f"the {kind} at {path or '/'} is {reader['name']}, and was written as {writer['name']}"]
        if kind == "fixed":
            if reader["size"] == writer["size"]:
                return []
            return [f"the size of {reader['name']} is {reader['size']}, and was written as {writer['size']}"]
        if kind == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if not missing or "default" in reader:
                return []
            return [f"the enum {reader['name']} has no symbol {', '.join(missing[:5])}, and no default"]
        return self._record(reader, writer, path)

    def _record(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> list[str]:
        written = {field["name"]: field for field in writer["fields"]}
        found: list[str] = []
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            place = f"{path}/{field['name']}"
            if source is not None:
                found += self.compare(field["type"], source["type"], place)
            elif "default" not in field:
                found.append(f"the field {place} is missing, and has no default")
        return found


def _resolved(schema: Any, content: AvroContent) -> Any:
    """The definition of a type that is given by its name. A type in an object, {"type": {...}}, is that type."""
    while True:
        if isinstance(schema, str) and schema in content.named:
            return content.named[schema]
        if (isinstance(schema, dict) and isinstance(schema.get("type"), dict | list)) or (
            isinstance(schema, dict) and schema.get("type") in content.named and "name" not in schema
        ):
            schema = schema["type"]
        else:
            return schema


def _kind(schema: Any) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def _label(schema: Any) -> str:
    return str(schema["name"]) if isinstance(schema, dict) and "name" in schema else _kind(schema)


def _has_name(reader: dict[str, Any], name: str) -> bool:
    own: str = reader["name"]
    if own.rpartition(".")[2] == name.rpartition(".")[2]:
        return True
    namespace = own.rpartition(".")[0]
    aliases = [
        alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in reader.get("aliases", ())
    ]
    return name in aliases
