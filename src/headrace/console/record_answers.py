"""Answers requests about records that are no pages: the stream of a tail, and downloads.

::

    /topics/{topic}/tail/events                               server-sent events; the id of each says where to go on
    /topics/{topic}/search/download?as=json&...               what a search finds: JSON lines, CSV or Parquet
    /topics/{topic}/records/{partition}/{offset}/download     the bytes of a key or a value

A download is always an attachment of a type that browsers do not show, so nothing of a record is ever interpreted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.client.errors import HeadraceError
from headrace.console.body import read_query
from headrace.console.fields import Field, read_fields
from headrace.console.pages.record import place_of
from headrace.console.pages.record_fields import KEY_FORMAT, VALUE_FORMAT
from headrace.console.pages.record_search import SEARCH_FIELDS, new_search
from headrace.console.pages.record_tail import TAIL_FIELDS, tail_positions
from headrace.console.problems import ConsoleError, NotFound, TooMany
from headrace.console.protection.sessions import MOST_STREAMS
from headrace.console.records.browsing import Browser, write_offsets
from headrace.console.records.downloads import (
    FILE_FORMATS,
    MOST_BYTES,
    MOST_RECORDS,
    FileFormat,
    has_parquet,
    plain_rows,
)
from headrace.console.records.search import Search
from headrace.console.records.tail import Tail, tail_row
from headrace.console.request import ConsoleRequest
from headrace.console.services import Services
from headrace.console.visitors import session_of

_TOPIC = Field("topic", is_required=True)
_DOWNLOAD_FIELDS = (
    _TOPIC,
    *SEARCH_FIELDS,
    Field("as", kind="choice", choices=tuple(FILE_FORMATS), default="json"),
    Field("results", kind="number", default=MOST_RECORDS, least=1, most=MOST_RECORDS),
    KEY_FORMAT, VALUE_FORMAT, Field("go", kind="flag", default=False), Field("stop", kind="flag", default=False),
    Field("run", longest=40),
)  # fmt: skip
_VALUE_FIELDS = (
    _TOPIC,
    Field("partition", is_required=True),
    Field("offset", is_required=True),
    Field("part", kind="choice", choices=("value", "key"), default="value"),
)
_MOST_DOWNLOADS, _MOST_TAILS = 2, 40
_STREAM_SECONDS = 3_600.0
_RETRY_MS = 2_000
_PAUSE_SECONDS = 0.15
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class NoParquet(ConsoleError):
    """The package that writes Parquet is missing."""

    status = 501
    name = "no_parquet"
    advice = "Run pip install 'headrace[arrow]' where the console runs, or download CSV or JSON."


class RecordAnswers:
    """Answers the requests of one console."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._downloads = 0
        self._tails = 0

    # -- the tail

    async def tail(self, request: Request) -> Response:
        # A browser that connects again says where it was.
        last = request.headers.get("last-event-id", "")
        asked = await self._asked(request, (_TOPIC, *TAIL_FIELDS), {"positions": last} if last else {})
        if asked.session.streams >= MOST_STREAMS:
            raise TooMany(f"this session has {MOST_STREAMS} live pages open")
        if self._tails >= _MOST_TAILS:
            raise TooMany(f"{_MOST_TAILS} tails are open on this console")
        positions = await tail_positions(asked)
        return StreamingResponse(self._events(asked, positions), media_type="text/event-stream")

    async def _events(self, asked: ConsoleRequest, positions: dict[int, int]) -> AsyncIterator[bytes]:
        asked.session.streams += 1
        self._tails += 1
        is_kept = self._services.sessions.find(asked.session.id) is not None
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            tail, decoder = Tail(asked.cluster, asked.text("topic")), self._services.records.decoder
            loop = asyncio.get_running_loop()
            end = loop.time() + _STREAM_SECONDS
            while loop.time() < end and (not is_kept or self._services.sessions.find(asked.session.id) is not None):
                began = loop.time()
                try:
                    found = await tail.portion(positions)
                except HeadraceError as error:
                    yield _event("problem", str(error), write_offsets(positions))
                    return
                positions = found.positions
                if found.records or found.dropped:
                    rows = await asyncio.to_thread(lambda: [tail_row(each, decoder) for each in found.records])  # noqa: B023
                    content = {
                        "records": [dataclasses.asdict(row) for row in rows],
                        "dropped": found.dropped,
                        "behind": found.behind,
                    }
                    yield _event("records", content, write_offsets(positions))
                else:
                    yield b": nothing new\n\n"
                if not found.behind:
                    await asyncio.sleep(max(0.0, began + _PAUSE_SECONDS - loop.time()))
        finally:
            asked.session.streams -= 1
            self._tails -= 1

    # -- downloads

    async def found(self, request: Request) -> Response:
        """Sends the records that a search finds, as a file. The search runs again, with values that are not cut."""
        asked = await self._asked(request, _DOWNLOAD_FIELDS)
        kind = FILE_FORMATS[asked.text("as")]
        if not kind.is_stream and not has_parquet():
            raise NoParquet("the console cannot write Parquet, because pyarrow is not installed")
        if self._downloads >= _MOST_DOWNLOADS:
            raise TooMany(f"{_MOST_DOWNLOADS} downloads are running on this console")
        search = await new_search(asked, most_records=asked.number("results"))
        name = f"{asked.text('topic')}.{kind.ending}"
        body = self._streamed(kind, search)
        if kind.is_stream:
            return StreamingResponse(body, media_type=kind.media_type, headers=_attachment(name))
        return Response(b"".join([part async for part in body]), media_type=kind.media_type, headers=_attachment(name))

    async def _streamed(self, kind: FileFormat, search: Search) -> AsyncIterator[bytes]:
        decoder, sent = self._services.records.decoder, 0
        gathered: list[dict[str, object]] = []
        self._downloads += 1
        try:
            is_first = True
            async for some in search.found():
                sent += sum(record.size_bytes for record in some)
                rows = await asyncio.to_thread(plain_rows, some, decoder)
                if kind.is_stream:
                    yield await asyncio.to_thread(kind.write, rows, is_first)
                    is_first = False
                else:
                    gathered += rows
                if sent > MOST_BYTES:
                    search.stop()
            if not kind.is_stream or is_first:
                yield await asyncio.to_thread(kind.write, gathered, True)
        finally:
            self._downloads -= 1

    async def value(self, request: Request) -> Response:
        """The bytes of a key or a value. With masks, a document is written again without what they hide."""
        asked = await self._asked(request, _VALUE_FIELDS)
        (partition, offset), part = place_of(asked), asked.text("part")
        record = await Browser(asked.cluster.fetching, asked.text("topic")).one(partition, offset)
        data = None if record is None else getattr(record, part)
        if data is None:
            raise NotFound(f"the record has no {part}, or there is no record at offset {offset}")
        shown = await asyncio.to_thread(self._services.records.decoder.searched, data)
        if shown != data and not shown:
            raise NotFound(f"the {part} cannot be decoded, so its masked fields cannot be hidden one by one")
        name = f"{asked.text('topic')}-{partition}-{offset}.{part}"
        return Response(shown, media_type="application/octet-stream", headers=_attachment(name))

    # -- parts

    async def _asked(
        self, request: Request, fields: Iterable[Field], more: Mapping[str, str] | None = None
    ) -> ConsoleRequest:
        # A program without a cookie gets no session to keep, so that programs do not crowd out browsers.
        session = await session_of(self._services, request, is_kept=False)
        in_path = {name: unquote(value, errors="replace") for name, value in request.path_params.items()}
        values = read_fields(tuple(fields), {**read_query(request), **(more or {}), **in_path})
        return ConsoleRequest(values, session, self._services)


def _event(kind: str, content: object, positions: str) -> bytes:
    data = json.dumps(content, separators=(",", ":"))
    return f"id: {positions}\nevent: {kind}\ndata: {data}\n\n".encode()


def _attachment(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{_UNSAFE.sub("_", name)[:200]}"'}
