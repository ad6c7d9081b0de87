"""The sessions of clients that are connected over the network: their passwords and their timeouts. No I/O.

A session outlives its connection, and a restart of the server. A client that lost its connection reconnects with the id
and the password of the session within the timeout, and still has its ephemeral znodes. The password is computed from
the id and a secret that is stored beside the tree, so passwords need no store of their own. After a restart of the
server, every session has its whole timeout again.

A session has one task on the timing wheel. A request only records the time. When the task fires, it checks how long the
session had no request. If the timeout is not over, the task is scheduled again for the rest. So a request costs no
timer.

If the task fires late, the server itself was not running (a stopped process, a slow disk), and requests of clients may
not be read yet. Then, as after a restart, the session has its whole timeout again.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from logging import getLogger

from headrace.coordination.tree.host import TreeHost
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer, TimerTask

logger = getLogger(__name__)

PASSWORD_BYTES = 16
_RETRY_CLOSING_MS = 1_000
#: A task that is this late shows that the server itself was not running.
_SERVER_PAUSE_MS = 500


def _not_connected() -> None:
    pass


@dataclass(slots=True, eq=False)
class Session:
    id: int
    timeout_ms: int
    last_request_ms: int
    #: Closes the connection of the session.
    disconnect: Callable[[], None] = _not_connected
    task: TimerTask | None = None
    due_ms: int = 0


class Sessions:
    def __init__(
        self, host: TreeHost, clock: Clock, timer: Timer, *, secret: bytes, min_timeout_ms: int, max_timeout_ms: int
    ) -> None:
        self._host = host
        self._clock = clock
        self._timer = timer
        self._secret = secret
        self._min_timeout_ms = min_timeout_ms
        self._max_timeout_ms = max_timeout_ms
        self._by_id: dict[int, Session] = {}
        self.expired_count = 0
        for session_id, timeout_ms in host.tree.sessions.items():
            host.resume_session(session_id)
            self._add(Session(session_id, timeout_ms, clock.monotonic_ms()))

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, timeout_ms: int, disconnect: Callable[[], None]) -> Session:
        timeout_ms = self._negotiated(timeout_ms)
        session_id = self._host.open_session(timeout_ms)
        session = Session(session_id, timeout_ms, self._clock.monotonic_ms(), disconnect)
        self._add(session)
        return session

    def attach(
        self, session_id: int, password: bytes, timeout_ms: int, disconnect: Callable[[], None]
    ) -> Session | None:
        """Moves a session to a new connection; None if the session has expired or the password is wrong."""
        session = self._by_id.get(session_id)
        if session is None or not hmac.compare_digest(password, self.password(session_id)):
            return None
        session.disconnect()
        session.disconnect = disconnect
        session.timeout_ms = self._negotiated(timeout_ms)
        self.touch(session)
        self._schedule(session, session.timeout_ms)
        return session

    def touch(self, session: Session) -> None:
        session.last_request_ms = self._clock.monotonic_ms()

    def detach(self, session: Session) -> None:
        """Removes the connection and the watches of a session. A client that reconnects sets its watches again."""
        session.disconnect = _not_connected
        self._host.tree.watches.drop_session(session.id)

    def close(self, session: Session) -> None:
        """Ends a session. Its ephemeral znodes are deleted."""
        self._host.close_session(session.id)
        del self._by_id[session.id]
        if session.task is not None:
            session.task.cancel()

    def expire(self, session_id: int) -> bool:
        """Ends a session at once, because its client is dead. Returns whether the session existed."""
        session = self._by_id.get(session_id)
        if session is None:
            return False
        self.close(session)
        self.expired_count += 1
        session.disconnect()
        return True

    def password(self, session_id: int) -> bytes:
        return hmac.digest(self._secret, session_id.to_bytes(8, "big"), "sha256")[:PASSWORD_BYTES]

    def stop(self) -> None:
        """Stops all timeouts. The sessions stay open."""
        for session in self._by_id.values():
            if session.task is not None:
                session.task.cancel()

    def _negotiated(self, timeout_ms: int) -> int:
        return min(max(timeout_ms, self._min_timeout_ms), self._max_timeout_ms)

    def _add(self, session: Session) -> None:
        self._by_id[session.id] = session
        self._schedule(session, session.timeout_ms)

    def _schedule(self, session: Session, delay_ms: int) -> None:
        if session.task is not None:
            session.task.cancel()
        session.due_ms = self._clock.monotonic_ms() + delay_ms
        session.task = self._timer.schedule(delay_ms, lambda: self._check_timeout(session))

    def _check_timeout(self, session: Session) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - session.due_ms >= _SERVER_PAUSE_MS:
            session.last_request_ms = now_ms
        left_ms = session.last_request_ms + session.timeout_ms - now_ms
        if left_ms > 0:
            self._schedule(session, left_ms)
            return
        try:
            self.close(session)
        except OSError:
            logger.exception(
                "cannot write the end of the expired session %#x; the next attempt is in %d ms",
                session.id,
                _RETRY_CLOSING_MS,
            )
            self._schedule(session, _RETRY_CLOSING_MS)
            return
        self.expired_count += 1
        logger.info("session %#x has expired: no request for %d ms", session.id, session.timeout_ms)
        session.disconnect()
