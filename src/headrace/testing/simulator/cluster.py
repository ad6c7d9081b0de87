"""The simulated cluster: brokers that start, die and come back, on one loop, network and tree."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.testing.simulator.broker import PORT, SimulatedBroker, SimulatedClock
from headrace.testing.simulator.coordination import TREE, SimulatedTree
from headrace.testing.simulator.loop import SimulatedLoop
from headrace.testing.simulator.network import Network
from headrace.testing.simulator.node import Node

_EXPIRE_EVERY_S = 0.2
#: What makes a minute eventful, and the no-loss configuration of the brokers.
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


class SimulatedCluster:
    def __init__(self, seed: int, folder: Path, *, brokers: int = 3, settings: dict[str, str] | None = None) -> None:
        self.random = Random(seed)
        #: What is wrong with the tree is drawn from this alone, so that all else is as it would be without.
        self.random_of_tree = Random(f"the tree of {seed}")
        self.loop = SimulatedLoop(self.random)
        self.network = Network(self.loop, self.random)
        self.clock = SimulatedClock(self.loop)
        self.tree = SimulatedTree(self.clock, self.random_of_tree)
        self.ids = list(range(brokers))
        self.brokers: dict[int, SimulatedBroker] = {}
        self._folder = folder
        self._settings = {**_SETTINGS, **(settings or {})}
        #: All that there ever were: what a dead one has left is dropped at the end, not whenever it is collected.
        self._nodes: list[Node] = []

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{name_of(broker_id)}:{PORT}" for broker_id in self.ids)

    async def start(self) -> None:
        self._expiring = self.loop.create_task(self._expire_sessions())
        await asyncio.gather(*map(self.start_broker, self.ids))

    async def start_broker(self, broker_id: int) -> None:
        """A new life of the broker, on whatever the last one has left.

        :raises StartError: or whatever else its process would end with.
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
                "listeners": f"PLAINTEXT://{name}:{PORT}",
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
        """As by ``kill -9``; with power lost, what was not flushed may be gone."""
        broker = self.brokers.pop(broker_id)
        broker.node.crash()
        if loses_power:
            broker.simulated_disk.lose_power(self.random)

    async def stop_broker(self, broker_id: int) -> None:
        """As by SIGTERM: with a controlled shutdown."""
        broker = self.brokers[broker_id]
        with broker.node.running():
            stopping = self.loop.create_task(broker.stop())
        while not stopping.done() and not broker.node.is_dead:
            await asyncio.wait([stopping], timeout=1.0)
        if self.brokers.get(broker_id) is broker:
            del self.brokers[broker_id]
        broker.node.crash()

    def close(self) -> None:
        """All are dead, and what they were about to do is dropped without a word."""
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
