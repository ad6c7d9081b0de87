"""Follows views for many readers at once, on the event loop of an HTTP server.

One :class:`ViewTail` per view looks for new changes every 20 ms, while the view has readers. It reads each change once,
and keeps the newest events for all readers. A reader that is further behind reads the outbox itself, a page at a time,
and only when its connection has taken the last page. So a slow reader costs one page of memory. If the outbox no longer
has what a reader needs, the reader is told, and gets a snapshot.

A snapshot is written to a temporary file first, as fast as the database reads it: a slow reader must not hold a
transaction open.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import IO, NamedTuple, TypeVar

import anyio
import anyio.to_thread

from headrace.pipeline.changes import events
from headrace.pipeline.changes.events import Position
from headrace.pipeline.changes.reading import CannotFollow, ChangeReader
from headrace.pipeline.serving.errors import DatabaseUnreachable, ServingError

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_READERS = 200
_SNAPSHOTS_AT_ONCE = 2
_THREADS = 4
_POLL_S = 0.02
_POLL_AFTER_ERROR_S = 1.0
_PAGE_CHANGES = 500
_RECENT_EVENTS, _RECENT_BYTES = 2_000, 4 << 20
_IN_MEMORY_BYTES, _CHUNK_BYTES = 1 << 20, 64 << 10
#: A view stays followed for this long after its last reader, so that readers can resume.
LEASE_MS = 600_000
_RENEW_S = 60.0
_FIRST_STEP_S = 10.0


class NotFollowed(ServingError):
    """The runner does not follow the view, although it was asked to."""


class TooManyReaders(ServingError):
    """The server has as many readers of changes as it accepts."""


class _Settings(NamedTuple):
    heartbeat_s: float = 15.0
    first_step_s: float = _FIRST_STEP_S


class Feed:
    """:param is_stopping: whether the server is about to end. Readers are told then."""

    def __init__(
        self,
        reader: ChangeReader,
        *,
        is_stopping: Callable[[], bool] = lambda: False,
        heartbeat_s: float = _Settings().heartbeat_s,
        first_step_s: float = _Settings().first_step_s,
        max_readers: int = MAX_READERS,
    ) -> None:
        self._reader, self.is_stopping = reader, is_stopping
        self._settings = _Settings(heartbeat_s, first_step_s)
        self._max_readers, self._readers = max_readers, 0
        self._tails: dict[str, ViewTail] = {}
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._snapshots = anyio.CapacityLimiter(_SNAPSHOTS_AT_ONCE)

    async def check(self, view: str) -> None:
        """Checks that a reader can follow the view, before its answer begins.

        :raises UnknownView: if there is no such view.
        :raises TooManyReaders: if the server has enough readers.
        :raises NotFollowed: if no runner follows the view.
        """
        if self._readers >= self._max_readers:
            raise TooManyReaders(f"this server has {self._readers} readers of changes already: try again later")
        await self.in_thread(lambda: self._reader.check_view(view))
        await self.follow(view)
        tries = max(1, round(self._settings.first_step_s / _POLL_S / 5))
        for _ in range(tries):
            if await self.in_thread(lambda: self._reader.last(view)) is not None:
                return
            await asyncio.sleep(_POLL_S * 5)
        raise NotFollowed(
            f"no runner follows {view} yet: 'headrace views run' has to run, and a version of {view} has to serve; "
            f"'headrace views status {view}' shows the state"
        )

    async def follow(self, view: str) -> None:
        """Asks the runner to follow the view. A view that is followed anyway needs no right to write."""
        try:
            await self.in_thread(lambda: self._reader.follow(view, LEASE_MS))
        except CannotFollow:
            if await self.in_thread(lambda: self._reader.last(view)) is None:
                raise

    async def stream(self, view: str, last_event_id: str) -> AsyncGenerator[bytes]:
        """The events of a view, without an end: a snapshot and changes, or the changes after the last event.

        Close the generator: it counts its readers.
        """
        if self._readers >= self._max_readers:  # others came since ``check``
            yield events.bye("this server has too many readers of changes: try again later")
            return
        self._readers += 1
        try:
            async with self._tail(view) as tail, aclosing(self._events(view, tail, last_event_id)) as found:
                async for chunk in found:
                    yield chunk
        finally:
            self._readers -= 1

    async def _events(self, view: str, tail: ViewTail, last_event_id: str) -> AsyncGenerator[bytes]:
        position = Position.parse(last_event_id)
        reason = "this id is none of this view" if last_event_id else "a new reader"
        while not self.is_stopping():
            if position is None:
                async with self._snapshot(view, reason) as snapshot:
                    position, file = snapshot
                    while chunk := await self.in_thread(partial(file.read, _CHUNK_BYTES)):
                        yield chunk
            changed = tail.changed
            found = tail.after(position)
            if found is None:
                found = await self._page(view, position)
            if found is None:
                reason = "the changes after your last event are not kept any more, or the columns of the view changed"
                position = None
            elif found:
                yield b"".join(text for _, text in found)
                position = found[-1][0]
            elif not await _set_within(changed, self._settings.heartbeat_s):
                yield events.HEARTBEAT
        yield events.bye("the server stops")

    async def _page(self, view: str, position: Position) -> list[tuple[Position, bytes]] | None:
        read = self._reader.changes
        stream, seq = position
        try:
            found = await self.in_thread(lambda: read(view, stream, seq, _PAGE_CHANGES))
        except DatabaseUnreachable:
            return []
        return None if found is None else [(Position(stream, one.seq), events.change(stream, one)) for one in found]

    @asynccontextmanager
    async def _snapshot(self, view: str, reason: str) -> AsyncIterator[tuple[Position, IO[bytes]]]:
        """Writes a snapshot to a temporary file. Waits while the view is not followed."""
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115  closed below
        try:
            while True:
                with suppress(DatabaseUnreachable):
                    async with self._snapshots:
                        position = await self.in_thread(lambda: _write_snapshot(self._reader, view, reason, file))
                    if position is not None:
                        break
                await asyncio.sleep(_POLL_AFTER_ERROR_S)
            yield position, file
        finally:
            file.close()

    @asynccontextmanager
    async def _tail(self, view: str) -> AsyncIterator[ViewTail]:
        tail = self._tails.get(view)
        if tail is None:
            tail = self._tails[view] = ViewTail(self, self._reader, view)
        tail.readers += 1
        try:
            yield tail
        finally:
            tail.readers -= 1
            if not tail.readers:
                tail.stop()
                self._tails.pop(view, None)

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        return await anyio.to_thread.run_sync(work, limiter=self._threads)


def _write_snapshot(reader: ChangeReader, view: str, reason: str, file: IO[bytes]) -> Position | None:
    file.seek(0)
    file.truncate()
    with reader.rows(view) as found:
        if found is None:
            return None
        state, rows = found
        file.write(events.begin(reason))
        count = 0
        for row in rows:
            file.write(events.snapshot_row(row))
            count += 1
        file.write(events.ready(state, count))
    file.seek(0)
    return Position(state.stream, state.last_seq)


class ViewTail:
    """The newest events of one view, for all of its readers.

    :ivar changed: set when there is something new. A reader takes it before it asks for events.
    """

    def __init__(self, feed: Feed, reader: ChangeReader, view: str) -> None:
        self._feed, self._reader, self._view = feed, reader, view
        self.readers = 0
        self.changed = asyncio.Event()
        self._recent: deque[tuple[Position, bytes]] = deque()
        self._recent_bytes = 0
        self._last: Position | None = None
        self._task = asyncio.create_task(self._run(), name=f"changes of {view}")

    def stop(self) -> None:
        self._task.cancel()

    def after(self, position: Position) -> list[tuple[Position, bytes]] | None:
        """The events after a position; None if they are not all here."""
        if position == self._last:
            return []
        if not self._recent or self._recent[0][0].stream != position.stream:
            return None
        skipped = position.seq - self._recent[0][0].seq + 1
        if not 0 <= skipped < len(self._recent):
            return None
        return [self._recent[at] for at in range(skipped, min(len(self._recent), skipped + _PAGE_CHANGES))]

    async def _run(self) -> None:
        renew: Callable[[], Awaitable[None]] = lambda: self._feed.follow(self._view)  # noqa: E731
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        is_away = False
        while True:
            try:
                await self._look()
                if loop.time() - renewed_s >= _RENEW_S:
                    renewed_s = loop.time()
                    await renew()
                is_away = False
            except ServingError as error:
                if not is_away:
                    logger.warning("readers of the changes of %s wait: %s", self._view, error)
                is_away = True
            if self._feed.is_stopping():
                self._tell()
            await asyncio.sleep(_POLL_AFTER_ERROR_S if is_away else _POLL_S)

    async def _look(self) -> None:
        found = await self._feed.in_thread(lambda: self._reader.last(self._view))
        last = None if found is None else Position(*found)
        if last is None or last == self._last:
            return
        known = self._last
        if known is not None and last.stream == known.stream:
            page = await self._feed.in_thread(
                lambda: self._reader.changes(self._view, known.stream, known.seq, _RECENT_EVENTS)
            )
            if page is not None and page:
                for one in page:
                    self._add(Position(known.stream, one.seq), events.change(known.stream, one))
                last = Position(known.stream, page[-1].seq)
        else:
            self._recent.clear()
            self._recent_bytes = 0
        self._last = last
        self._tell()

    def _add(self, position: Position, text: bytes) -> None:
        if self._recent and self._recent[-1][0] != Position(position.stream, position.seq - 1):
            self._recent.clear()
            self._recent_bytes = 0
        self._recent.append((position, text))
        self._recent_bytes += len(text)
        while len(self._recent) > _RECENT_EVENTS or (self._recent_bytes > _RECENT_BYTES and len(self._recent) > 1):
            self._recent_bytes -= len(self._recent.popleft()[1])

    def _tell(self) -> None:
        self.changed, told = asyncio.Event(), self.changed
        told.set()


async def _set_within(changed: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(changed.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
