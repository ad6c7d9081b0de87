"""Checks that every ``$ref`` of a JSON Schema has a target: in the schema, or in a schema that it refers to.

A ``$ref`` is an address, a fragment, or both. The address is the name of a reference, the ``$id`` of a schema, or the
address of a meta-schema. It may be relative to the ``$id`` around it. The fragment is a JSON pointer or an anchor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from headrace.registry.formats.parsing import InvalidSchema

_META_SCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
_SCHEMAS = ("additionalProperties", "additionalItems", "items", "contains", "not", "if", "then", "else",
            "propertyNames", "unevaluatedProperties", "unevaluatedItems", "contentSchema")  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "items", "prefixItems")
_MAPPINGS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")


def check(schema: Any, documents: dict[str, Any]) -> None:
    """
    :param documents: the schemas that it refers to, by name and by ``$id``.
    :raises InvalidSchema: if a ``$ref`` leads nowhere.
    """
    known = dict(documents)
    for document in (schema, *documents.values()):
        for part, base, _ in _parts(document):
            if isinstance(part.get("$id"), str):
                known.setdefault(part["$id"].rstrip("#"), part)
                known.setdefault(base.rstrip("#"), part)
    for part, base, resource in _parts(schema):
        reference = part.get("$ref")
        if isinstance(reference, str) and not _has_target(reference, base, [resource, schema], known):
            raise InvalidSchema(f"the $ref {reference[:100]} leads nowhere; another schema needs a reference")


def _parts(schema: Any) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yields each schema within a schema, the address around it, and the schema that has this address."""
    waiting: list[tuple[Any, str, Any]] = [(schema, "", schema)]
    while waiting:
        part, base, resource = waiting.pop()
        if not isinstance(part, dict):
            continue
        address = part.get("$id")
        if isinstance(address, str) and not address.startswith("#"):
            base, resource = _joined(base, address), part
        yield part, base, resource
        waiting += [(each, base, resource) for each in _children(part)]


def _children(part: dict[str, Any]) -> Iterator[Any]:
    for keyword in _SCHEMAS:
        yield part.get(keyword)
    for keyword in _LISTS:
        if isinstance(part.get(keyword), list):
            yield from part[keyword]
    for keyword in _MAPPINGS:
        if isinstance(part.get(keyword), dict):
            yield from part[keyword].values()


def _joined(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        return address


def _has_target(reference: str, base: str, own: list[Any], known: dict[str, Any]) -> bool:
    address, _, fragment = reference.partition("#")
    if address.startswith(_META_SCHEMAS):
        return True
    roots = own
    if address:
        roots = [known[each] for each in (address, unquote(address), _joined(base, address)) if each in known]
    return any(_is_in(root, fragment) for root in roots)


def _is_in(root: Any, fragment: str) -> bool:
    if fragment and not fragment.startswith("/"):
        return any(
            fragment in (part.get("$anchor"), part.get("$dynamicAnchor"), str(part.get("$id", "")).removeprefix("#"))
            for part, _, _ in _parts(root)
        )
    for step in fragment.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(root, dict) and step in root:
            root = root[step]
        elif isinstance(root, list) and step.isascii() and step.isdecimal() and int(step) < len(root):
            root = root[int(step)]
        else:
            return False
    return True
