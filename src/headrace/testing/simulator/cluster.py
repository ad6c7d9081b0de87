"""The simulated cluster: starts, crashes, stops and restarts brokers on one loop, one network and one znode tree."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.testing.simulator.broker import PORT, SimulatedBroker, SimulatedClock
from headrace.testing.simulator.coordination import TREE, SimulatedTree
from headrace.testing.simulator.loop import SimulatedLoop
from headrace.testing.simulator.network import Network
from headrace.testing.simulator.node import Node

_EXPIRE_EVERY_S = 0.2
#: Short timeouts, so that much happens in a simulated minute; and the configuration with which brokers lose nothing.
_SETTINGS = {
    "zookeeper.connect": TREE,
    "zookeeper.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "2500",
    "replica.fetch.wait.max.ms": "200",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.enable": "true",
    "leader.imbalance.check.interval.seconds": "3",
    "log.cleaner.enable": "false",
}
_USERS = 'username="broker" password="b" user_broker="b" user_client="c"'
#: Brokers and clients log in, and have to do so again before three seconds are over.
_LOGINS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};",
    "connections.max.reauth.ms": "3000",
}
_LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "client",
    "sasl_password": "c",
}


class SimulatedCluster:
    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        has_logins: bool = False,
    ) -> None:
        """
        :param has_logins: brokers and clients log in by SASL, and again every few seconds.
        """
        self.random = Random(seed)
        #: Faults of the tree draw from this stream only, so that they do not change what the seed does otherwise.
        self.tree_random = Random(f"the tree of {seed}")
        self.loop = SimulatedLoop(self.random)
        self.network = Network(self.loop, self.random)
        self.clock = SimulatedClock(self.loop)
        self.tree = SimulatedTree(self.clock, self.tree_random)
        self.ids = list(range(brokers))
        self.brokers: dict[int, SimulatedBroker] = {}
        self._folder = folder
        self._protocol = "SASL_PLAINTEXT" if has_logins else "PLAINTEXT"
        self._settings = {**_SETTINGS, **(_LOGINS if has_logins else {}), **(settings or {})}
        #: The options with which clients connect.
        self.client_options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            **(_LOGIN if has_logins else {}),
        }
        #: All nodes, also crashed ones: their tasks are closed at the end, not when the garbage collector finds them.
        self._nodes: list[Node] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{name_of(broker_id)}:{PORT}" for broker_id in self.ids)

    async def start(self) -> None:
        self._expiring = self.loop.create_task(self._expire_sessions())
        await asyncio.gather(*map(self.start_broker, self.ids))

    async def start_broker(self, broker_id: int) -> None:
        """Starts a broker on the data that its last run has left.

        :raises StartError: or any other error with which the process of a broker would end.
        """
        name = name_of(broker_id)
        node = Node(name)
        self._nodes.append(node)
        config = BrokerConfig.load(
            {
                **self._settings,
                "broker.id": str(broker_id),
                "broker.rack": f"rack-{broker_id}",
                "log.dirs": str(self._folder / name),
                "listeners": f"{self._protocol}://{name}:{PORT}",
            }
        )
        with node.running():
            broker = SimulatedBroker(node, config, self.network, self.tree, self.random)
            starting = self.loop.create_task(broker.start())
        self.brokers[broker_id] = broker
        while not starting.done() and not node.is_dead:
            await asyncio.wait([starting], timeout=1.0)
        if starting.done():
            starting.result()

    def crash(self, broker_id: int, *, loses_power: bool = False) -> None:
        """Ends a broker as ``kill -9`` does. If its host loses power, writes that were not flushed may be lost."""
        broker = self.brokers.pop(broker_id)
        broker.node.crash()
        if loses_power:
            broker.simulated_disk.lose_power(self.random)

    async def stop_broker(self, broker_id: int) -> None:
        """Stops a broker by a controlled shutdown, as SIGTERM does."""
        broker = self.brokers[broker_id]
        with broker.node.running():
            stopping = self.loop.create_task(broker.stop())
        while not stopping.done() and not broker.node.is_dead:
            await asyncio.wait([stopping], timeout=1.0)
        if self.brokers.get(broker_id) is broker:
            del self.brokers[broker_id]
        broker.node.crash()

    def close(self) -> None:
        """Ends all brokers, and closes their tasks without warnings."""
        for node in self._nodes:
            node.crash()
        left = [*asyncio.all_tasks(self.loop), *(task for node in self._nodes for task in node.tasks)]
        self.loop.close()
        for task in dict.fromkeys(left):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if (coroutine := task.get_coro()) is not None:
                with suppress(BaseException):
                    coroutine.close()

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_S)
            self.tree.expire_sessions()


def name_of(broker_id: int) -> str:
    return f"broker-{broker_id}"
