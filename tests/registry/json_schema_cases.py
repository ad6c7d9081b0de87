"""Lists pairs of JSON Schemas with what the published rules of Confluent's registry say about them.

A case: its name, the earlier schema, the new schema, and whether the new one accepts every document of the earlier one
(backward), and the other way round (forward).
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any] | bool
_INT: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_TEXT: Schema = {"type": "string"}


def open_object(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties or {}, **more}


def closed_object(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return open_object(properties, additionalProperties=False, **more)


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def draft_2020(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, **more}


def unevaluated(*names: str, **more: Any) -> dict[str, Any]:
    """An object of draft 2020-12 that is closed by unevaluatedProperties."""
    return draft_2020(open_object(dict.fromkeys(names, _INT)), unevaluatedProperties=False, **more)


def items_2020(*first: Any, **more: Any) -> dict[str, Any]:
    return draft_2020({"type": "array", "prefixItems": list(first)}, unevaluatedItems=False, **more)


def _with_parts(name: str, kind: Any = _INT) -> dict[str, Any]:
    part = open_object({name: kind})
    return {"anyOf": [{"$ref": "#/$defs/part"}], "$defs": {"part": part}}


def _dynamic(kind: Any) -> dict[str, Any]:
    return draft_2020(array({"$dynamicRef": "#n"}), **{"$defs": {"n": {"$dynamicAnchor": "n", **kind}}})


_TREE = closed_object({"child": {"$ref": "#"}, "v": _INT})
_WIDER_TREE = closed_object({"child": {"$ref": "#"}, "v": _NUMBER})
_POINT = {"definitions": {"n": _INT}, **closed_object({"x": {"$ref": "#/definitions/n"}})}

CASES: list[tuple[str, Schema, Schema, bool, bool]] = [
    ("the same", open_object({"x": _INT}), open_object({"x": _INT}), True, True),
    ("anything", True, {}, True, True),
    ("nothing to something", False, _INT, True, False),
    ("title and description", open_object(), open_object(title="T", description="D"), True, True),
    ("integer to number", _INT, _NUMBER, True, False),
    ("integer to string", _INT, _TEXT, False, False),
    ("type to several", _TEXT, {"type": ["string", "null"]}, True, False),
    ("type removed", _TEXT, {}, True, False),
    ("property added, open", open_object({"x": _INT}), open_object({"x": _INT, "y": _TEXT}), False, True),
    ("property without rules added, open", open_object({"x": _INT}), open_object({"x": _INT, "y": {}}), True, True),
    ("property removed, open", open_object({"x": _INT, "y": _TEXT}), open_object({"x": _INT}), True, False),
    ("property added, closed", closed_object({"x": _INT}), closed_object({"x": _INT, "y": _TEXT}), True, False),
    ("property removed, closed", closed_object({"x": _INT, "y": _TEXT}), closed_object({"x": _INT}), False, True),
    ("closed to open", closed_object({"x": _INT}), open_object({"x": _INT}), True, False),
    ("property added to texts", open_object(additionalProperties=_TEXT),
     open_object({"y": _TEXT}, additionalProperties=_TEXT), True, True),
    ("other property added to texts", open_object(additionalProperties=_TEXT),
     open_object({"y": _INT}, additionalProperties=_TEXT), False, False),
    ("additional properties widened", open_object(additionalProperties=_INT),
     open_object(additionalProperties=_NUMBER), True, False),
    ("property by pattern", open_object(patternProperties={"^x": _INT}, additionalProperties=False),
     open_object({"x1": _INT}, patternProperties={"^x": _INT}, additionalProperties=False), True, True),
    ("pattern widened", closed_object(patternProperties={"^x": _INT}),
     closed_object(patternProperties={"^x": _NUMBER}), True, False),
    ("required added", open_object({"x": _INT}), open_object({"x": _INT}, required=["x"]), False, True),
    ("required removed", open_object({"x": _INT}, required=["x"]), open_object({"x": _INT}), True, False),
    ("required with default added", closed_object({"x": _INT}),
     closed_object({"x": _INT, "y": {**_INT, "default": 0}}, required=["y"]), True, False),
    ("property widened", closed_object({"x": _INT}), closed_object({"x": _NUMBER}), True, False),
    ("maximum added", _INT, {**_INT, "maximum": 5}, False, True),
    ("maximum raised", {**_INT, "maximum": 5}, {**_INT, "maximum": 6}, True, False),
    ("maximum removed", {**_INT, "maximum": 5}, _INT, True, False),
    ("exclusive maximum raised", {**_INT, "exclusiveMaximum": 5}, {**_INT, "exclusiveMaximum": 6}, True, False),
    ("minimum lowered", {**_INT, "minimum": 5}, {**_INT, "minimum": 4}, True, False),
    ("minimum raised", {**_INT, "minimum": 5}, {**_INT, "minimum": 6}, False, True),
    ("multiple of a factor", {**_INT, "multipleOf": 10}, {**_INT, "multipleOf": 5}, True, False),
    ("multiple added", _INT, {**_INT, "multipleOf": 5}, False, True),
    ("longer text", {**_TEXT, "maxLength": 5}, {**_TEXT, "maxLength": 6}, True, False),
    ("shortest text added", _TEXT, {**_TEXT, "minLength": 1}, False, True),
    ("shortest text of nothing", _TEXT, {**_TEXT, "minLength": 0}, True, True),
    ("pattern added", _TEXT, {**_TEXT, "pattern": "^a"}, False, True),
    ("pattern changed", {**_TEXT, "pattern": "^a"}, {**_TEXT, "pattern": "^b"}, False, False),
    ("format does not count", _TEXT, {**_TEXT, "format": "email"}, True, True),
    ("value added to enum", {"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    ("value removed from enum", {"enum": ["a", "b"]}, {"enum": ["a"]}, False, True),
    ("enum to its type", {"enum": ["a"]}, _TEXT, True, False),
    ("enum added", _TEXT, {**_TEXT, "enum": ["a"]}, False, True),
    ("const to enum", {"const": "a"}, {"enum": ["a", "b"]}, True, False),
    ("items widened", array(_INT), array(_NUMBER), True, False),
    ("items others", array(_INT), array(_TEXT), False, False),
    ("items added", {"type": "array"}, array(_INT), False, True),
    ("more items", array(_INT, maxItems=3), array(_INT, maxItems=4), True, False),
    ("items unique", array(_INT), array(_INT, uniqueItems=True), False, True),
    ("first items widened", array([_INT, _TEXT]), array([_NUMBER, _TEXT]), True, False),
    ("first item added, open", array([_INT]), array([_INT, _TEXT]), False, True),
    ("first item added, closed", array([_INT], additionalItems=False),
     array([_INT, _TEXT], additionalItems=False), True, False),
    ("prefix items widened", {"type": "array", "prefixItems": [_INT]}, {"type": "array", "prefixItems": [_NUMBER]},
     True, False),
    ("more properties", open_object(maxProperties=3), open_object(maxProperties=4), True, False),
    ("to one of several", _INT, {"oneOf": [_INT, _TEXT]}, True, False),
    ("alternative added", {"oneOf": [_INT, _TEXT]}, {"oneOf": [_INT, _TEXT, {"type": "null"}]}, True, False),
    ("alternative removed", {"anyOf": [_INT, _TEXT]}, {"anyOf": [_INT]}, False, True),
    ("any to one", {"anyOf": [_INT, _TEXT]}, {"oneOf": [_TEXT, _INT]}, True, True),
    ("alternative widened", {"oneOf": [_INT, _TEXT]}, {"oneOf": [_NUMBER, _TEXT]}, True, False),
    ("all of one", _INT, {"allOf": [_INT]}, True, True),
    ("all of more", {"allOf": [_INT]}, {"allOf": [_INT, {"maximum": 5}]}, False, True),
    ("all of merged", {"allOf": [open_object({"x": _INT}), {"required": ["x"]}]}, open_object({"x": _INT}), True,
     False),
    ("not added", _INT, {**_INT, "not": {"const": 1}}, False, True),
    ("not kept", {"not": _INT}, {"not": _INT}, True, True),
    ("condition added", open_object(), open_object(**{"if": {"required": ["x"]}, "then": {"required": ["y"]}}), False,
     True),
    ("dependency added", open_object(), open_object(dependencies={"x": ["y"]}), False, True),
    ("dependency smaller", open_object(dependencies={"x": ["y", "z"]}), open_object(dependencies={"x": ["y"]}), True,
     False),
    ("unevaluated property removed", unevaluated("a", "b"), unevaluated("a"), False, True),
    ("unevaluated property widened", unevaluated("a"), unevaluated("a", properties={"a": _NUMBER}), True, False),
    ("unevaluated closed", draft_2020(open_object({"a": _INT})), unevaluated("a"), False, True),
    ("unevaluated to additional", unevaluated("a"), draft_2020(closed_object({"a": _INT})), True, True),
    ("unevaluated property of all of moved", unevaluated(allOf=[open_object({"a": _INT})]), unevaluated("a"), True,
     True),
    ("unevaluated kept beside alternatives", unevaluated("a", anyOf=[open_object({"b": _INT})]),
     unevaluated("a", anyOf=[open_object({"b": _INT})]), True, True),
    ("unevaluated beside other alternatives", unevaluated("a", anyOf=[open_object({"b": _INT}), open_object()]),
     unevaluated("a", anyOf=[open_object()]), False, False),
    ("unevaluated beside a definition that changed", unevaluated("a", **_with_parts("b")),
     unevaluated("a", **_with_parts("c")), False, False),
    ("unevaluated in draft 7 has no meaning", open_object({"a": _INT, "b": _INT}, unevaluatedProperties=False),
     open_object({"a": _INT}, unevaluatedProperties=False), False, False),
    ("unevaluated item removed", items_2020(_INT, _TEXT), items_2020(_INT), False, True),
    ("unevaluated item widened", items_2020(_INT), items_2020(_NUMBER), True, False),
    ("unevaluated items beside contains", items_2020(_INT, contains=_TEXT), items_2020(_NUMBER, contains=_TEXT), False,
     False),
    ("dynamic reference kept", _dynamic(_INT), _dynamic(_INT), True, True),
    ("dynamic reference to what changed", _dynamic(_INT), _dynamic(_TEXT), False, False),
    ("dynamic reference added", draft_2020({}), draft_2020({"$dynamicRef": "#n", "$defs": {}}), False, True),
    ("recursive", _TREE, _TREE, True, True),
    ("recursive widened", _TREE, _WIDER_TREE, True, False),
    ("definition inlined", _POINT, closed_object({"x": _INT}), True, True),
    ("definition widened", _POINT, {**_POINT, "definitions": {"n": _NUMBER}}, True, False),
]  # fmt: skip
