"""Answers questions about the state: versions, ids, and the schemas that a schema refers to. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from headrace.registry.errors import (
    invalid_schema,
    invalid_version,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from headrace.registry.formats.parsing import Resolved
from headrace.registry.names import DEFAULT_CONTEXT, checked_subject, context_of, qualified, with_context
from headrace.registry.schemas import LATEST, MAX_REFERENCES, SchemaText
from headrace.registry.state import RegistryState, Version

_MAX_INT = 2**31 - 1
_T = TypeVar("_T")


def parsed_version(text: str) -> int | None:
    """A version in a path; None for the latest.

    :raises RegistryError: if it is neither a number nor ``latest``.
    """
    if text in ("latest", str(LATEST)):
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= _MAX_INT):
        raise invalid_version(text)
    return int(text)


def live_versions(state: RegistryState, subject: str, *, with_deleted: bool = False) -> list[Version]:
    """
    :raises NotFound: if the subject has none.
    """
    found = state.versions(subject, with_deleted=with_deleted)
    if not found:
        raise subject_not_found(subject)
    return found


def one_version(state: RegistryState, subject: str, number: int | None, *, with_deleted: bool = False) -> Version:
    """
    :param number: None for the latest.
    :raises NotFound: if there is no such version.
    """
    found = live_versions(state, subject, with_deleted=with_deleted)
    if number is None:
        return found[-1]
    for version in found:
        if version.version == number:
            return version
    raise version_not_found(number)


def aliased(state: RegistryState, subject: str) -> str:
    """The subject that a name is an alias of, or the name. An alias without a context is in that of the name."""
    alias = (state.config(subject) or {}).get("alias")
    if not isinstance(alias, str) or not alias:
        return subject
    return checked_subject(with_context(context_of(subject), alias))


def same_name_elsewhere(state: RegistryState, subject: str) -> list[str]:
    """The subjects of other contexts with the name of a subject of the default context."""
    if context_of(subject) != DEFAULT_CONTEXT:
        return []
    names = [qualified(context, subject) for context in state.contexts() if context != DEFAULT_CONTEXT]
    return [name for name in names if state.versions(name, with_deleted=True)]


def version_with_id(state: RegistryState, subject: str, schema_id: int) -> Version:
    """The version that a subject has with an id. If it has none: of another subject of the context.

    A subject of the default context also stands for the subjects of this name in other contexts.

    :param subject: a qualified name. It may be that of a context.
    :raises NotFound: if no schema has the id.
    """
    for name in (subject, *same_name_elsewhere(state, subject)):
        own = [each for each in state.versions_of_id(context_of(name), schema_id) if each.subject == name]
        if own:
            return max(own, key=lambda each: each.version)
    return versions_of_id(state, context_of(subject), schema_id)[0]


def versions_of_id(state: RegistryState, context: str, schema_id: int) -> list[Version]:
    """
    :raises NotFound: if no schema has the id.
    """
    found = state.versions_of_id(context, schema_id)
    if not found:
        raise schema_not_found(schema_id)
    return sorted(found, key=lambda each: (each.subject, each.version))


def contexts_of_guid(state: RegistryState, guid: str) -> list[tuple[str, int]]:
    """The contexts that have a schema, and its ids there; the default context is the first.

    :raises NotFound: if no schema has the GUID.
    """
    found = state.ids_of_guid(guid.lower())
    if not found:
        raise schema_not_found(guid)
    return found


def resolved(state: RegistryState, subject: str, schema: SchemaText) -> Resolved:
    """A schema with everything that it refers to, directly and indirectly.

    :raises RegistryError: if a reference does not exist.
    """
    if not schema.references:
        return Resolved(schema)
    found: dict[str, SchemaText] = {}
    _collect(state, subject, schema, found, [])
    return Resolved(schema, tuple(found.items()))


def _collect(
    state: RegistryState, subject: str, schema: SchemaText, found: dict[str, SchemaText], path: list[str]
) -> None:
    for reference in schema.references:
        if reference.name in found:
            continue
        if reference.name in path:
            raise invalid_schema(f"the references {' -> '.join([*path, reference.name])[:300]} lead back to themselves")
        if len(found) + len(path) >= MAX_REFERENCES:
            raise invalid_schema(f"it refers to more than {MAX_REFERENCES} schemas")
        name, number = state.place_of(reference, subject)
        referred = state.version(name, number)
        if referred is None:
            raise invalid_schema(f"the reference {reference.name}: there is no version {number} of {name}")
        _collect(state, name, referred.schema, found, [*path, reference.name])
        found[reference.name] = referred.schema


def with_numbers(state: RegistryState, subject: str, schema: SchemaText) -> SchemaText:
    """A schema of a request whose references name versions that exist: -1 stands for the latest.

    :raises RegistryError: if a reference does not exist, or was deleted.
    """
    references = []
    for reference in schema.references:
        name, number = state.place_of(reference, subject)
        live = [each.version for each in state.versions(name)]
        if number == LATEST and live:
            number = live[-1]
        if number not in live:
            raise invalid_schema(f"the reference {reference.name}: there is no version {reference.version} of {name}")
        references.append(replace(reference, version=number))
    return replace(schema, references=tuple(references))


def subjects(state: RegistryState, prefix: str, *, with_deleted: bool, only_deleted: bool) -> list[str]:
    """The names of subjects in order. Without a prefix, those of all contexts."""
    found = []
    for subject in state.subjects():
        if prefix == ":*:" or _has_prefix(subject, prefix):
            is_live = bool(state.versions(subject))
            if (not is_live) if only_deleted else (is_live or with_deleted):
                found.append(subject)
    return sorted(found)


def _has_prefix(subject: str, prefix: str) -> bool:
    if prefix.startswith(":.:"):
        prefix = prefix[3:]
        return not subject.startswith(":.") and subject.startswith(prefix)
    return subject.startswith(prefix)


def referrer_ids(state: RegistryState, version: Version, *, with_deleted: bool = False, besides: str = "") -> list[int]:
    """The ids of the schemas that refer to a version, apart from those of one subject."""
    found = state.referrers(version.subject, version.version)
    return sorted(
        {each.schema_id for each in found if each.subject != besides and (with_deleted or not each.is_deleted)}
    )


def schemas(state: RegistryState, prefix: str, *, with_deleted: bool, only_latest: bool) -> list[Version]:
    found: list[Version] = []
    for subject in subjects(state, prefix, with_deleted=with_deleted, only_deleted=False):
        versions = state.versions(subject, with_deleted=with_deleted)
        found += versions[-1:] if only_latest else versions
    return found


def page(items: Iterable[_T], offset: int, limit: int) -> list[_T]:
    """A part of a list. A negative limit is none."""
    rest = list(items)[max(0, offset) :]
    return rest if limit < 0 else rest[:limit]


def version_fields(version: Version) -> dict[str, object]:
    """A version as answers have it."""
    found = {"subject": version.subject, "version": version.version, "id": version.schema_id}
    return {**found, "guid": version.schema.guid, **version.schema.fields()}
