"""Calls the API of a registry without a socket and without a broker.

``MemoryTopic`` is the topic: registries of the same topic see the same records. A test can make it unreachable.
"""

from __future__ import annotations

import json
from hashlib import md5
from typing import Any
from urllib.parse import quote
from uuid import UUID

from headrace.registry.changes import noop
from headrace.registry.cluster.forwarding import ForwardedAnswer, Forwarder
from headrace.registry.cluster.membership import Identity, Leader
from headrace.registry.errors import store_failed
from headrace.registry.http.application import Application
from headrace.registry.records import Record
from headrace.registry.registry import Registry
from headrace.registry.state import RegistryState


class MemoryTopic:
    """Records in memory, and the journal of a registry."""

    def __init__(self, state: RegistryState, records: list[Record] | None = None) -> None:
        self._state = state
        self.records: list[Record] = [] if records is None else records
        self._applied = 0
        self.is_away = False

    async def ensure_writer(self) -> None:
        await self.catch_up()

    async def write(self, records: tuple[Record, ...]) -> None:
        if self.is_away:
            raise store_failed("the broker is away")
        self.records += records
        await self.catch_up()

    async def catch_up(self) -> None:
        if self.is_away:
            raise store_failed("the broker is away")
        for record in self.records[self._applied :]:
            self._state.apply(record.key, record.value)
        self._applied = len(self.records)

    def compact(self) -> list[Record]:
        """Returns the records that the log cleaner keeps: the newest of each key, and no tombstones."""
        newest = {record.key: record for record in self.records}
        return [record for record in newest.values() if record.value is not None]


class Api:
    """The API of one registry."""

    def __init__(self, records: list[Record] | None = None, leader: Api | None = None) -> None:
        self.state = RegistryState()
        self.topic = MemoryTopic(self.state, records)
        self._leader = leader
        self.registry = Registry(self.state, self.topic)
        self.application = Application(self.registry, self, _ForwarderTo(leader))

    async def leader(self) -> Leader:
        return Leader(Identity("leader", 8081), is_self=self._leader is None)

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON value of an answer. A body of bytes is sent as it is."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        status, answer = await self.raw(method, path, data, headers)
        return status, json.loads(answer) if answer else None

    async def raw(
        self, method: str, path: str, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
        }
        chunks = [data[at : at + 65_536] for at in range(0, len(data), 65_536)] or [b""]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            chunk = chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.application(scope, receive, send)
        headers_sent = dict(sent[0]["headers"])
        assert headers_sent[b"content-type"] == b"application/vnd.schemaregistry.v1+json"
        assert (b"content-length" in headers_sent) == (sent[0]["status"] != 204)
        return sent[0]["status"], sent[1]["body"]

    async def register(self, subject: str, schema: Any, query: str = "", **more: Any) -> tuple[int, Any]:
        """Registers a schema. Returns the status, and the id in the answer or the whole error."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        path = f"/subjects/{quote(subject, safe='')}/versions{query}"
        status, answer = await self.call("POST", path, {"schema": text, **more})
        return status, {"id": answer["id"]} if status == 200 else answer

    def write_noop(self) -> None:
        self.topic.records.append(noop(self.state))


class _ForwarderTo(Forwarder):
    """Calls another registry of the test."""

    def __init__(self, leader: Api | None) -> None:
        super().__init__()
        self._leader = leader

    async def send(self, leader: Identity, method: str, target: str, headers: Any, body: bytes) -> ForwardedAnswer:
        assert self._leader is not None
        status, answer = await self._leader.raw(method, target, body, {"x-forward": "false"})
        return ForwardedAnswer(status, answer)


def with_guid(text: str, **more: Any) -> dict[str, Any]:
    """The answer for a schema without references, metadata and rules."""
    return {**more, "guid": str(UUID(bytes=md5(text.encode()).digest())), "schema": text}


def record_schema(*fields: str, **defaults: Any) -> str:
    """An Avro record with int fields; those with a default are given by name."""
    found: list[dict[str, Any]] = [{"name": name, "type": "int"} for name in fields]
    found += [{"name": name, "type": "int", "default": value} for name, value in defaults.items()]
    return json.dumps({"type": "record", "name": "R", "fields": found})
