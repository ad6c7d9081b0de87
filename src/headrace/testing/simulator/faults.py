"""Faults from a seed: what is done to a cluster, and when.

One broker at a time is out of order in a way that takes a replica from its partitions, so that with three replicas and
two in sync nothing acknowledged may be lost: that is the promise that is tested. What comes on top of that are faults
that take nothing away: late messages, broken connections, lost sessions, clocks that jump.

Power is lost only where all replicas are in sync: a host that loses what it had not flushed counts as one that is out
of order until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.coordination.paths import CONTROLLER, partition_state_path
from headrace.coordination.znodes import PartitionState
from headrace.testing.simulator.cluster import SimulatedCluster, name_of
from headrace.testing.simulator.coordination import TREE
from headrace.testing.simulator.history import History, Partition

_LONGEST_PAUSE_S = 8.0


class Faults:
    def __init__(self, cluster: SimulatedCluster, history: History, partitions: list[Partition]) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._history = history
        self._partitions = partitions
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self._crash,
            self._crash,
            self._lose_power,
            self._stop,
            self._pause,
            self._isolate,
            self._cut_one_way,
            self._cut_from_tree,
            self._expire,
            self._late_messages,
            self._reset_connections,
            self._jump_clock,
            self._delete_controller,
        ]

    async def run(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(self._random.uniform(0.2, 3.0))
            await self._random.choice(self._kinds)()

    def _note(self, what: str) -> None:
        self._history.note(self._cluster.loop.time(), what)

    def _any(self) -> int:
        return self._random.choice(sorted(self._cluster.brokers))

    async def _a_while(self) -> None:
        await asyncio.sleep(self._random.uniform(0.1, _LONGEST_PAUSE_S))

    # -- one broker out of order

    async def _crash(self) -> None:
        broker_id = self._any()
        self._note(f"{broker_id} is killed")
        self._cluster.crash(broker_id)
        await self._a_while()
        await self._restart(broker_id)

    async def _lose_power(self) -> None:
        if not self.is_all_in_sync():
            return
        broker_id = self._any()
        self._note(f"{broker_id} loses its power")
        self._cluster.crash(broker_id, loses_power=True)
        await self._a_while()
        await self._restart(broker_id)
        await self.until_in_sync()

    async def _stop(self) -> None:
        broker_id = self._any()
        self._note(f"{broker_id} is stopped")
        await self._cluster.stop_broker(broker_id)
        await self._a_while()
        await self._restart(broker_id)

    async def _restart(self, broker_id: int) -> None:
        self._note(f"{broker_id} is started")
        await self._cluster.start_broker(broker_id)

    async def _pause(self) -> None:
        broker_id = self._any()
        self._note(f"{broker_id} is paused")
        node = self._cluster.brokers[broker_id].node
        node.pause()
        await self._a_while()
        self._note(f"{broker_id} goes on")
        node.resume()

    async def _isolate(self) -> None:
        broker_id = self._any()
        self._note(f"{broker_id} is cut off")
        others = [name_of(other) for other in self._cluster.ids]
        self._cluster.network.isolate(name_of(broker_id), [*others, TREE, "client"])
        await self._a_while()
        self._mend()

    async def _cut_one_way(self) -> None:
        source, target = self._random.sample([name_of(one) for one in self._cluster.ids], 2)
        self._note(f"nothing gets from {source} to {target}")
        self._cluster.network.cut(source, target)
        await self._a_while()
        self._mend()

    async def _cut_from_tree(self) -> None:
        broker_id = self._any()
        self._note(f"{broker_id} cannot reach the tree")
        self._cluster.network.isolate(name_of(broker_id), [TREE])
        await self._a_while()
        self._mend()

    def _mend(self) -> None:
        self._note("the network is whole")
        self._cluster.network.mend()

    # -- what takes nothing away

    async def _expire(self) -> None:
        broker_id = self._any()
        self._note(f"the session of {broker_id} ends")
        session_id = self._cluster.brokers[broker_id].coordination.session_id
        if session_id in self._cluster.tree.tree.sessions:
            self._cluster.tree.close_session(session_id)

    async def _late_messages(self) -> None:
        self._note("messages are late")
        self._cluster.network.late_share = self._random.uniform(0.01, 0.2)
        await self._a_while()
        self._cluster.network.late_share = 0.0

    async def _reset_connections(self) -> None:
        self._note("connections are reset")
        self._cluster.network.reset_some(self._random.uniform(0.1, 1.0))

    async def _jump_clock(self) -> None:
        broker_id = self._any()
        jump_ms = self._random.randint(-60_000, 60_000)
        self._note(f"the clock of {broker_id} jumps by {jump_ms} ms")
        self._cluster.brokers[broker_id].simulated_clock.wall_error_ms += jump_ms

    async def _delete_controller(self) -> None:
        self._note("/controller is deleted by hand")
        tree = self._cluster.tree
        for session_id in list(tree.tree.sessions)[:1]:
            from headrace.coordination.interface import CoordinationError, Delete

            with suppress(CoordinationError):
                tree.submit(session_id, [Delete(CONTROLLER)])

    # -- being whole

    def is_all_in_sync(self) -> bool:
        if len(self._cluster.brokers) < len(self._cluster.ids):
            return False
        tree = self._cluster.tree.tree
        for partition in self._partitions:
            path = partition_state_path(*partition)
            if tree.exists(path) is None:
                return False
            state = PartitionState.from_json(tree.get(path)[0])
            leader = self._cluster.brokers.get(state.leader)
            if leader is None or len(state.isr) < len(self._cluster.ids):
                return False
            replica = leader.partitions.get(*partition)
            if replica is None or not replica.is_leader or replica.leader_epoch != state.leader_epoch:
                return False
        return True

    async def until_in_sync(self, within_s: float = 120.0) -> None:
        """
        :raises TimeoutError: if some replica does not come back.
        """
        async with asyncio.timeout(within_s):
            while not self.is_all_in_sync():  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.1)
