"""Parses a schema of any type, with the schemas that it refers to.

A parsed schema has its text as the registry stores it, an identity that is the same for texts that differ in spaces or
in the order of attributes only, and a normal form. Parsing may take long and may run a process (``protoc``), so servers
call it on a thread. The results are kept, because a schema never changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

from headrace.registry.schemas import AVRO, JSON, SchemaText

_KEPT = 1_000


class InvalidSchema(ValueError):
    """A text is not a schema of its type."""


class NotParsedInTime(Exception):
    """A parser did not finish. The schema may be valid."""


@dataclass(frozen=True)
class Resolved:
    """A schema with all schemas that it refers to, each after those that it needs itself.

    :ivar dependencies: the names that the schemas are referred to by, and the schemas.
    """

    schema: SchemaText
    dependencies: tuple[tuple[str, SchemaText], ...] = ()


@dataclass(frozen=True)
class Parsed:
    """
    :ivar stored_text: what the registry stores.
    :ivar identity: equal for two texts that are the same schema.
    :ivar normal_text: makes what the registry stores if a client asks for the normal form.
    :ivar content: what the compatibility rules of the type compare.
    :ivar check_new: raises InvalidSchema if a rule forbids the schema as a new one. A stored version that breaks such a
        rule was accepted by another registry, and stays in use.
    """

    kind: str
    stored_text: str
    identity: str
    normal_text: Callable[[], str]
    content: Any
    check_new: Callable[[], None] = lambda: None


class SchemaParser:
    """Parses schemas, and keeps the results."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Resolved, Parsed] = OrderedDict()
        self._lock = Lock()

    def parse(self, resolved: Resolved) -> Parsed:
        """
        :raises InvalidSchema: if the text is not a schema, or lacks a reference.
        """
        with self._lock:
            found = self._kept.get(resolved)
            if found is not None:
                self._kept.move_to_end(resolved)
                return found
        try:
            found = _parse(resolved)
        except RecursionError:
            raise InvalidSchema("it is nested too deeply") from None
        with self._lock:
            self._kept[resolved] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def serialized(self, resolved: Resolved) -> str:
        """The descriptors of a Protobuf schema in base64, for clients that cannot parse its text."""
        from headrace.registry.formats.protobuf import serialized

        return serialized(self.parse(resolved))


def _parse(resolved: Resolved) -> Parsed:
    # The parsers are imported when the first schema of their type is parsed.
    if resolved.schema.kind == AVRO:
        from headrace.registry.formats import avro

        return avro.parse(resolved)
    if resolved.schema.kind == JSON:
        from headrace.registry.formats import json_schema

        return json_schema.parse(resolved)
    from headrace.registry.formats import protobuf

    return protobuf.parse(resolved)
