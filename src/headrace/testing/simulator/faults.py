"""Draws faults from a seed and applies them to a simulated cluster.

Two faults run at a time, on different brokers. A process that is killed, paused or isolated loses no data, so two of
three brokers may be down at once: then no record is acknowledged, and no acknowledged record is lost. Only one fault
destroys data: a host that loses power loses the writes that it had not flushed. The cluster survives that only on one
broker at a time, while the others are in sync. So power is lost only when all replicas are in sync and no other fault
runs, and no other fault begins until all replicas are in sync again.

In half of the simulations the znode tree fails, too: no broker reaches it, or it refuses some requests. These faults
draw from a random stream of their own, so that they do not change the other faults of a seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from headrace.broker.start_error import StartError
from headrace.coordination.interface import CoordinationError, Delete
from headrace.coordination.paths import CONTROLLER, partition_state_path
from headrace.coordination.znodes import ControllerRegistration, PartitionState
from headrace.testing.simulator.cluster import SimulatedCluster, name_of
from headrace.testing.simulator.coordination import TREE
from headrace.testing.simulator.history import History, Partition

_LONGEST_PAUSE_S = 4.0
#: How many faults of the tree a simulation may have, the longest time between them, and the largest share of requests
#: that the tree refuses.
_TREE_FAULTS, _LONGEST_CALM_S, _LARGEST_ERROR_SHARE = (0, 0, 0, 1, 2, 3), 5.0, 0.3


class Faults:
    def __init__(self, cluster: SimulatedCluster, history: History, partitions: list[Partition]) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._history = history
        self._partitions = partitions
        #: Brokers with a fault that has not ended.
        self._busy_brokers: set[int | None] = set()
        self._may_begin_fault = asyncio.Event()
        self._may_begin_fault.set()
        self._broker_faults: list[Callable[[], Awaitable[None]]] = [
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
            self._late_controller,
        ]
        self._tree_faults: list[Callable[[], Awaitable[None]]] = [
            self._cut_all_from_tree,
            self._lose_quorum,
            self._refuse_requests,
        ]
        self._is_tree_faulty = False

    async def run(self, count: int) -> None:
        sequences = [self._run_sequence(count - count // 2), self._run_sequence(count // 2)]
        if tree_faults := self._cluster.tree_random.choice(_TREE_FAULTS):
            sequences.append(self._run_tree_faults(tree_faults))
        await asyncio.gather(*sequences)

    async def _run_sequence(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(self._random.uniform(0.1, 1.0))
            await self._may_begin_fault.wait()
            await self._random.choice(self._broker_faults)()

    def _note(self, what: str) -> None:
        self._history.note(self._cluster.loop.time(), what)

    @contextmanager
    def _choose_broker(self) -> Iterator[int | None]:
        """Chooses a broker that has no fault, and reserves it; None if there is none."""
        free = [one for one in sorted(self._cluster.brokers) if one not in self._busy_brokers]
        broker_id = self._random.choice(free) if free else None
        if broker_id is not None:
            self._busy_brokers.add(broker_id)
        try:
            yield broker_id
        finally:
            self._busy_brokers.discard(broker_id)

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.uniform(0.05, _LONGEST_PAUSE_S))

    # -- faults of one broker

    async def _crash(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is killed")
                self._cluster.crash(broker_id)
                await self._wait()
                await self._restart(broker_id)

    async def _lose_power(self) -> None:
        if self._busy_brokers or self._is_tree_faulty or not self.is_all_in_sync():
            return
        self._may_begin_fault.clear()
        with self._choose_broker() as broker_id:
            assert broker_id is not None
            self._note(f"{broker_id} loses power")
            self._cluster.crash(broker_id, loses_power=True)
            await self._wait()
            await self._restart(broker_id)
            await self.until_in_sync()
        self._may_begin_fault.set()

    async def _stop(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is stopped")
                await self._cluster.stop_broker(broker_id)
                await self._wait()
                await self._restart(broker_id)

    async def _restart(self, broker_id: int) -> None:
        """Starts a broker, again and again if it ends at once, as a supervisor of processes does."""
        while True:
            self._note(f"{broker_id} is started")
            try:
                return await self._cluster.start_broker(broker_id)
            except StartError as error:
                self._note(f"{broker_id} does not start: {error!r}")
                self._cluster.crash(broker_id)
                await self._wait()

    async def _pause(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is paused")
                node = self._cluster.brokers[broker_id].node
                node.pause()
                await self._wait()
                self._note(f"{broker_id} resumes")
                node.resume()

    async def _isolate(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is isolated")
                others = [name_of(other) for other in self._cluster.ids]
                self._cluster.network.isolate(name_of(broker_id), [*others, TREE, "client"])
                await self._wait()
                self._heal_network()

    async def _cut_one_way(self) -> None:
        source, target = self._random.sample([name_of(one) for one in self._cluster.ids], 2)
        self._note(f"no message gets from {source} to {target}")
        self._cluster.network.cut(source, target)
        await self._wait()
        self._heal_network()

    async def _cut_from_tree(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} cannot reach the tree")
                self._cluster.network.isolate(name_of(broker_id), [TREE])
                await self._wait()
                self._heal_network()

    def _heal_network(self) -> None:
        self._note("the network is healed")
        self._cluster.network.heal()

    # -- faults that stop no broker

    async def _expire(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                self._end_session(broker_id)

    async def _late_messages(self) -> None:
        self._note("messages are late")
        self._cluster.network.late_share = self._random.uniform(0.01, 0.2)
        await self._wait()
        self._cluster.network.late_share = 0.0

    async def _reset_connections(self) -> None:
        self._note("connections are reset")
        self._cluster.network.reset_some(self._random.uniform(0.1, 1.0))

    async def _jump_clock(self) -> None:
        with self._choose_broker() as broker_id:
            if broker_id is not None:
                jump_ms = self._random.randint(-60_000, 60_000)
                self._note(f"the clock of {broker_id} jumps by {jump_ms} ms")
                self._cluster.brokers[broker_id].simulated_clock.wall_error_ms += jump_ms

    async def _delete_controller(self) -> None:
        self._note("/controller is deleted by hand")
        tree = self._cluster.tree
        for session_id in list(tree.tree.sessions)[:1]:
            with suppress(CoordinationError):
                tree.submit(session_id, [Delete(CONTROLLER)])

    async def _late_controller(self) -> None:
        """Delays the requests of a controller to one broker until another controller has sent different ones."""
        tree = self._cluster.tree.tree
        if tree.exists(CONTROLLER) is None:
            return
        controller = ControllerRegistration.from_json(tree.get(CONTROLLER)[0]).broker_id
        others = [one for one in self._cluster.ids if one != controller]
        listener = self._random.choice(others)
        self._note(f"{listener} receives the requests of controller {controller} late")
        self._cluster.network.cut(name_of(controller), name_of(listener))
        for broker_id in self._random.sample(self._cluster.ids, 2):
            self._end_session(broker_id)
            await asyncio.sleep(self._random.uniform(0.05, 0.5))
        self._note(f"{controller} cannot reach the tree")
        self._cluster.network.isolate(name_of(controller), [TREE])
        await asyncio.sleep(self._random.uniform(2.0, 4.0))
        self._heal_network()

    def _end_session(self, broker_id: int) -> None:
        broker = self._cluster.brokers.get(broker_id)
        tree = None if broker is None else broker.tree
        if tree is not None and tree.session_id in self._cluster.tree.tree.sessions:
            self._note(f"the session of {broker_id} ends")
            self._cluster.tree.close_session(tree.session_id)

    # -- faults of the tree

    async def _run_tree_faults(self, count: int) -> None:
        random = self._cluster.tree_random
        for _ in range(count):
            await asyncio.sleep(random.uniform(0.1, _LONGEST_CALM_S))
            await self._may_begin_fault.wait()
            self._is_tree_faulty = True
            await random.choice(self._tree_faults)()
            self._is_tree_faulty = False

    async def _wait_with_tree(self) -> None:
        await asyncio.sleep(self._cluster.tree_random.uniform(0.05, _LONGEST_PAUSE_S))

    async def _cut_all_from_tree(self) -> None:
        """Cuts all brokers off from the tree. After the session timeout all sessions expire."""
        self._note("no broker can reach the tree")
        self._cluster.tree.is_cut_off = True
        await self._wait_with_tree()
        self._note("the brokers can reach the tree")
        self._cluster.tree.is_cut_off = False

    async def _lose_quorum(self) -> None:
        """Stops the tree. No session expires, however long that takes."""
        self._note("the tree has no quorum")
        self._cluster.tree.has_quorum = False
        await self._wait_with_tree()
        self._note("the tree has a quorum")
        self._cluster.tree.regain_quorum()

    async def _refuse_requests(self) -> None:
        self._cluster.tree.error_share = self._cluster.tree_random.uniform(0.02, _LARGEST_ERROR_SHARE)
        self._note(f"the tree refuses {self._cluster.tree.error_share:.0%} of the requests")
        await self._wait_with_tree()
        self._note("the tree refuses no requests")
        self._cluster.tree.error_share = 0.0

    # -- recovery

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
            # A broker that has just restarted may still be in the ISR, until the controller removes it.
            others = [broker.partitions.get(*partition) for broker in self._cluster.brokers.values()]
            if any(other is None or other.log.next_offset < replica.high_watermark for other in others):
                return False
        return True

    async def until_in_sync(self, within_s: float = 120.0) -> None:
        """Waits until all replicas are in sync.

        :raises TimeoutError: if a replica does not get in sync in time.
        """
        async with asyncio.timeout(within_s):
            while not self.is_all_in_sync():  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.1)
