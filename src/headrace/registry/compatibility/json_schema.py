"""Compares JSON Schemas: whether a reader accepts every document that a writer may have written.

There is no known way to decide this for all JSON Schemas. The comparison goes keyword by keyword, as Confluent's
registry does. It may call a change incompatible that is compatible. It does not do the opposite, with two exceptions
that are Confluent's as well: ``format`` does not count, and a required property that has a default counts as optional.

The rules for properties depend on ``additionalProperties``. In an open object (true, or not given) a writer may have
written anything under a name that it does not describe: a reader that begins to describe the name is incompatible. In a
closed object (false) a reader may add properties, but not remove them.

``unevaluatedProperties`` and ``unevaluatedItems`` count as ``additionalProperties`` and as the other items, where
nothing else in the schema describes properties or items. Elsewhere, and beside ``$dynamicRef``, any change is a
problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.patterns import Pattern
from headrace.protocol.errors import InvalidRegularExpression
from headrace.registry.compatibility.json_schema_parts import (
    DEPENDING,
    LOWER_BOUNDS,
    UPPER_BOUNDS,
    Side,
    TooComplex,
    has_reference,
    is_number,
    list_of,
    mapping_of,
    types_of,
    values_of,
)
from headrace.registry.formats.json_schema import JsonContent

#: Keywords that are compared as they are: another value is a problem.
_OPAQUE = ("if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "dependentSchemas",
           "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")  # fmt: skip
_MAX_COMPARISONS = 50_000


def problems(reader: JsonContent, writer: JsonContent) -> list[str]:
    try:
        return _Comparison(reader, writer).compare(reader.schema, writer.schema, "#")
    except TooComplex as error:
        return [str(error)]


class _Comparison:
    """Compares two schemas. A pair of schemas is compared once, so recursive schemas end."""

    def __init__(self, reader: JsonContent, writer: JsonContent) -> None:
        self._reader = Side(reader)
        self._writer = Side(writer)
        self._compared: dict[tuple[int, int], list[str]] = {}
        self._kept: list[Any] = []
        self._count = 0

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        self._count += 1
        if self._count > _MAX_COMPARISONS:
            raise TooComplex("the schemas have too many alternatives to compare")
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        if reader is True or writer is False:
            return []
        if reader is False:
            return [f"{path} accepts nothing"]
        writer = {} if writer is True else writer
        pair = id(reader), id(writer)
        if pair not in self._compared:
            self._kept += [reader, writer]
            self._compared[pair] = []  # assumed while the pair is being compared
            self._compared[pair] = list(self._compare(reader, writer, path))
        return self._compared[pair]

    def _compare(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
        reader, writer = self._reader.without_unevaluated(reader), self._writer.without_unevaluated(writer)
        for keyword in DEPENDING:
            if reader.get(keyword, True) not in (True, {}):
                # What the keyword accepts depends on the keywords beside it, and on what they refer to.
                if reader != writer or (has_reference(reader) and not self._reader.is_same(self._writer)):
                    yield f"{path}/{keyword} depends on keywords that were changed"
                return
        for keyword in ("anyOf", "oneOf"):
            if isinstance(writer.get(keyword), list):
                for branch in writer[keyword]:
                    yield from self.compare(reader, self._writer.with_branch(writer, keyword, branch), path)
                return
        for keyword in ("anyOf", "oneOf"):
            if isinstance(reader.get(keyword), list):
                attempts = [
                    self.compare(self._reader.with_branch(reader, keyword, branch), writer, path)
                    for branch in reader[keyword]
                ]
                if all(attempts):
                    yield (
                        min(attempts, key=len)[0]
                        if len(attempts) == 1
                        else f"no alternative of {path}/{keyword} accepts it"
                    )
                return
        types = types_of(writer)
        yield from _type_problems(reader, types, path)
        yield from _value_problems(reader, writer, path)
        yield from _bound_problems(reader, writer, types, path)
        yield from self._not_problems(reader, writer, path)
        for keyword in _OPAQUE:
            if keyword in reader and reader[keyword] != writer.get(keyword):
                yield f"{path}/{keyword} was added or changed"
        if "object" in types:
            yield from self._object_problems(reader, writer, path)
        if "array" in types:
            yield from self._array_problems(reader, writer, path)

    def _not_problems(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
        if "not" not in reader:
            return
        if "not" not in writer:
            yield f"{path}/not was added"
        elif reader["not"] != writer["not"]:
            yield f"{path}/not was changed"

    # -- objects

    def _object_problems(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
        described, written = mapping_of(reader, "properties"), mapping_of(writer, "properties")
        for name in described.keys() | written.keys():
            place = f"{path}/properties/{name}"
            if name in described and name in written:
                yield from self.compare(described[name], written[name], place)
            elif name in described:
                yield from self._added(described[name], writer, name, place)
            else:
                yield from self._removed(written[name], reader, name, place)
        required = set(list_of(writer, "required"))
        for name in list_of(reader, "required"):
            has_default = isinstance(described.get(name), dict) and "default" in described[name]
            if name not in required and not has_default:
                yield f"{path}/required/{name} was added"
        yield from self._other_properties(reader, writer, path)
        for keyword in ("dependencies", "dependentRequired"):
            before = mapping_of(writer, keyword)
            for name, needed in mapping_of(reader, keyword).items():
                is_fewer = isinstance(needed, list) and isinstance(before.get(name), list)
                if needed != before.get(name) and not (is_fewer and set(needed) <= set(before[name])):
                    yield f"{path}/{keyword}/{name} was added or changed"

    def _added(self, described: Any, writer: dict[str, Any], name: str, place: str) -> Iterator[str]:
        others = _described_by_pattern(writer, name)
        for other in others:
            yield from self.compare(described, other, place)
        if others:
            return
        rest = writer.get("additionalProperties", True)
        problems = self.compare(described, rest, place)
        if problems and (rest is True or rest == {}):
            yield f"{place} was added to an open object: earlier documents may have other values there"
        else:
            yield from problems

    def _removed(self, written: Any, reader: dict[str, Any], name: str, place: str) -> Iterator[str]:
        others = _described_by_pattern(reader, name) or [reader.get("additionalProperties", True)]
        for other in others:
            if other is False:
                yield f"{place} was removed from a closed object"
            else:
                yield from self.compare(other, written, place)

    def _other_properties(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
        patterns, before = mapping_of(reader, "patternProperties"), mapping_of(writer, "patternProperties")
        rest = writer.get("additionalProperties", True)
        for pattern, schema in patterns.items():
            yield from self.compare(schema, before.get(pattern, rest), f"{path}/patternProperties/{pattern}")
        allowed = reader.get("additionalProperties", True)
        for pattern, schema in before.items():
            if pattern not in patterns:
                yield from self.compare(allowed, schema, f"{path}/patternProperties/{pattern}")
        if allowed is False and rest is not False:
            yield f"{path}/additionalProperties was closed"
        elif rest is not False:
            yield from self.compare(allowed, rest, f"{path}/additionalProperties")

    # -- arrays

    def _array_problems(self, reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
        if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
            yield f"{path}/uniqueItems was added"
        first, rest = _items(reader)
        written, others = _items(writer)
        for at in range(max(len(first), len(written))):
            mine = first[at] if at < len(first) else rest
            theirs = written[at] if at < len(written) else others
            yield from self.compare(mine, theirs, f"{path}/items/{at}")
        yield from self.compare(rest, others, f"{path}/items")


# -- keywords without schemas in them


def _type_problems(reader: dict[str, Any], types: frozenset[str], path: str) -> Iterator[str]:
    accepted = types_of(reader)
    missing = {each for each in types if each not in accepted and not (each == "integer" and "number" in accepted)}
    if missing:
        yield f"{path}/type does not accept {', '.join(sorted(missing))}"


def _value_problems(reader: dict[str, Any], writer: dict[str, Any], path: str) -> Iterator[str]:
    accepted, written = values_of(reader), values_of(writer)
    if accepted is None:
        return
    if written is None:
        yield f"{path}/enum was added"
        return
    missing = [each for each in written if each not in accepted]
    if missing:
        yield f"{path}/enum does not accept {str(missing[0])[:60]!r}"


def _bound_problems(reader: dict[str, Any], writer: dict[str, Any], types: frozenset[str], path: str) -> Iterator[str]:
    kinds = types | ({"number"} if "integer" in types else set())
    for keyword, kind in (*UPPER_BOUNDS.items(), *LOWER_BOUNDS.items()):
        bound, before = reader.get(keyword), writer.get(keyword)
        if bound is None or kind not in kinds or bound == before:
            continue
        is_looser = is_number(before) and (before <= bound if keyword in UPPER_BOUNDS else before >= bound)
        if not is_looser and not (keyword.startswith("min") and kind != "number" and bound == 0):
            yield f"{path}/{keyword} was added or made stricter"
    factor, before = reader.get("multipleOf"), writer.get("multipleOf")
    if factor is not None and "number" in kinds and not (is_number(before) and before % factor == 0):
        yield f"{path}/multipleOf was added or changed"
    if "pattern" in reader and "string" in kinds and reader["pattern"] != writer.get("pattern"):
        yield f"{path}/pattern was added or changed"


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """The schemas of the first items, and the schema of all others."""
    if isinstance(schema.get("prefixItems"), list):
        return schema["prefixItems"], schema.get("items", True)
    if isinstance(schema.get("items"), list):
        return schema["items"], schema.get("additionalItems", True)
    return [], schema.get("items", True)


def _described_by_pattern(schema: dict[str, Any], name: str) -> list[Any]:
    return [each for pattern, each in mapping_of(schema, "patternProperties").items() if _matches(pattern, name)]


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches a part of a name, in linear time. A pattern that RE2 does not know matches nothing."""
    try:
        return Pattern(f"(?s).*(?:{pattern}).*").matches(name)
    except InvalidRegularExpression:
        return False
