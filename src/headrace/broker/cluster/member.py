"""A broker as a member of a cluster: what it has beside its logs and its listeners, and in which order that comes up.

Start: a session with ZooKeeper; who we are (``membership.py``); settings (``config_changes.py``); then, with the logs
open and connections accepted, replicas, the registration, and the controller, which may be ours. Only with the
registration do others hear of us, and only with the first UpdateMetadata do we hear of them: then the broker is ready,
and clients that came before are answered.

When a session is lost the controller resigns and, in the next session, has us registered again before it stands for
election: other brokers take us for dead in between, and so does this one's ``broker_epoch``.

Stop: the controller is asked to move our leaderships away (ControlledShutdown) while we still serve. Then fetchers end,
and the session, before the logs are closed: flushing takes time, in which nobody should wait for us to follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.cluster.channel import BrokerChannel
from headrace.broker.cluster.config_changes import ConfigChanges
from headrace.broker.cluster.controlled_shutdown import hand_over
from headrace.broker.cluster.links import Address, Links
from headrace.broker.cluster.membership import Membership
from headrace.broker.cluster.topics import ClusterTopics
from headrace.broker.cluster.unenforced_rules import warn_of_unenforced_rules
from headrace.broker.coordinators.producer_ids import ProducerIds
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.broker.start_error import StartError
from headrace.controller.controller import Controller, ControllerSettings
from headrace.coordination.interface import Coordination, CoordinationError, NodeExistsError, SessionState
from headrace.coordination.paths import DEFAULT_ENTITY
from headrace.coordination.znodes import MalformedZnodeError
from headrace.protocol.errors import StaleBrokerEpoch, StaleControllerEpoch

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

#: As a broker's epoch in a request: it does not say (KIP-380).
ANY_BROKER_EPOCH = -1
_NO_SESSION = -1
#: How long a broker that is registered waits to hear of the others before it says that it is ready.
_FIRST_METADATA_WAIT_S = 15.0


@dataclass(slots=True)
class SessionCounts:
    """What has become of our sessions with ZooKeeper, since the start."""

    disconnects: int = 0
    expires: int = 0
    connects: int = 0


class ClusterMember:
    coordination: Coordination
    membership: Membership
    configs: ConfigChanges
    topics: ClusterTopics
    links: Links
    channel: BrokerChannel
    controller: Controller
    replicas: ReplicaManager

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: All of the above is there.
        self.is_open = False
        #: The newest that any request came with.
        self.controller_epoch = 0
        self.session_counts = SessionCounts()
        #: With ZooKeeper.
        self.session_state = SessionState.CONNECTED
        self._has_metadata = asyncio.Event()

    # -- start

    async def join(self) -> None:
        broker = self._broker
        try:
            self.coordination = broker.coordination = await broker.connect_to_tree()
            self.membership = Membership(broker, self.coordination)
            await self.membership.settle()
            self.configs = ConfigChanges(broker)
            await self.configs.load()
            await warn_of_unenforced_rules(self.coordination)
        except (CoordinationError, MalformedZnodeError) as error:
            raise StartError(str(error)) from None
        broker.producer_ids = ProducerIds(self.coordination, broker.broker_id)
        self.topics = broker.topics = ClusterTopics(broker, self.configs)

    async def open(self) -> None:
        broker, config = self._broker, self._broker.config
        try:
            await self.membership.end_earlier_life()
        except CoordinationError as error:
            raise StartError(f"what an earlier life has registered cannot be looked at: {error}") from None
        self.links = Links(
            self._address_of,
            broker.clock,
            client_id=f"broker-{broker.broker_id}",
            request_timeout_ms=config.int("replica.socket.timeout.ms"),
        )
        self.replicas = ReplicaManager(broker)
        self.channel = BrokerChannel(
            listener=config.listeners.inter_broker,
            client_id=f"controller-{broker.broker_id}",
            timeout_ms=config.int("controller.socket.timeout.ms"),
        )
        self.controller = Controller(
            broker.broker_id,
            self.coordination,
            broker.clock,
            broker.timer,
            self.channel,
            self._controller_settings(),
            register=self._register,
        )
        self.channel.on_answer = self.controller.on_response
        self.is_open = True

    async def enter(self) -> None:
        self.replicas.start()
        self.configs.start()
        self.coordination.add_session_listener(self._session_changed)
        await self.controller.start(registered_in=await self._register_first())
        try:
            await asyncio.wait_for(self._has_metadata.wait(), _FIRST_METADATA_WAIT_S)
        except TimeoutError:
            logger.warning("no controller has told us of the other brokers yet")

    def _controller_settings(self) -> ControllerSettings:
        config = self._broker.config
        return ControllerSettings(
            auto_leader_rebalance_enable=config.bool("auto.leader.rebalance.enable"),
            leader_imbalance_check_interval_seconds=config.int("leader.imbalance.check.interval.seconds"),
            leader_imbalance_per_broker_percentage=config.int("leader.imbalance.per.broker.percentage"),
            delete_topic_enable=config.bool("delete.topic.enable"),
            is_unclean_by_default=lambda: config.bool("unclean.leader.election.enable"),
        )

    async def _register_first(self) -> int:
        """The session in which we are registered; another one by now if it was lost meanwhile."""
        session_id = self.coordination.session_id
        try:
            await self._register()
        except NodeExistsError:
            raise StartError(f"another broker with the id {self._broker.broker_id} has just registered") from None
        except CoordinationError as error:
            logger.warning("the registration is left to the next session: %s", error)
            return _NO_SESSION
        return session_id

    async def _register(self) -> None:
        await self.membership.register()

    def _session_changed(self, state: SessionState) -> None:
        counts, self.session_state = self.session_counts, state
        if state is SessionState.CONNECTED:
            logger.info("connected to ZooKeeper again, in session %#x", self.coordination.session_id)
            counts.connects += 1
            self.configs.read_again()
        elif state is SessionState.SUSPENDED:
            logger.warning("the connection to ZooKeeper is lost; it is tried again")
            counts.disconnects += 1
        else:
            counts.expires += 1

    def _address_of(self, broker_id: int) -> Address | None:
        node = self._broker.metadata.nodes.get(broker_id)
        return None if node is None or node.port < 0 else (node.host, node.port)

    @property
    def is_connected(self) -> bool:
        """To ZooKeeper."""
        return self.session_state is SessionState.CONNECTED

    # -- what requests of the controller are checked against, and what they bring

    @property
    def broker_epoch(self) -> int:
        return self.membership.broker_epoch

    def check_controller(self, controller_epoch: int) -> None:
        """A request of a controller: one that has been replaced is refused, a newer one remembered.

        :raises StaleControllerEpoch: if we have heard from a later one.
        """
        if controller_epoch < self.controller_epoch:
            raise StaleControllerEpoch(f"the controller's epoch is {self.controller_epoch}, not {controller_epoch}")
        self.controller_epoch = controller_epoch

    def check_broker_epoch(self, epoch: int) -> None:
        """A request that was meant for an earlier life of this broker is refused (KIP-380).

        :raises StaleBrokerEpoch: if it was.
        """
        if epoch != ANY_BROKER_EPOCH and epoch < self.broker_epoch:
            raise StaleBrokerEpoch(f"this broker's epoch is {self.broker_epoch}, not {epoch}")

    def metadata_updated(self, topics: Sequence[str]) -> None:
        """The metadata cache is new as to brokers, and as to these topics."""
        if self._broker.broker_id in self._broker.metadata.nodes:
            self._has_metadata.set()
        self.topics.changed(topics)

    # -- settings

    async def refresh_topics(self) -> None:
        self.replicas.defaults_changed()

    async def log_dir_failed(self) -> None:
        self.replicas.log_dirs_failed()

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        await self.configs.write("brokers", name or DEFAULT_ENTITY, configs)

    async def set_group_configs(self, entity: str, configs: Mapping[str, str]) -> None:
        await self.configs.write("groups", entity, configs)

    # -- stop

    async def leave(self) -> None:
        if self._broker.config.bool("controlled.shutdown.enable"):
            self.replicas.leave()
            await hand_over(self._broker)

    async def depart(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        await self.replicas.close()
        await self.controller.stop()
        await self.coordination.close()
        self.channel.close()
        await self.channel.wait_closed()
        await self.configs.stop()
        await self.links.close()

    async def close(self) -> None:
        await self.depart()
        if hasattr(self, "coordination"):
            await self.coordination.close()
