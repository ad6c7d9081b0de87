"""Writes to ZooKeeper: only as the controller, with other writers at the same time, and over connections that break."""

import random

import pytest
from controller_harness import ControllerHarness, FakeChannel

from headrace.controller.decisions.context import ControllerContext
from headrace.controller.decisions.effects import (
    ClearReassignments,
    DeleteTopic,
    ReadStates,
    StateWrite,
    WriteStates,
    WriteTopic,
)
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.effect_runner import EffectRunner
from headrace.controller.fenced_writer import ControllerMoved, FencedWriter, pipelined
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import ConnectionLostError, CoordinationError
from headrace.coordination.paths import (
    CONTROLLER_EPOCH,
    PERSISTENT_PATHS,
    REASSIGN_PARTITIONS,
    delete_topic_path,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import Reassignment, TopicAssignment, random_uuid
from headrace.testing import ManualClock


class Flaky(LocalCoordination):
    """Loses the answers to changes, of some that were made and some that were not; at most twice in a row."""

    chance = random.Random(1)
    lost_in_a_row = lost_count = 0

    async def change(self, call, *args, **how):
        is_lost = self.lost_in_a_row < 2 and self.chance.random() < 0.5
        self.lost_in_a_row = self.lost_in_a_row + 1 if is_lost else 0
        self.lost_count += is_lost
        if is_lost and self.chance.random() < 0.5:
            raise ConnectionLostError("before")
        try:
            return await call(*args, **how)
        finally:
            if is_lost:
                raise ConnectionLostError("after")

    async def multi(self, operations):
        return await self.change(super().multi, operations)

    async def create(self, path, data=b"", **how):
        return await self.change(super().create, path, data, **how)


class EffectRunnerHarness:
    """A tree with a topic ``t``, and the effects of a controller."""

    def __init__(self):
        self.tree = LocalCoordination(TreeHost(ManualClock()))
        self.context = ControllerContext(1, 1)
        self.channel = FakeChannel(None)

    async def fill(self, partition_count):
        for path in PERSISTENT_PATHS:
            await self.tree.create(path)
        await self.tree.create(CONTROLLER_EPOCH, b"1")
        self.assigned = TopicAssignment(random_uuid(), dict.fromkeys(range(partition_count), (1, 2)))
        await self.tree.create(topic_path("t"), self.assigned.to_json())
        await self.tree.create(topic_config_path("t"))
        self.partitions = self.context.add_topic("t", self.assigned)
        self.fenced = FencedWriter(self.tree, 0)
        self.effects = EffectRunner(self.fenced, self.channel, self.context)
        return self

    async def perform(self, effect):
        def steps():
            return (yield effect)

        return await self.effects.run(steps())

    async def make_states(self):
        writes = tuple(StateWrite(one, Leadership(1, 0, (1, 2), 1), is_new=True) for one in self.partitions)
        versions = await self.perform(WriteStates(writes))
        for partition, version in versions.items():
            if version is not None:
                self.context.set_leadership(partition, Leadership(1, 0, (1, 2), 1, version))
        return versions

    def writes(self, leader):
        return tuple(
            StateWrite(one, self.context.leadership(one)._replace(leader=leader), is_new=False)
            for one in self.partitions
        )


@pytest.fixture
async def harness():
    return await EffectRunnerHarness().fill(120)


async def test_states_are_made_and_changed_and_read(harness):
    assert await harness.make_states() == dict.fromkeys(harness.partitions, 0)
    assert await harness.perform(WriteStates(harness.writes(2))) == dict.fromkeys(harness.partitions, 1)
    found = await harness.perform(ReadStates((("t", 5), ("t", 500))))
    assert found == {("t", 5): Leadership(2, 0, (1, 2), 1, 1), ("t", 500): None}


async def test_one_that_is_refused_takes_no_other_with_it(harness):
    await harness.make_states()
    await harness.tree.set(partition_state_path("t", 7), b"{}")
    await harness.tree.delete(partition_state_path("t", 60))
    versions = await harness.perform(WriteStates(harness.writes(2)))
    assert {one for one, version in versions.items() if version is None} == {("t", 7), ("t", 60)}
    assert len(versions) == 120
    assert set(versions.values()) == {None, 1}


@pytest.mark.parametrize("there", [[], ["partitions"], ["partitions", "3"], ["partitions", "3", "state"]])
async def test_new_states_are_made_whatever_is_there_already(harness, there):
    path = topic_path("t")
    for name in there:
        path = f"{path}/{name}"
        await harness.tree.create(path)
    versions = await harness.make_states()
    refused = {("t", 3)} if "state" in there else set()
    assert {one for one, version in versions.items() if version is None} == refused
    assert len(await harness.tree.children(partitions_path("t"))) == 120


async def test_nothing_is_made_of_a_topic_that_is_gone(harness):
    await harness.tree.delete(topic_path("t"))
    assert set((await harness.make_states()).values()) == {None}
    await harness.perform(WriteTopic("t", harness.assigned))
    assert await harness.tree.exists(topic_path("t")) is None


async def test_a_state_that_cannot_be_read_is_none(harness):
    await harness.make_states()
    await harness.tree.set(partition_state_path("t", 0), b"spoilt")
    assert await harness.perform(ReadStates((("t", 0),))) == {("t", 0): None}


async def test_who_is_not_controller_any_more_changes_nothing(harness):
    await harness.make_states()
    await harness.tree.create(REASSIGN_PARTITIONS, Reassignment({("t", 0): (2,)}).to_json())
    await harness.tree.create(delete_topic_path("t"))
    await harness.tree.set(CONTROLLER_EPOCH, b"2")
    before = harness.tree._host.tree.last_zxid
    for effect in (
        WriteStates(harness.writes(2)),
        WriteStates((StateWrite(("t", 500), Leadership(1, 0, (1,), 1), is_new=True),)),
        WriteTopic("t", harness.assigned),
        DeleteTopic("t"),
        ClearReassignments((("t", 0),)),
    ):
        with pytest.raises(ControllerMoved):
            await harness.perform(effect)
    with pytest.raises(ControllerMoved):
        await harness.fenced.delete_znodes([delete_topic_path("t")])
    assert harness.tree._host.tree.last_zxid == before


async def test_an_epoch_that_is_gone_is_no_longer_ours(harness):
    await harness.tree.delete(CONTROLLER_EPOCH)
    with pytest.raises(ControllerMoved):
        await harness.perform(WriteTopic("t", harness.assigned))


async def test_steps_that_are_broken_off_are_closed(harness):
    ended = []

    def steps():
        try:
            yield WriteTopic("t", harness.assigned)
        finally:
            ended.append(True)

    await harness.tree.set(CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await harness.effects.run(steps())
    assert ended == [True]


async def test_a_topic_goes_with_all_that_is_below_it(harness):
    await harness.make_states()
    await harness.tree.create(f"{partition_path('t', 3)}/more")
    await harness.tree.create(f"{topic_path('t')}/more")
    await harness.tree.create(delete_topic_path("t"))
    await harness.perform(DeleteTopic("t"))
    for path in (topic_path("t"), topic_config_path("t"), delete_topic_path("t")):
        assert await harness.tree.exists(path) is None
    await harness.perform(DeleteTopic("t"))


async def test_of_many_calls_all_are_waited_for_and_the_first_error_is_raised():
    done = []

    async def call(number):
        if number % 3 == 2:
            raise CoordinationError(str(number))
        done.append(number)
        return number

    assert await pipelined(call, [0, 1]) == [0, 1]
    with pytest.raises(CoordinationError, match="2"):
        await pipelined(call, range(2, 8))
    assert done == [0, 1, 3, 4, 6, 7]


@pytest.mark.parametrize("seed", range(8))
async def test_a_life_over_connections_that_break(seed):
    harness = ControllerHarness()
    chance = random.Random(seed)

    def session():
        client = Flaky(harness.host)
        client.chance = chance
        # The first change is not lost: it is the registration, which is not the question here.
        client.lost_in_a_row = 2
        return client

    await harness.start()
    harness.session = session
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2), (2, 3), (3, 1))
    assert [await harness.state("t", index) for index in range(3)] == [(1, 0, (1, 2)), (2, 0, (2, 3)), (3, 0, (3, 1))]
    epoch = harness.controller.epoch
    await harness.stop(3)
    assert harness.controller.epoch == epoch
    assert [await harness.state("t", index) for index in range(3)] == [(1, 0, (1, 2)), (2, 1, (2,)), (1, 1, (1,))]
    assert await harness.controller.reassign({("t", 1): (1,)}) == {("t", 1): None}
    await harness.change_isr("t", 1, (2, 1))
    assert (await harness.assignment("t")).partitions[1] == (1,)
    await harness.grow("t", (2,))
    assert await harness.state("t", 3) == (2, 0, (2,))
    await harness.create_topic("u", (1, 2))
    await harness.request_deletion("u", "none")
    assert not await harness.exists(topic_path("u"))
    assert await harness.hand.children("/admin/delete_topics") == []
    await harness.hand.delete("/controller")
    await harness.settle()
    assert harness.controller.epoch == epoch + 1
    assert sum(one.coordination.lost_count for one in harness.members.values()) > 3
    await harness.stop()
