"""A client of a znode tree in this process whose session a test can end, as ZooKeeper ends sessions that time out."""

from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import SessionListener, SessionState
from headrace.coordination.tree.host import DEFAULT_SESSION_TIMEOUT_MS, CallSoon, TreeHost, call_directly


class ExpiringCoordination(LocalCoordination):
    """Implements ``interface.Coordination``, with sessions that can be lost and started again."""

    def __init__(
        self,
        host: TreeHost,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        call_soon: CallSoon = call_directly,
    ) -> None:
        super().__init__(host, session_timeout_ms=session_timeout_ms, call_soon=call_soon)
        self._session_timeout_ms = session_timeout_ms
        self._call_soon = call_soon
        self._listeners: list[SessionListener] = []

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    def lose_session(self) -> None:
        """Ends the session as its timeout would. Calls are rejected until ``start_session``."""
        if self.session_id in self._host.tree.sessions:
            self._host.close_session(self.session_id)
        self.notify(SessionState.LOST)

    def start_session(self) -> None:
        """Starts the next session after ``lose_session``, as a client of ZooKeeper does by itself."""
        assert self.session_id not in self._host.tree.sessions, "the session is still open"
        self.session_id = self._host.open_session(self._session_timeout_ms, call_soon=self._call_soon)
        self.notify(SessionState.CONNECTED)

    def expire(self) -> None:
        """Ends the session as its timeout would, and starts the next one at once."""
        self.lose_session()
        self.start_session()

    def notify(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            self._call_soon(listener, state)
