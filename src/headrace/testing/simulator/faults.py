"""Faults from a seed: what is done to a cluster, and when.

Two at a time, on different brokers: a process that is killed, paused or cut off loses nothing, so that two of three
may be away at once; then nothing is acknowledged, and nothing acknowledged is lost. Only one thing takes data away: a
host without power forgets what it had not flushed. With two in sync that may happen to one at a time; so it is done
only where all replicas are in sync and nothing else is going on, and nothing else is done until they are so again.

In every other simulation something is wrong with the tree too, beside all that: nobody reaches it, or it refuses what
it is asked now and then. Those draw from a stream of their own: without them a seed is what it was.
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
#: How many faults of the tree there may be, how long it is well between them, and what it refuses at most.
_TREE_FAULTS, _LONGEST_CALM_S, _LARGEST_ERROR_SHARE = (0, 0, 0, 1, 2, 3), 5.0, 0.3


class Faults:
    def __init__(self, cluster: SimulatedCluster, history: History, partitions: list[Partition]) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._history = history
        self._partitions = partitions
        #: Brokers that something is being done to.
        self._taken: set[int | None] = set()
        self._nothing_else = asyncio.Event()
        self._nothing_else.set()
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
            self._late_controller,
        ]
        self._kinds_of_tree: list[Callable[[], Awaitable[None]]] = [
            self._cut_all_from_tree,
            self._lose_quorum,
            self._refuse,
        ]
        self._is_tree_faulty = False

    async def run(self, count: int) -> None:
        strands = [self._one_after_the_other(count - count // 2), self._one_after_the_other(count // 2)]
        if tree_faults := self._cluster.random_of_tree.choice(_TREE_FAULTS):
            strands.append(self._tree_faults(tree_faults))
        await asyncio.gather(*strands)

    async def _one_after_the_other(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(self._random.uniform(0.1, 1.0))
            await self._nothing_else.wait()
            await self._random.choice(self._kinds)()

    def _note(self, what: str) -> None:
        self._history.note(self._cluster.loop.time(), what)

    @contextmanager
    def _a_broker(self) -> Iterator[int | None]:
        """One that nothing else is done to."""
        free = [one for one in sorted(self._cluster.brokers) if one not in self._taken]
        broker_id = self._random.choice(free) if free else None
        if broker_id is not None:
            self._taken.add(broker_id)
        try:
            yield broker_id
        finally:
            self._taken.discard(broker_id)

    async def _a_while(self) -> None:
        await asyncio.sleep(self._random.uniform(0.05, _LONGEST_PAUSE_S))

    # -- a broker that is away

    async def _crash(self) -> None:
        with self._a_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is killed")
                self._cluster.crash(broker_id)
                await self._a_while()
                await self._restart(broker_id)

    async def _lose_power(self) -> None:
        if self._taken or self._is_tree_faulty or not self.is_all_in_sync():
            return
        self._nothing_else.clear()
        with self._a_broker() as broker_id:
            assert broker_id is not None
            self._note(f"{broker_id} loses its power")
            self._cluster.crash(broker_id, loses_power=True)
            await self._a_while()
            await self._restart(broker_id)
            await self.until_in_sync()
        self._nothing_else.set()

    async def _stop(self) -> None:
        with self._a_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is stopped")
                await self._cluster.stop_broker(broker_id)
                await self._a_while()
                await self._restart(broker_id)

    async def _restart(self, broker_id: int) -> None:
        """As whoever looks after processes does: one that ends at once is started again."""
        while True:
            self._note(f"{broker_id} is started")
            try:
                return await self._cluster.start_broker(broker_id)
            except StartError as error:
                self._note(f"{broker_id} does not start: {error!r}")
                self._cluster.crash(broker_id)
                await self._a_while()

    async def _pause(self) -> None:
        with self._a_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} is paused")
                node = self._cluster.brokers[broker_id].node
                node.pause()
                await self._a_while()
                self._note(f"{broker_id} goes on")
                node.resume()

    async def _isolate(self) -> None:
        with self._a_broker() as broker_id:
            if broker_id is not None:
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
        with self._a_broker() as broker_id:
            if broker_id is not None:
                self._note(f"{broker_id} cannot reach the tree")
                self._cluster.network.isolate(name_of(broker_id), [TREE])
                await self._a_while()
                self._mend()

    def _mend(self) -> None:
        self._note("the network is whole")
        self._cluster.network.mend()

    # -- what takes nothing away

    async def _expire(self) -> None:
        with self._a_broker() as broker_id:
            if broker_id is not None:
                self._end_session(broker_id)

    async def _late_messages(self) -> None:
        self._note("messages are late")
        self._cluster.network.late_share = self._random.uniform(0.01, 0.2)
        await self._a_while()
        self._cluster.network.late_share = 0.0

    async def _reset_connections(self) -> None:
        self._note("connections are reset")
        self._cluster.network.reset_some(self._random.uniform(0.1, 1.0))

    async def _jump_clock(self) -> None:
        with self._a_broker() as broker_id:
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
        """What the controller says gets to one broker only when there is another controller, which said otherwise."""
        tree = self._cluster.tree.tree
        if tree.exists(CONTROLLER) is None:
            return
        controller = ControllerRegistration.from_json(tree.get(CONTROLLER)[0]).broker_id
        others = [one for one in self._cluster.ids if one != controller]
        listener = self._random.choice(others)
        self._note(f"{listener} hears late of what controller {controller} says")
        self._cluster.network.cut(name_of(controller), name_of(listener))
        for broker_id in self._random.sample(self._cluster.ids, 2):
            self._end_session(broker_id)
            await asyncio.sleep(self._random.uniform(0.05, 0.5))
        self._note(f"{controller} cannot reach the tree")
        self._cluster.network.isolate(name_of(controller), [TREE])
        await asyncio.sleep(self._random.uniform(2.0, 4.0))
        self._mend()

    def _end_session(self, broker_id: int) -> None:
        broker = self._cluster.brokers.get(broker_id)
        tree = None if broker is None else broker.tree
        if tree is not None and tree.session_id in self._cluster.tree.tree.sessions:
            self._note(f"the session of {broker_id} ends")
            self._cluster.tree.close_session(tree.session_id)

    # -- a tree that is away, or refuses

    async def _tree_faults(self, count: int) -> None:
        random = self._cluster.random_of_tree
        for _ in range(count):
            await asyncio.sleep(random.uniform(0.1, _LONGEST_CALM_S))
            await self._nothing_else.wait()
            self._is_tree_faulty = True
            await random.choice(self._kinds_of_tree)()
            self._is_tree_faulty = False

    async def _a_while_of_tree(self) -> None:
        await asyncio.sleep(self._cluster.random_of_tree.uniform(0.05, _LONGEST_PAUSE_S))

    async def _cut_all_from_tree(self) -> None:
        """After a session's timeout all are over."""
        self._note("nobody can reach the tree")
        self._cluster.tree.is_cut_off = True
        await self._a_while_of_tree()
        self._note("the tree can be reached")
        self._cluster.tree.is_cut_off = False

    async def _lose_quorum(self) -> None:
        """All sessions go on, however long it takes."""
        self._note("the tree has no quorum")
        self._cluster.tree.has_quorum = False
        await self._a_while_of_tree()
        self._note("the tree has a quorum")
        self._cluster.tree.find_quorum()

    async def _refuse(self) -> None:
        self._cluster.tree.error_share = self._cluster.random_of_tree.uniform(0.02, _LARGEST_ERROR_SHARE)
        self._note(f"the tree refuses {self._cluster.tree.error_share:.0%} of what it is asked")
        await self._a_while_of_tree()
        self._note("the tree refuses nothing")
        self._cluster.tree.error_share = 0.0

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
            # Who has just come back may be in the ISR of before, until it is noticed.
            others = [broker.partitions.get(*partition) for broker in self._cluster.brokers.values()]
            if any(other is None or other.log.next_offset < replica.high_watermark for other in others):
                return False
        return True

    async def until_in_sync(self, within_s: float = 120.0) -> None:
        """
        :raises TimeoutError: if some replica does not come back.
        """
        async with asyncio.timeout(within_s):
            while not self.is_all_in_sync():  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.1)
