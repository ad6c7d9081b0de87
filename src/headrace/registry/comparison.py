"""Compares a schema of a request with the versions of its subject: which is the same, and what is incompatible.

The functions parse schemas, which may take long: a server calls them on a thread. They get values that do not change,
and no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.registry.compatibility.levels import is_transitive, problems
from headrace.registry.errors import invalid_schema
from headrace.registry.formats.parsing import InvalidSchema, Parsed, Resolved, SchemaParser
from headrace.registry.schemas import SchemaText
from headrace.registry.state import Version


@dataclass(frozen=True)
class Candidate:
    """A version of the subject, with everything that its schema refers to."""

    version: Version
    resolved: Resolved


@dataclass(frozen=True)
class NewSchema:
    """
    :ivar stored: the schema as it would be stored.
    """

    stored: SchemaText
    parsed: Parsed


def new_schema(parser: SchemaParser, resolved: Resolved, *, normalize: bool) -> NewSchema:
    """
    :raises RegistryError: if it is not a valid schema.
    """
    try:
        parsed = parser.parse(resolved)
        text = parsed.normal_text() if normalize else parsed.stored_text
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from None
    return NewSchema(replace(resolved.schema, text=text), parsed)


def check_new(new: NewSchema) -> None:
    """
    :raises RegistryError: if a registry may not accept it as a new schema.
    """
    try:
        new.parsed.check_new()
    except InvalidSchema as error:
        raise invalid_schema(str(error)) from None


def same_version(parser: SchemaParser, new: NewSchema, candidates: Sequence[Candidate]) -> Version | None:
    """The newest version with the same schema. Texts that differ in form only are the same schema."""
    for candidate in reversed(candidates):
        if candidate.version.schema == new.stored:
            return candidate.version
    wanted = replace(new.stored, text="")
    for candidate in reversed(candidates):
        if replace(candidate.version.schema, text="") != wanted:
            continue
        try:
            found = parser.parse(candidate.resolved)
        except InvalidSchema:
            continue  # Another registry accepted it. It can still be read, but is not the same as a valid schema.
        if found.identity == new.parsed.identity:
            return candidate.version
    return None


def incompatibilities(parser: SchemaParser, new: NewSchema, candidates: Sequence[Candidate], level: str) -> list[str]:
    """Why a schema is not compatible with versions of its subject; empty if it is."""
    compared = candidates if is_transitive(level) else candidates[-1:]
    if level == "NONE" or not compared:
        return []
    earlier: list[Parsed] = []
    for candidate in compared:
        try:
            earlier.append(parser.parse(candidate.resolved))
        except InvalidSchema as error:
            return [f"version {candidate.version.version} cannot be compared: {error}"]
    return problems(level, new.parsed, earlier)
