"""Holds subjects, versions and ids: the result of applying the records of ``_schemas`` in order. No I/O.

Every registry applies the same records in the same order, so all have the same state. Nothing changes the state but
:meth:`RegistryState.apply`: a leader writes a record, reads it back like any other registry, and answers then.

An id belongs to one schema of a context for ever. Several versions, also of several subjects, may have the same id. An
id is forgotten when the last of its versions is deleted permanently, and is not given to another schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from logging import getLogger
from typing import Any

from headrace.registry.names import DEFAULT_CONTEXT, context_of, local_name, qualified
from headrace.registry.records import MAX_IDS, Key, UnreadableRecord, decode_key, decode_value
from headrace.registry.schemas import Reference, SchemaText, schema_text_of

logger = getLogger(__name__)

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"


@dataclass(frozen=True)
class Version:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: SchemaText
    is_deleted: bool = False

    def value(self, *, is_deleted: bool | None = None) -> dict[str, object]:
        """The value of its record."""
        deleted = self.is_deleted if is_deleted is None else is_deleted
        found: dict[str, object] = {"subject": self.subject, "version": self.version, "id": self.schema_id}
        return {**found, **self.schema.fields(), "deleted": deleted}


@dataclass
class Context:
    """The ids of a context.

    :ivar versions: per id the versions that have it, by subject and version.
    """

    versions: dict[int, dict[tuple[str, int], Version]] = field(default_factory=dict)
    id_of: dict[SchemaText, int] = field(default_factory=dict)
    id_of_guid: dict[str, int] = field(default_factory=dict)
    max_id: int = 0


class RegistryState:
    """The subjects of a registry, as of an offset of the topic."""

    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        #: Settings by qualified subject; None: of all subjects.
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, str] = {}
        #: Per subject and version, the versions that refer to it.
        self._referrers: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}

    # -- records

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Applies a record. A record that cannot be read changes nothing."""
        try:
            parsed = decode_key(key)
            method = _APPLY.get(parsed.kind)
            if method is None:
                logger.info("a record with a key of type %s has no meaning here", parsed.kind[:40])
                return
            method(self, parsed, decode_value(value))
        except UnreadableRecord as error:
            logger.warning("a record of the topic of schemas cannot be read: %s", error)

    def _apply_schema(self, key: Key, value: dict[str, Any] | None) -> None:
        assert key.subject is not None
        if value is None:
            self._remove(key.subject, key.version)
            return
        schema_id = value.get("id")
        if isinstance(schema_id, bool) or not isinstance(schema_id, int) or schema_id < 0 or key.version < 1:
            raise UnreadableRecord("the schema has no id, or no version")
        schema = schema_text_of(value)
        self._remove(key.subject, key.version)
        self._add(Version(key.subject, key.version, schema_id, schema, value.get("deleted") is True))

    def _add(self, version: Version) -> None:
        self._subjects.setdefault(version.subject, {})[version.version] = version
        context = self._contexts.setdefault(context_of(version.subject), Context())
        context.versions.setdefault(version.schema_id, {})[version.subject, version.version] = version
        context.id_of.setdefault(version.schema, version.schema_id)
        context.id_of_guid.setdefault(version.schema.guid, version.schema_id)
        context.max_id = max(context.max_id, version.schema_id)
        for reference in version.schema.references:
            place = self.place_of(reference, version.subject)
            self._referrers.setdefault(place, {})[version.subject, version.version] = version

    def _remove(self, subject: str, number: int) -> None:
        versions = self._subjects.get(subject, {})
        found = versions.pop(number, None)
        if found is None:
            return
        if not versions:
            del self._subjects[subject]
        context = self._contexts[context_of(subject)]
        same_id = context.versions[found.schema_id]
        del same_id[subject, number]
        if not same_id:
            del context.versions[found.schema_id]
        if context.id_of.get(found.schema) == found.schema_id and not same_id:
            del context.id_of[found.schema]
        if context.id_of_guid.get(found.schema.guid) == found.schema_id and not same_id:
            del context.id_of_guid[found.schema.guid]
        for reference in found.schema.references:
            place = self.place_of(reference, subject)
            referrers = self._referrers.get(place, {})
            referrers.pop((subject, number), None)
            if not referrers:
                self._referrers.pop(place, None)

    def _apply_delete_subject(self, key: Key, value: dict[str, Any] | None) -> None:
        last = None if value is None else value.get("version")
        if not isinstance(last, int) or key.subject is None:
            return
        for version in list(self._subjects.get(key.subject, {}).values()):
            if version.version <= last and not version.is_deleted:
                self._remove(version.subject, version.version)
                self._add(Version(version.subject, version.version, version.schema_id, version.schema, True))

    def _apply_clear_subject(self, key: Key, _: dict[str, Any] | None) -> None:
        assert key.subject is not None
        for version in list(self._subjects.get(key.subject, {}).values()):
            if version.is_deleted:
                self._remove(version.subject, version.version)

    def _apply_config(self, key: Key, value: dict[str, Any] | None) -> None:
        if value is None:
            self._configs.pop(key.subject, None)
        else:
            self._configs[key.subject] = value

    def _apply_mode(self, key: Key, value: dict[str, Any] | None) -> None:
        mode = None if value is None else value.get("mode")
        if isinstance(mode, str):
            self._modes[key.subject] = mode
        else:
            self._modes.pop(key.subject, None)

    def _apply_noop(self, _: Key, value: dict[str, Any] | None) -> None:
        found = (value or {}).get(MAX_IDS)
        for name, number in found.items() if isinstance(found, dict) else ():
            if isinstance(number, int):
                context = self._contexts.setdefault(name, Context())
                context.max_id = max(context.max_id, number)

    # -- questions

    def subjects(self) -> Iterator[str]:
        return iter(self._subjects)

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """The versions of a subject, in order."""
        found = self._subjects.get(subject, {})
        return [found[number] for number in sorted(found) if with_deleted or not found[number].is_deleted]

    def version(self, subject: str, number: int) -> Version | None:
        """A version, also one that was soft deleted."""
        return self._subjects.get(subject, {}).get(number)

    def versions_of_id(self, context: str, schema_id: int) -> list[Version]:
        found = self._contexts.get(context)
        return [] if found is None else list(found.versions.get(schema_id, {}).values())

    def id_of(self, context: str, schema: SchemaText) -> int | None:
        found = self._contexts.get(context)
        return None if found is None else found.id_of.get(schema)

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        """The contexts that have a schema, and its ids there."""
        found = [(name, context.id_of_guid.get(guid)) for name, context in sorted(self._contexts.items())]
        return [(name, schema_id) for name, schema_id in found if schema_id is not None]

    def max_id(self, context: str) -> int:
        found = self._contexts.get(context)
        return 0 if found is None else found.max_id

    def max_ids(self) -> dict[str, int]:
        return {name: context.max_id for name, context in self._contexts.items() if context.max_id}

    def contexts(self) -> list[str]:
        return sorted(name for name in self._contexts if self.has_versions(name) or name == DEFAULT_CONTEXT)

    def has_versions(self, context: str) -> bool:
        """Whether a context has versions, also deleted ones."""
        found = self._contexts.get(context)
        return found is not None and bool(found.versions)

    def referrers(self, subject: str, number: int) -> list[Version]:
        return list(self._referrers.get((subject, number), {}).values())

    def place_of(self, reference: Reference, subject: str) -> tuple[str, int]:
        """The qualified subject and the version that a reference of a subject means."""
        name = reference.subject
        if not name.startswith(":."):
            name = qualified(context_of(subject), name)
        return name, reference.version

    def config(self, subject: str | None) -> dict[str, Any] | None:
        return self._configs.get(subject)

    def modes(self) -> list[str | None]:
        """The subjects and contexts with a mode of their own, and None for all subjects."""
        return list(self._modes)

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(subject)

    def effective_config(self, subject: str | None, name: str, default: Any) -> Any:
        """A setting of a subject, of its context, or of all subjects."""
        for place in _scopes(subject):
            found = self._configs.get(place, {}).get(name)
            if found is not None:
                return found
        return default

    def effective_mode(self, subject: str | None) -> str:
        if self._modes.get(None) == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        for place in _scopes(subject):
            if place in self._modes:
                return self._modes[place]
        return DEFAULT_MODE


def _scopes(subject: str | None) -> list[str | None]:
    """Returns the scopes that may have settings for a subject: the subject, its context, all subjects."""
    if subject is None:
        return [None]
    context = context_of(subject)
    scopes: list[str | None] = [subject] if local_name(subject) else []
    if context != DEFAULT_CONTEXT:
        scopes.append(qualified(context, ""))
    return [*scopes, None]


_APPLY = {
    "SCHEMA": RegistryState._apply_schema,
    "DELETE_SUBJECT": RegistryState._apply_delete_subject,
    "CLEAR_SUBJECT": RegistryState._apply_clear_subject,
    "CONFIG": RegistryState._apply_config,
    "MODE": RegistryState._apply_mode,
    "NOOP": RegistryState._apply_noop,
}
