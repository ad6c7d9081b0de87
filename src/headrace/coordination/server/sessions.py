"""Sessions of clients that talk to us over the wire: who they are, whether they are still there. No I/O.

A session outlives its connection, and us: a client that lost its connection comes back with the session's id and
password within the timeout and has its ephemeral znodes still. So the password is made from the id and a secret that is
kept beside the tree, and needs no store of its own. After a restart each session has its whole timeout again.

A session has one task on the timing wheel. Being heard of only writes down the time; when the task fires it looks
whether the silence was long enough, and if not goes to sleep for the rest. So that a request costs no timer.

When the task comes late it was us who slept (a stopped process, a slow disk), and what the clients have sent meanwhile
may not be read yet. Then, as after a restart, each session has its whole timeout again.
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
#: A task that is so late says that we were not running.
_ASLEEP_MS = 500


def _nobody() -> None:
    pass


@dataclass(slots=True, eq=False)
class Session:
    id: int
    timeout_ms: int
    heard_ms: int
    #: Closes the connection that it is attached to.
    disconnect: Callable[[], None] = _nobody
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
            self._watch_over(Session(session_id, timeout_ms, clock.monotonic_ms()))

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, timeout_ms: int, disconnect: Callable[[], None]) -> Session:
        timeout_ms = self._negotiated(timeout_ms)
        session_id = self._host.open_session(timeout_ms)
        session = Session(session_id, timeout_ms, self._clock.monotonic_ms(), disconnect)
        self._watch_over(session)
        return session

    def attach(
        self, session_id: int, password: bytes, timeout_ms: int, disconnect: Callable[[], None]
    ) -> Session | None:
        """The session, from now on on this connection and not on another; None if it is gone, or is somebody else's."""
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
        session.heard_ms = self._clock.monotonic_ms()

    def detach(self, session: Session) -> None:
        """Its connection is gone, and the watches with it: a client that comes back sets them again."""
        session.disconnect = _nobody
        self._host.tree.watches.drop_session(session.id)

    def close(self, session: Session) -> None:
        """End it; its ephemeral znodes go."""
        self._host.close_session(session.id)
        del self._by_id[session.id]
        if session.task is not None:
            session.task.cancel()

    def expire(self, session_id: int) -> bool:
        """End it at once: its client is known to be dead. Whether there was such a session."""
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
        """Nothing expires any more."""
        for session in self._by_id.values():
            if session.task is not None:
                session.task.cancel()

    def _negotiated(self, timeout_ms: int) -> int:
        return min(max(timeout_ms, self._min_timeout_ms), self._max_timeout_ms)

    def _watch_over(self, session: Session) -> None:
        self._by_id[session.id] = session
        self._schedule(session, session.timeout_ms)

    def _schedule(self, session: Session, delay_ms: int) -> None:
        if session.task is not None:
            session.task.cancel()
        session.due_ms = self._clock.monotonic_ms() + delay_ms
        session.task = self._timer.schedule(delay_ms, lambda: self._look_after(session))

    def _look_after(self, session: Session) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - session.due_ms >= _ASLEEP_MS:
            session.heard_ms = now_ms
        left_ms = session.heard_ms + session.timeout_ms - now_ms
        if left_ms > 0:
            self._schedule(session, left_ms)
            return
        try:
            self.close(session)
        except OSError:
            logger.exception("session %#x has expired and cannot be closed for now", session.id)
            self._schedule(session, _RETRY_CLOSING_MS)
            return
        self.expired_count += 1
        logger.info("session %#x has expired after %d ms of silence", session.id, session.timeout_ms)
        session.disconnect()
