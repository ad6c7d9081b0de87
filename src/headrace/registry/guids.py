"""Computes the GUID of a schema, as Confluent's registry does.

A GUID is the same in every registry and in every context. It is the MD5 of what follows, in the form of a UUID:

- the text
- of each reference: the name, the subject, and the version in four bytes
- if there is metadata: a byte 1, the tags, the properties and the sensitive names, each sorted
- if there are rules: a byte 1, then per rule its members in a fixed order
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import md5
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.registry.rules import DEFAULT_KIND, DEFAULT_MODE

if TYPE_CHECKING:
    from headrace.registry.schemas import SchemaText

_RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")


def guid_of(schema: SchemaText) -> str:
    digest = md5(_bytes(schema.text), usedforsecurity=False)
    for reference in schema.references:
        digest.update(_bytes(reference.name) + _bytes(reference.subject))
        digest.update((reference.version & 0xFFFF_FFFF).to_bytes(4, "big"))
    for text, parts in ((schema.metadata, _metadata_parts), (schema.rule_set, _rule_set_parts)):
        if text:
            digest.update(b"\x01")
            for part in parts(json.loads(text)):
                digest.update(part)
    return str(UUID(bytes=digest.digest()))


def _metadata_parts(metadata: dict[str, Any]) -> Iterator[bytes]:
    for name, tags in sorted(_mapping(metadata.get("tags")).items()):
        yield _bytes(name)
        yield from _sorted(tags)
    yield from _pairs(metadata.get("properties"))
    yield from _sorted(metadata.get("sensitive"))


def _rule_set_parts(rule_set: dict[str, Any]) -> Iterator[bytes]:
    for member in _RULE_LISTS:
        for rule in _list(rule_set.get(member)):
            yield from _rule_parts(_mapping(rule))
    yield from _texts([rule_set.get("enableAt")])


def _rule_parts(rule: dict[str, Any]) -> Iterator[bytes]:
    kind, mode = rule.get("kind") or DEFAULT_KIND, rule.get("mode") or DEFAULT_MODE
    yield from _texts([rule.get("name"), rule.get("doc"), kind, mode, rule.get("type")])
    yield from _sorted(rule.get("tags"))
    yield from _pairs(rule.get("params"))
    yield from _texts([rule.get("expr"), rule.get("onSuccess"), rule.get("onFailure")])
    if rule.get("disabled") is True:
        yield b"\x01"


def _pairs(value: Any) -> Iterator[bytes]:
    for name, each in sorted(_mapping(value).items()):
        yield _bytes(name) + _bytes(each)


def _sorted(value: Any) -> Iterator[bytes]:
    yield from sorted({_bytes(each) for each in _list(value)})


def _texts(values: Iterable[Any]) -> Iterator[bytes]:
    return (_bytes(each) for each in values if each is not None)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text.encode(errors="surrogatepass")
