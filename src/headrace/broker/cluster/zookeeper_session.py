"""The state of the session with ZooKeeper, and how often it has changed, for metrics and for a controlled shutdown."""

from __future__ import annotations

from dataclasses import dataclass
from logging import getLogger

from headrace.coordination.interface import Coordination, SessionState

logger = getLogger(__name__)


@dataclass(slots=True)
class SessionCounts:
    """How often the session's state has changed since the start."""

    disconnects: int = 0
    expires: int = 0
    connects: int = 0


class ZookeeperSession:
    def __init__(self, coordination: Coordination) -> None:
        self.counts = SessionCounts()
        self.state = SessionState.CONNECTED
        self._coordination = coordination

    @property
    def is_connected(self) -> bool:
        return self.state is SessionState.CONNECTED

    def start(self) -> None:
        self._coordination.add_session_listener(self._changed)

    def _changed(self, state: SessionState) -> None:
        self.state = state
        if state is SessionState.CONNECTED:
            logger.info("connected to ZooKeeper again, in session %#x", self._coordination.session_id)
            self.counts.connects += 1
        elif state is SessionState.SUSPENDED:
            logger.warning("the connection to ZooKeeper is lost, trying again")
            self.counts.disconnects += 1
        else:
            self.counts.expires += 1
