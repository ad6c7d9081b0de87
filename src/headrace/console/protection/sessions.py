"""Remembers visitors by a cookie: their user, the reader of the cluster with their rights, and their CSRF token.

Sessions are in memory: a restart of the console ends them. A session ends after 12 hours, 2 hours without a
request, or with the token that its visitor logged in with.
There are at most 200; one more ends the session that was idle for longest. The cookie has a random id of 256 bits, and
scripts cannot read it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from headrace.console.cluster.reader import ClusterReader
from headrace.runtime.clock import Clock

MOST_SESSIONS = 200
IDLE_MS = 2 * 3_600_000
LONGEST_MS = 12 * 3_600_000
MOST_STREAMS = 8


@dataclass
class Session:
    """A visitor.

    :ivar user: the user of the cluster; empty if the console asks for no login.
    :ivar owns_reader: whether the reader ends with the session, because only this session uses it.
    :ivar message: a line that the next page shows once.
    :ivar ends_ms: when the login of the session ends, by the monotonic clock; None: it has no end of its own.
    :ivar streams: how many live pages the session has open.
    :ivar held_secrets: the secrets of the form that waits for confirmation; no page carries them.
    :ivar statements: the last statements of the page SQL, the newest first.
    """

    user: str
    reader: ClusterReader
    began_ms: int
    seen_ms: int
    owns_reader: bool = False
    ends_ms: int | None = None
    message: str = ""
    streams: int = 0
    held_secrets: dict[str, str] = field(default_factory=dict, repr=False)
    statements: list[str] = field(default_factory=list, repr=False)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def take_message(self) -> str:
        message, self.message = self.message, ""
        return message


class Sessions:
    """The visitors of the last hours."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def live_pages(self) -> int:
        """How many live pages are open."""
        return sum(session.streams for session in self._sessions.values())

    def find(self, session_id: str) -> Session | None:
        """Returns the session of a cookie, if it has not ended."""
        session = self._sessions.get(session_id)
        if session is None or self._has_ended(session):
            return None
        session.seen_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session.id)
        return session

    async def begin(
        self, user: str, reader: ClusterReader, *, owns_reader: bool, lasts_ms: int | None = None
    ) -> Session:
        """
        :param lasts_ms: how long the login is good, if it has an end of its own.
        """
        now_ms = self._clock.monotonic_ms()
        session = Session(user, reader, now_ms, now_ms, owns_reader, None if lasts_ms is None else now_ms + lasts_ms)
        self._sessions[session.id] = session
        for ended in [each for each in self._sessions.values() if self._has_ended(each)]:
            await self.end(ended)
        while len(self._sessions) > MOST_SESSIONS:
            await self.end(next(iter(self._sessions.values())))
        return session

    async def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        if session.owns_reader:
            await session.reader.close()

    async def close(self) -> None:
        for session in list(self._sessions.values()):
            await self.end(session)

    def _has_ended(self, session: Session) -> bool:
        now_ms = self._clock.monotonic_ms()
        if session.ends_ms is not None and now_ms >= session.ends_ms:
            return True
        return now_ms - session.seen_ms > IDLE_MS or now_ms - session.began_ms > LONGEST_MS
