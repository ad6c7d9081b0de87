"""Runs the requests of a registry: reads its state, and decides and writes changes if it is the leader.

Changes are decided one after the other, each on the state that includes the one before. Parsing and comparing schemas
runs on threads, so that lookups are answered meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from headrace.registry import changes
from headrace.registry.changes import Change
from headrace.registry.comparison import Candidate, NewSchema, incompatibilities, new_schema, same_version
from headrace.registry.compatibility.levels import LEVELS
from headrace.registry.errors import (
    RegistryError,
    incompatible,
    invalid_schema,
    schema_not_found,
    subject_not_found,
    timed_out,
    unprocessable,
)
from headrace.registry.formats.parsing import InvalidSchema, NotParsedInTime, Resolved, SchemaParser
from headrace.registry.queries import one_version, resolved, with_numbers
from headrace.registry.records import Record
from headrace.registry.schemas import PROTOBUF, SchemaText, requested_schema
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

    def __init__(self, state: RegistryState, journal: Journal) -> None:
        self.state = state
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
        new = await self._new_schema(subject, body, normalize=normalize)
        found = await self._on_thread(lambda: same_version(self._parser, new, candidates))
        if found is None:
            raise schema_not_found()
        return found

    async def check(self, subject: str, number: int | None, body: Mapping[str, Any], *, normalize: bool) -> list[str]:
        """Compares a schema with one version; None is the latest."""
        version = one_version(self.state, subject, number)
        new = await self._new_schema(subject, body, normalize=normalize)
        return await self._incompatibilities(subject, new, [self._candidate(version)])

    async def check_all(self, subject: str, body: Mapping[str, Any], *, normalize: bool) -> list[str]:
        """Compares a schema with the versions that the level of the subject names."""
        new = await self._new_schema(subject, body, normalize=normalize)
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
        async with self._deciding:
            await self._journal.ensure_writer()
            changes.check_may_register(self.state, subject, given_id)
            new = await self._new_schema(subject, body, normalize=normalize)
            candidates = self._candidates(subject, with_deleted=True)
            if given_id is not None:
                return await self._write(changes.import_schema(self.state, subject, new.stored, given_id, number))
            live = [each for each in candidates if not each.version.is_deleted]
            same = await self._on_thread(
                lambda: same_version(self._parser, new, live) or same_version(self._parser, new, candidates)
            )
            if same is None or same.is_deleted:
                found = await self._incompatibilities(subject, new, live)
                if found:
                    raise incompatible(subject, found)
            return await self._write(changes.register(self.state, subject, new.stored, same))

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

    async def _new_schema(self, subject: str, body: Mapping[str, Any], *, normalize: bool) -> NewSchema:
        schema: SchemaText = with_numbers(self.state, subject, requested_schema(body))
        given = resolved(self.state, subject, schema)
        is_normal = normalize or self.state.effective_config(subject, "normalize", False) is True
        return await self._on_thread(lambda: new_schema(self._parser, given, normalize=is_normal))

    async def _incompatibilities(self, subject: str, new: NewSchema, candidates: list[Candidate]) -> list[str]:
        level = self.state.effective_config(subject, "compatibilityLevel", DEFAULT_LEVEL)
        if level not in LEVELS:
            level = DEFAULT_LEVEL  # a level that another registry has written, and that does not exist here
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


def _whole_number(body: Mapping[str, Any], name: str) -> int | None:
    """A number that a client may give when it imports a schema; zero and less stand for none, as in Java's client."""
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found > _MAX_INT:
        raise unprocessable(f"{name} must be a whole number of at most {_MAX_INT}")
    return found if found > 0 else None
