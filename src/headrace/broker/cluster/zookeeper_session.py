"""Opens the session with ZooKeeper, and holds its state, for metrics and for a controlled shutdown."""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.metrics.cluster_counts import SessionCounts
from headrace.broker.start_error import StartError
from headrace.coordination.interface import Coordination, SessionState
from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

logger = getLogger(__name__)


async def connect_to_zookeeper(config: BrokerConfig) -> Coordination:
    """Opens a session with the ZooKeeper that the settings name.

    :raises CoordinationError: if ZooKeeper does not answer.
    :raises StartError: if the settings of the connection cannot be used.
    """
    from headrace.coordination.client.client_security import SETTINGS, ClientSecurity
    from headrace.coordination.client.zookeeper_client import ZookeeperCoordination

    try:
        security = ClientSecurity.from_settings({name: config[name] for name in SETTINGS})
    except ConfigError as error:
        raise StartError(str(error)) from None

    session_timeout_ms = config.int("zookeeper.session.timeout.ms")
    return await ZookeeperCoordination.connect(
        config.str("zookeeper.connect"),
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=config.optional_int("zookeeper.connection.timeout.ms") or session_timeout_ms,
        security=security,
    )


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
