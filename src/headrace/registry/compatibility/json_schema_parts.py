"""Finds the parts of a JSON Schema: what ``$ref`` names, ``allOf`` as one schema, and the values of keywords."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from headrace.registry.formats.json_schema import JsonContent

_ALL_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
#: Upper and lower bounds, with the types that they are about.
UPPER_BOUNDS = {"maximum": "number", "exclusiveMaximum": "number", "maxLength": "string", "maxItems": "array",
          "maxProperties": "object"}  # fmt: skip
LOWER_BOUNDS = {"minimum": "number", "exclusiveMinimum": "number", "minLength": "string", "minItems": "array",
          "minProperties": "object"}  # fmt: skip

#: Keywords whose meaning depends on other keywords of the schema, or on the schemas around it.
DEPENDING = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")
#: Keywords that may describe properties or items too.
_ALSO_DESCRIBING = ("anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "contains", "$dynamicRef",
          "$recursiveRef")  # fmt: skip
_DRAFTS_WITH_UNEVALUATED = ("2019-09", "2020-12")


class TooComplex(Exception):
    """The schemas cannot be compared: too many alternatives, or a reference that does not exist."""


class Side:
    """One of the two schemas: finds what ``$ref`` names."""

    def __init__(self, content: JsonContent) -> None:
        self._content = content
        self._documents = content.documents
        #: The document that a schema object belongs to, for references within it.
        self._root = content.schema
        self._roots: dict[int, Any] = {}
        self._merged: dict[tuple[int, ...], Any] = {}

    def resolved(self, schema: Any) -> Any:
        """A schema without ``$ref``, and with its ``allOf`` merged into it."""
        for _ in range(100):
            if not isinstance(schema, dict):
                return schema
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._referred(schema, reference)
            elif schema.get("allOf"):
                schema = self._with_all(schema)
            else:
                return schema
        raise TooComplex("a $ref leads back to itself")

    def with_branch(self, schema: dict[str, Any], keyword: str, branch: Any) -> Any:
        """A schema with one of its alternatives instead of all."""
        branch = self.resolved(branch)
        if isinstance(branch, bool):
            return {key: each for key, each in schema.items() if key != keyword} if branch else False
        return self._merge(schema, branch, keyword)

    def is_same(self, other: Side) -> bool:
        """Whether both sides have the same schema, with the same references."""
        return (self._content.schema, self._documents) == (other._content.schema, other._documents)

    def without_unevaluated(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema with other keywords instead of the unevaluated ones, if they say the same.

        In a schema of an older draft the keywords have no meaning, and stay.
        """
        draft = str(self._root.get("$schema", "")) if isinstance(self._root, dict) else ""
        has_meaning = any(name in draft for name in _DRAFTS_WITH_UNEVALUATED)
        if not has_meaning or any(each in schema for each in _ALSO_DESCRIBING):
            return schema
        found = {key: each for key, each in schema.items() if key not in ("unevaluatedProperties", "unevaluatedItems")}
        if "unevaluatedProperties" in schema:
            found.setdefault("additionalProperties", schema["unevaluatedProperties"])
        if "unevaluatedItems" in schema:
            rest = "additionalItems" if isinstance(schema.get("items"), list) else "items"
            found.setdefault(rest, schema["unevaluatedItems"])
        return found

    def _referred(self, schema: dict[str, Any], reference: str) -> Any:
        document, _, pointer = reference.partition("#")
        root = self._roots.get(id(schema), self._root)
        if document:
            own = root.get("$id") if isinstance(root, dict) else None
            if document != own:
                if document not in self._documents:
                    raise TooComplex(f"the $ref {reference[:100]} has no reference")
                root = self._documents[document]
        target = _at(root, pointer, reference)
        if isinstance(target, dict):
            self._adopt(target, root)
        siblings = {
            key: each for key, each in schema.items() if key not in ("$ref", "$id", "$schema", "definitions", "$defs")
        }
        return target if not siblings or not isinstance(target, dict) else self._merge(siblings, target, "")

    def _adopt(self, schema: Any, root: Any) -> None:
        """Notes for a schema and everything in it which document it belongs to."""
        if root is self._root:
            return
        waiting = [schema]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                if id(each) in self._roots:
                    continue
                self._roots[id(each)] = root
                waiting += each.values()
            elif isinstance(each, list):
                waiting += each

    def _with_all(self, schema: dict[str, Any]) -> Any:
        found: Any = {key: each for key, each in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            part = self.resolved(part)
            if part is False:
                return False
            if isinstance(part, dict):
                found = self._merge(found, part, "")
        return found

    def _merge(self, first: dict[str, Any], second: dict[str, Any], without: str) -> Any:
        place = id(first), id(second), hash(without)
        if place not in self._merged:
            base = {key: each for key, each in first.items() if key != without}
            # The sources are kept too, because an id is unique only while its object lives.
            self._merged[place] = _both(base, second), first, second
        return self._merged[place][0]


def has_reference(schema: Any) -> bool:
    """Whether a ``$ref`` or the like is in a schema, at any depth."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if any(key in each for key in ("$ref", "$dynamicRef", "$recursiveRef")):
                return True
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


def types_of(schema: dict[str, Any]) -> frozenset[str]:
    found = schema.get("type")
    if isinstance(found, str):
        return frozenset({found})
    if isinstance(found, list):
        return frozenset(each for each in found if isinstance(each, str))
    values = values_of(schema)
    return _ALL_TYPES if values is None else frozenset(_type_of(each) for each in values)


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def values_of(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None


def mapping_of(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}


def list_of(schema: dict[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _both(first: dict[str, Any], second: dict[str, Any]) -> Any:
    """A schema that accepts what both accept, as far as keywords can be merged; the second wins otherwise."""
    found = {**first, **second}
    for keyword in ("properties", "patternProperties", "definitions", "$defs"):
        mine, theirs = mapping_of(first, keyword), mapping_of(second, keyword)
        if mine and theirs:
            both = {name: {"allOf": [mine[name], theirs[name]]} for name in mine.keys() & theirs.keys()}
            found[keyword] = {**mine, **theirs, **both}
    if "required" in first and "required" in second:
        found["required"] = list(dict.fromkeys([*list_of(first, "required"), *list_of(second, "required")]))
    for keyword in (*UPPER_BOUNDS, *LOWER_BOUNDS):
        if is_number(first.get(keyword)) and is_number(second.get(keyword)):
            stricter = min if keyword in UPPER_BOUNDS else max
            found[keyword] = stricter(first[keyword], second[keyword])
    if "type" in first and "type" in second:
        types = types_of(first) & types_of(second)
        if "integer" in types_of(first) | types_of(second) and "number" in types_of(first) | types_of(second):
            types |= {"integer"}
        if not types:
            return False
        found["type"] = sorted(types)
    return found


def _at(root: Any, pointer: str, reference: str) -> Any:
    """The schema at a JSON pointer, or with an anchor."""
    found = root
    if pointer and not pointer.startswith("/"):
        return _anchored(root, pointer, reference)
    for step in pointer.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise TooComplex(f"the $ref {reference[:100]} leads nowhere")
    return found


def _anchored(root: Any, anchor: str, reference: str) -> Any:
    waiting = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if anchor in (each.get("$anchor"), str(each.get("$id", "")).removeprefix("#")):
                return each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    raise TooComplex(f"the $ref {reference[:100]} leads nowhere")
