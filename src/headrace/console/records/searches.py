"""Keeps the searches that pages follow, and bounds how many run at once.

A search belongs to a session and to the parameters of its page: who opens the page again, or follows it live, sees the
same search. A search whose page nobody has read for a while stops. Its result is kept for some minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from headrace.client.errors import HeadraceError
from headrace.console.problems import TooMany
from headrace.console.records.batches import RawRecord
from headrace.console.records.rows import RecordRow
from headrace.console.records.search import Search
from headrace.event_loop import cancel_and_wait

MOST_RUNNING, MOST_RUNNING_PER_SESSION = 4, 2
MOST_KEPT = 24
_KEPT_SECONDS = 300.0
_UNREAD_SECONDS = 15.0


@dataclass
class FollowedSearch:
    """A search that runs in the background, and the rows that it has found."""

    session_id: str
    search: Search
    make_row: Callable[[RawRecord], RecordRow]
    rows: list[RecordRow] = field(default_factory=list)
    problem: str = ""
    read_at: float = 0.0
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def wait(self, seconds: float) -> None:
        """Returns when the search has ended, or the time is up."""
        if self.task is not None:
            await asyncio.wait([self.task], timeout=seconds)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for some in self.search.found():
                self.rows += await asyncio.to_thread(lambda: [self.make_row(record) for record in some])  # noqa: B023
                if loop.time() - self.read_at > _UNREAD_SECONDS:
                    self.search.stop()
        except HeadraceError as error:
            self.problem = str(error)


class Searches:
    """The searches of one console."""

    def __init__(self) -> None:
        self._searches: dict[Hashable, FollowedSearch] = {}

    @property
    def running(self) -> int:
        """How many searches are running."""
        return sum(each.is_running for each in self._searches.values())

    def find(self, key: Hashable) -> FollowedSearch | None:
        """The search with a key, if it is still kept. It counts as read."""
        self._forget_old()
        found = self._searches.get(key)
        if found is not None:
            found.read_at = asyncio.get_running_loop().time()
        return found

    def check_room(self, session_id: str) -> None:
        """
        :raises TooMany: if too many searches run.
        """
        running = [each for each in self._searches.values() if each.is_running]
        if self.running >= MOST_RUNNING:
            raise TooMany(f"{MOST_RUNNING} searches are running on this console")
        if sum(each.session_id == session_id for each in running) >= MOST_RUNNING_PER_SESSION:
            raise TooMany(f"{MOST_RUNNING_PER_SESSION} searches of this session are running")

    def begin(self, key: Hashable, made: FollowedSearch) -> FollowedSearch:
        """Starts a search.

        :raises TooMany: if too many searches run.
        """
        self.check_room(made.session_id)
        self._forget_old()
        while len(self._searches) >= MOST_KEPT:
            oldest = min(self._ended(), key=lambda each: self._searches[each].read_at)
            del self._searches[oldest]
        made.read_at = asyncio.get_running_loop().time()
        made.task = asyncio.ensure_future(made.run())
        self._searches[key] = made
        return made

    def forget(self, key: Hashable) -> None:
        self._searches.pop(key, None)

    async def close(self) -> None:
        await cancel_and_wait([each.task for each in self._searches.values() if each.task is not None])
        self._searches.clear()

    def _ended(self) -> list[Hashable]:
        return [key for key, each in self._searches.items() if not each.is_running]

    def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        for key in self._ended():
            if now - self._searches[key].read_at > _KEPT_SECONDS:
                del self._searches[key]
