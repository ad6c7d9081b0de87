"""A znode tree that fails or is slow for a while: the cluster catches up when the tree works again."""

from __future__ import annotations

import asyncio

import pytest

from headrace import AsyncAdmin, AsyncProducer
from headrace.broker.cluster.config_changes import ConfigChanges
from headrace.broker.cluster.registration import ClusterRegistration
from headrace.broker.start_error import StartError
from headrace.client.admin.types import NewTopic
from headrace.coordination.interface import CoordinationError
from headrace.coordination.paths import CONTROLLER, DEFAULT_ENTITY, partition_state_path
from headrace.coordination.znodes import PartitionState
from headrace.testing.simulator.cluster import SimulatedCluster, name_of
from headrace.testing.simulator.simulation import seeded_randomness


class TreeHarness:
    def __init__(self, folder):
        self.cluster = SimulatedCluster(1, folder)

    @property
    def tree(self):
        return self.cluster.tree

    def run(self, scenario):
        self.cluster.loop.run_until_complete(scenario)

    async def begin(self, partitions=1, **configs):
        await self.cluster.start()
        named = {name.replace("_", "."): value for name, value in configs.items()}
        async with AsyncAdmin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("events", partitions, 3, configs=named)])
        await self.until(lambda: len(self.state().isr) == 3)

    def state(self):
        return PartitionState.from_json(self.tree.tree.get(partition_state_path("events", 0))[0])

    def active(self):
        return [broker.broker_id for broker in self.cluster.brokers.values() if broker.role.controller.is_active]

    def partitions(self, index=0):
        return [broker.partitions.get("events", index) for broker in self.cluster.brokers.values()]

    async def until(self, is_so, within_s=30):
        """Waits in simulated time."""
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110  simulated time
                await asyncio.sleep(0.05)


@pytest.fixture
def harness(tmp_path):
    with seeded_randomness(1):
        made = TreeHarness(tmp_path)
        yield made
        made.cluster.close()


def test_a_controller_is_elected_after_the_tree_has_refused_all_candidates(harness):
    async def scenario():
        await harness.begin()
        (died,) = harness.active()
        harness.tree.error_share = 1.0
        harness.cluster.crash(died)
        await harness.until(lambda: not harness.tree.tree.exists(CONTROLLER))
        await asyncio.sleep(1)
        assert harness.active() == []
        harness.tree.error_share = 0.0
        await harness.until(lambda: len(harness.active()) == 1)

    harness.run(scenario())


def test_a_controller_that_could_not_write_of_a_death_does_so_later(harness):
    async def scenario():
        await harness.begin()
        died = next(one for one in harness.cluster.ids if one not in harness.active())
        harness.tree.error_share = 1.0
        harness.cluster.crash(died)
        await harness.until(lambda: not harness.tree.tree.exists(f"/brokers/ids/{died}"))
        await asyncio.sleep(1)
        assert died in harness.state().isr
        harness.tree.error_share = 0.0
        await harness.until(lambda: died not in harness.state().isr)
        assert harness.state().leader in harness.state().isr

    harness.run(scenario())


def test_an_isr_shrinks_once_the_tree_takes_it(harness):
    async def scenario():
        await harness.begin()
        state = harness.state()
        leader = harness.cluster.brokers[state.leader].partitions.get("events", 0).leader
        lagging = next(one for one in state.isr if one != state.leader)
        for one, other in ((lagging, state.leader), (state.leader, lagging)):
            harness.cluster.network.cut(name_of(one), name_of(other))
        at = f"{name_of(state.leader)}:9092"
        async with AsyncProducer(bootstrap_servers=at, clock=harness.cluster.clock, acks=1) as producer:
            await (await producer.send("events", b"x", partition=0, timestamp_ms=harness.cluster.clock.wall_ms()))
        await harness.until(lambda: leader.pending is None)
        harness.tree.error_share = 1.0
        await harness.until(lambda: leader.pending is not None)
        await asyncio.sleep(1)
        assert lagging in harness.state().isr
        harness.tree.error_share = 0.0
        await harness.until(lambda: lagging not in harness.state().isr)

    harness.run(scenario())


def test_a_broker_that_the_tree_refuses_while_it_starts_ends_with_a_reason(harness, monkeypatch):
    async def refuse(_):
        raise CoordinationError("SYSTEMERROR")

    async def scenario():
        await harness.begin()
        died = next(one for one in harness.cluster.ids if one not in harness.active())
        harness.cluster.crash(died)
        monkeypatch.setattr(ClusterRegistration, "remove_earlier_registration", refuse)
        with pytest.raises(StartError, match="SYSTEMERROR"):
            await harness.cluster.start_broker(died)

    harness.run(scenario())


def test_settings_that_came_too_late_are_in_force_when_they_come(harness, monkeypatch):
    read, is_slow = ConfigChanges.read, True

    async def read_slowly(self, kind, name):
        if kind == "topics" and is_slow:
            await asyncio.sleep(6)
        return await read(self, kind, name)

    monkeypatch.setattr(ConfigChanges, "read", read_slowly)

    async def scenario():
        nonlocal is_slow
        await harness.begin(min_insync_replicas="3", cleanup_policy="compact")
        is_slow = False
        await harness.until(lambda: all(one.settings.min_insync_replicas == 3 for one in harness.partitions()))
        assert all(one.log.config.is_compacted for one in harness.partitions())

    harness.run(scenario())


def test_defaults_reach_what_is_left_of_a_topic(harness):
    async def scenario():
        await harness.begin(partitions=2)
        (active,) = harness.active()
        await harness.cluster.brokers[active].role.controller.reassign({("events", 0): [1, 2]})
        broker = harness.cluster.brokers[0]
        await harness.until(lambda: broker.partitions.get("events", 0) is None)
        await broker.role.configs.write("brokers", DEFAULT_ENTITY, {"log.retention.ms": "12345"})
        await harness.until(lambda: all(one.log.config.retention_ms == 12345 for one in harness.partitions(1)))

    harness.run(scenario())
