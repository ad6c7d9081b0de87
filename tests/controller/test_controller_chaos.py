"""Random faults of three controllers and their brokers. After all are back, the cluster must be healthy."""

import random

import pytest
from controller_harness import ControllerHarness

from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.coordination.interface import NodeExistsError, NoNodeError
from headrace.coordination.paths import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    REASSIGN_PARTITIONS,
    TOPICS,
    partitions_path,
    topic_path,
)
from headrace.protocol.errors import KafkaError

BROKERS = (1, 2, 3)


class Chaos:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.harness = ControllerHarness()
        self.made = 0

    async def step(self):
        harness, chance = self.harness, self.random
        acts = (
            self.create, self.create, self.grow, self.delete, self.stop, self.start, self.start, self.expire, self.move,
            self.request_move, self.change_isr, self.change_isr, self.remove_controller, self.raise_epoch,
            self.shut_down, self.elect, self.mute,
        )  # fmt: skip
        try:
            await chance.choice(acts)()
        except (NoNodeError, NodeExistsError, KafkaError):
            return  # it is not there, or is there already, or cannot be
        finally:
            await harness.settle()

    def replicas(self):
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    async def topic(self):
        return self.random.choice(await self.harness.hand.children(TOPICS) or ["none"])

    async def partition(self):
        topic = await self.topic()
        return topic, int(self.random.choice(await self.harness.hand.children(partitions_path(topic))))

    async def create(self):
        self.made += 1
        await self.harness.create_topic(f"t{self.made}", *[self.replicas() for _ in range(self.random.randint(1, 4))])

    async def grow(self):
        await self.harness.grow(await self.topic(), self.replicas())

    async def delete(self):
        await self.harness.request_deletion(await self.topic())

    async def stop(self):
        if len(self.harness.members) > 1:
            await self.harness.stop(self.random.choice(sorted(self.harness.members)))

    async def start(self):
        if dead := [one for one in BROKERS if one not in self.harness.members]:
            await self.harness.start(self.random.choice(dead))

    async def expire(self):
        self.harness.members[self.random.choice(sorted(self.harness.members))].coordination.expire()

    async def move(self):
        await self.harness.controller.reassign({await self.partition(): self.random.choice([None, self.replicas()])})

    async def request_move(self):
        await self.harness.request_moves({await self.partition(): self.replicas() for _ in range(2)})

    async def change_isr(self):
        """By a leader that lives."""
        topic, index = await self.partition()
        leader, _, isr = await self.harness.state(topic, index)
        if leader in self.harness.members:
            replicas = (await self.harness.assignment(topic)).partitions[index]
            followers = [one for one in replicas if one != leader and (one in isr or one in self.harness.members)]
            chosen = self.random.sample(followers, self.random.randint(0, len(followers)))
            await self.harness.change_isr(topic, index, (leader, *chosen), is_told=self.random.random() < 0.7)

    async def remove_controller(self):
        await self.harness.hand.delete(CONTROLLER)

    async def raise_epoch(self):
        data, _ = await self.harness.hand.get(CONTROLLER_EPOCH)
        await self.harness.hand.set(CONTROLLER_EPOCH, str(int(data) + 1).encode())

    async def shut_down(self):
        await self.harness.controller.controlled_shutdown(self.random.choice(BROKERS), -1)

    async def elect(self):
        await self.harness.controller.elect_leaders(
            None, self.random.choice([ElectionStrategy.PREFERRED, ElectionStrategy.UNCLEAN])
        )

    async def mute(self):
        self.harness.silent ^= {self.random.choice(BROKERS)}

    async def recover(self):
        """All come back, answer and catch up."""
        harness = self.harness
        harness.silent.clear()
        for broker_id in BROKERS:
            if broker_id in harness.members:
                await harness.stop(broker_id)
            await harness.start(broker_id)
        # What a move adds may be in no ISR at first.
        for _ in range(3):
            for topic in await harness.hand.children(TOPICS):
                for index, replicas in (await harness.assignment(topic)).partitions.items():
                    # When its last move has ended a topic may go.
                    if await harness.exists(topic_path(topic)):
                        leader, _, _ = await harness.state(topic, index)
                        assert leader in BROKERS, (topic, index)
                        await harness.change_isr(topic, index, (leader, *(one for one in replicas if one != leader)))


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_all_is_well_in_the_end(seed, caplog):
    chaos = Chaos(seed)
    harness = await chaos.harness.start(*BROKERS)
    for _ in range(60):
        await chaos.step()
        assert sum(one.controller.is_active for one in harness.members.values()) == 1
    await chaos.recover()
    assert await harness.hand.children(DELETE_TOPICS) == []
    assert not await harness.exists(REASSIGN_PARTITIONS)
    assert harness.controller.reassignments() == {}
    assert harness.controller.metrics.offline_partitions_count == 0
    for topic in await harness.hand.children(TOPICS):
        assigned = await harness.assignment(topic)
        assert not assigned.adding_replicas
        for index, replicas in assigned.partitions.items():
            leader, _, isr = await harness.state(topic, index)
            assert leader in replicas
            assert set(isr) == set(replicas)
    assert "could not process" not in caplog.text
    assert "failed to start as controller" not in caplog.text
    await harness.stop()
