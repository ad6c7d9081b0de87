"""Runs the requests of a registry: reads its state, and decides and writes changes if it is the leader.

Changes are decided one after the other, each on the state that includes the one before. Parsing and comparing schemas
runs on threads, so that lookups are answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from headrace.registry import changes
from headrace.registry.changes import Change
from headrace.registry.comparison import (
    Candidate,
    NewSchema,
    check_new,
    incompatibilities,
    new_schema,
    same_version,
)
from headrace.registry.compatibility.levels import LEVELS
from headrace.registry.errors import (
    RegistryError,
    incompatible,
    invalid_schema,
    schema_not_found,
    subject_not_found,
    timed_out,
    unprocessable,
    version_not_found,
)
from headrace.registry.formats.parsing import InvalidSchema, NotParsedInTime, Resolved, SchemaParser
from headrace.registry.queries import resolved, with_numbers
from headrace.registry.records import Record
from headrace.registry.rules import check_rule_set
from headrace.registry.schemas import PROTOBUF, SchemaText, requested_schema, with_previous
from headrace.registry.state import DEFAULT_LEVEL, RegistryState, Version

_THREADS = 2
_MAX_INT = 2**31 - 1
_T = TypeVar("_T")


class Journal(Protocol):
    """Writes records to the topic."""

    async def ensure_writer(self) -> None:
        """Returns when nobody else can write, and the state has everything that was written.

        :raises RegistryError: if that cannot be reached in time.
        """

    async def write(self, records: tuple[Record, ...]) -> None:
        """Returns when the records are stored, and applied to the state.

        :raises RegistryError: if they may not be stored.
        """

    async def catch_up(self) -> None:
        """Returns when the state has all records that the topic had at the time of the call.

        :raises RegistryError: if the topic cannot be read in time.
        """


class Registry:
    """The requests of a registry, without HTTP."""

    def __init__(
        self, state: RegistryState, journal: Journal, cluster_names: Callable[[], dict[str, str]] = dict
    ) -> None:
        """
        :param cluster_names: the names of the Kafka cluster and of the group of registries.
        """
        self.state = state
        self.cluster_names = cluster_names
        self._journal = journal
        self._parser = SchemaParser()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="registry-schemas")
        self._deciding = asyncio.Lock()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def catch_up(self) -> None:
        await self._journal.catch_up()

    # -- reading

    async def lookup(self, subject: str, body: Mapping[str, Any], *, normalize: bool, deleted: bool) -> Version:
        """The version of a subject that has a schema.

        :raises RegistryError: 40401 or 40403 if there is none.
        """
        candidates = self._candidates(subject, with_deleted=deleted)
        if not candidates:
            raise subject_not_found(subject)
        found = await self._same(subject, body, candidates, normalize=normalize)
        if found is None:
            raise schema_not_found()
        return found

    async def registered(self, subject: str, body: Mapping[str, Any], *, normalize: bool) -> Any | None:
        """The answer to the registration of a schema that the subject has already, in any mode; None if it has not.

        Every registry may give this answer. A registration with an id or a version asks for just this one.
        """
        given_id, number = _whole_number(body, "id"), _whole_number(body, "version")
        found = await self._same(subject, body, self._candidates(subject), normalize=normalize)
        if found is None or given_id not in (None, found.schema_id) or number not in (None, found.version):
            return None
        return changes.registered(found)

    async def check(self, subject: str, number: int | None, body: Mapping[str, Any], *, normalize: bool) -> list[str]:
        """Compares a schema with one version; None is the latest. A subject without versions accepts every schema."""
        if not self.state.versions(subject):
            await self.catch_up()
        versions = self.state.versions(subject)
        if number is not None:
            versions = [each for each in versions if each.version == number]
            if not versions:
                raise version_not_found(number)
        new = await self._new_schema(subject, body, normalize=normalize, is_checked=True)
        return await self._incompatibilities(subject, new, [self._candidate(each) for each in versions[-1:]])

    async def check_all(self, subject: str, body: Mapping[str, Any], *, normalize: bool) -> list[str]:
        """Compares a schema with the versions that the level of the subject names."""
        if not self.state.versions(subject):
            await self.catch_up()
        new = await self._new_schema(subject, body, normalize=normalize, is_checked=True)
        return await self._incompatibilities(subject, new, self._candidates(subject))

    async def schema_fields(self, version: Version, form: str) -> dict[str, object]:
        """The schema of a version as answers have it.

        :param form: ``serialized`` for the descriptors of a Protobuf schema; empty for the text.
        """
        fields = version.schema.fields()
        if form == "serialized" and version.schema.kind == PROTOBUF:
            given = resolved(self.state, version.subject, version.schema)
            try:
                fields["schema"] = await self._on_thread(lambda: self._parser.serialized(given))
            except InvalidSchema as error:
                raise invalid_schema(str(error)) from None
        return fields

    # -- changing

    async def register(self, subject: str, body: Mapping[str, Any], *, normalize: bool) -> Any:
        given_id, number = _whole_number(body, "id"), _whole_number(body, "version")
        check_rule_set(body.get("ruleSet"))
        async with self._deciding:
            await self._journal.ensure_writer()
            changes.check_may_register(self.state, subject, given_id)
            candidates = self._candidates(subject, with_deleted=True)
            if given_id is not None:
                new = await self._new_schema(subject, body, normalize=normalize)
                return await self._write(changes.import_schema(self.state, subject, new.stored, given_id, number))
            live = [each for each in candidates if not each.version.is_deleted]
            same = await self._same(subject, body, live, normalize=normalize)
            if same is not None:
                return changes.registered(same)
            new = await self._new_schema(
                subject, body, normalize=normalize, previous=_latest_schema(live), is_checked=True
            )
            found = await self._incompatibilities(subject, new, live)
            if found:
                raise incompatible(subject, found)
            deleted = await self._on_thread(lambda: same_version(self._parser, new, candidates))
            return await self._write(changes.register(self.state, subject, new.stored, deleted))

    async def change(self, decide: Callable[[RegistryState], Change]) -> Any:
        """Makes a change that needs no schema to be parsed."""
        async with self._deciding:
            await self._journal.ensure_writer()
            return await self._write(decide(self.state))

    async def _write(self, change: Change) -> Any:
        if change.records:
            await self._journal.write(change.records)
        return change.answer

    # -- schemas

    async def _same(
        self, subject: str, body: Mapping[str, Any], candidates: list[Candidate], *, normalize: bool
    ) -> Version | None:
        """The version that has the schema as it is, or with the metadata and the rules of the latest version."""
        new = await self._new_schema(subject, body, normalize=normalize)
        found = await self._on_thread(lambda: same_version(self._parser, new, candidates))
        latest = _latest_schema([each for each in candidates if not each.version.is_deleted])
        if found is not None or latest is None:
            return found
        populated = replace(new, stored=with_previous(new.stored, latest, body))
        if populated.stored == new.stored:
            return None
        return await self._on_thread(lambda: same_version(self._parser, populated, candidates))

    async def _new_schema(
        self,
        subject: str,
        body: Mapping[str, Any],
        *,
        normalize: bool,
        previous: SchemaText | None = None,
        is_checked: bool = False,
    ) -> NewSchema:
        """
        :param previous: the schema whose metadata and rules the new one takes over, if it has none.
        :param is_checked: also check the rules that only new schemas must follow.
        """
        requested = requested_schema(body)
        if previous is not None:
            requested = with_previous(requested, previous, body)
        schema: SchemaText = with_numbers(self.state, subject, requested)
        given = resolved(self.state, subject, schema)
        is_normal = normalize or self.state.effective_config(subject, "normalize", False) is True
        new = await self._on_thread(lambda: new_schema(self._parser, given, normalize=is_normal))
        if is_checked:
            check_new(new)
        return new

    async def _incompatibilities(self, subject: str, new: NewSchema, candidates: list[Candidate]) -> list[str]:
        level = self.state.effective_config(subject, "compatibilityLevel", DEFAULT_LEVEL)
        if level not in LEVELS:
            level = DEFAULT_LEVEL  # a level that another registry has written, and that does not exist here
        group = self.state.effective_config(subject, "compatibilityGroup", "")
        if group:
            wanted = new.stored.metadata_property(group)
            candidates = [each for each in candidates if each.version.schema.metadata_property(group) == wanted]
        return await self._on_thread(lambda: incompatibilities(self._parser, new, candidates, level))

    def _candidates(self, subject: str, *, with_deleted: bool = False) -> list[Candidate]:
        return [self._candidate(each) for each in self.state.versions(subject, with_deleted=with_deleted)]

    def _candidate(self, version: Version) -> Candidate:
        try:
            return Candidate(version, resolved(self.state, version.subject, version.schema))
        except RegistryError:
            # Another registry has removed a schema that this one refers to. It cannot be parsed, and is not the same
            # as a schema that can.
            return Candidate(version, Resolved(version.schema))

    async def _on_thread(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except NotParsedInTime as error:
            raise timed_out(str(error)) from None


def _latest_schema(candidates: list[Candidate]) -> SchemaText | None:
    return candidates[-1].version.schema if candidates else None


def _whole_number(body: Mapping[str, Any], name: str) -> int | None:
    """A number that a client may give when it imports a schema; zero and less stand for none, as in Java's client."""
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found > _MAX_INT:
        raise unprocessable(f"{name} must be a whole number of at most {_MAX_INT}")
    return found if found > 0 else None
