"""Anything may happen to three controllers and their brokers, in any order. When all are back, all is well."""

import random

import pytest
from clusterbed import ClusterBed

from headrace.controller.decisions import Election
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
        self.bed = ClusterBed()
        self.made = 0

    async def step(self):
        bed, chance = self.bed, self.random
        acts = (
            self.create, self.create, self.grow, self.delete, self.stop, self.start, self.start, self.expire, self.move,
            self.wish_move, self.change_isr, self.change_isr, self.remove_controller, self.raise_epoch, self.shut_down,
            self.elect, self.mute,
        )  # fmt: skip
        try:
            await chance.choice(acts)()
        except (NoNodeError, NodeExistsError, KafkaError):
            return  # it is not there, or is there already, or cannot be
        finally:
            await bed.settle()

    def replicas(self):
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    async def topic(self):
        return self.random.choice(await self.bed.hand.children(TOPICS) or ["none"])

    async def partition(self):
        topic = await self.topic()
        return topic, int(self.random.choice(await self.bed.hand.children(partitions_path(topic))))

    async def create(self):
        self.made += 1
        await self.bed.create_topic(f"t{self.made}", *[self.replicas() for _ in range(self.random.randint(1, 4))])

    async def grow(self):
        await self.bed.grow(await self.topic(), self.replicas())

    async def delete(self):
        await self.bed.wish_deletion(await self.topic())

    async def stop(self):
        if len(self.bed.members) > 1:
            await self.bed.stop(self.random.choice(sorted(self.bed.members)))

    async def start(self):
        if dead := [one for one in BROKERS if one not in self.bed.members]:
            await self.bed.start(self.random.choice(dead))

    async def expire(self):
        self.bed.members[self.random.choice(sorted(self.bed.members))].coordination.expire()

    async def move(self):
        await self.bed.controller.reassign({await self.partition(): self.random.choice([None, self.replicas()])})

    async def wish_move(self):
        await self.bed.wish_moves({await self.partition(): self.replicas() for _ in range(2)})

    async def change_isr(self):
        """By a leader that lives."""
        topic, index = await self.partition()
        leader, _, isr = await self.bed.state(topic, index)
        if leader in self.bed.members:
            replicas = (await self.bed.assignment(topic)).partitions[index]
            followers = [one for one in replicas if one != leader and (one in isr or one in self.bed.members)]
            chosen = self.random.sample(followers, self.random.randint(0, len(followers)))
            await self.bed.change_isr(topic, index, (leader, *chosen), is_told=self.random.random() < 0.7)

    async def remove_controller(self):
        await self.bed.hand.delete(CONTROLLER)

    async def raise_epoch(self):
        data, _ = await self.bed.hand.get(CONTROLLER_EPOCH)
        await self.bed.hand.set(CONTROLLER_EPOCH, str(int(data) + 1).encode())

    async def shut_down(self):
        await self.bed.controller.controlled_shutdown(self.random.choice(BROKERS), -1)

    async def elect(self):
        await self.bed.controller.elect_leaders(None, self.random.choice([Election.PREFERRED, Election.UNCLEAN]))

    async def mute(self):
        self.bed.silent ^= {self.random.choice(BROKERS)}

    async def recover(self):
        """All come back, answer and catch up."""
        bed = self.bed
        bed.silent.clear()
        for broker_id in BROKERS:
            if broker_id in bed.members:
                await bed.stop(broker_id)
            await bed.start(broker_id)
        # What a move adds may be in no ISR at first.
        for _ in range(3):
            for topic in await bed.hand.children(TOPICS):
                for index, replicas in (await bed.assignment(topic)).partitions.items():
                    # When its last move has ended a topic may go.
                    if await bed.exists(topic_path(topic)):
                        leader, _, _ = await bed.state(topic, index)
                        assert leader in BROKERS, (topic, index)
                        await bed.change_isr(topic, index, (leader, *(one for one in replicas if one != leader)))


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_all_is_well_in_the_end(seed, caplog):
    chaos = Chaos(seed)
    bed = await chaos.bed.start(*BROKERS)
    for _ in range(60):
        await chaos.step()
        assert sum(one.controller.is_active for one in bed.members.values()) == 1
    await chaos.recover()
    assert await bed.hand.children(DELETE_TOPICS) == []
    assert not await bed.exists(REASSIGN_PARTITIONS)
    assert bed.controller.reassignments() == {}
    assert bed.controller.offline_partitions_count == 0
    for topic in await bed.hand.children(TOPICS):
        assigned = await bed.assignment(topic)
        assert not assigned.adding_replicas
        for index, replicas in assigned.partitions.items():
            leader, _, isr = await bed.state(topic, index)
            assert leader in replicas
            assert set(isr) == set(replicas)
    assert "could not handle" not in caplog.text
    assert "cannot be the controller" not in caplog.text
    await bed.stop()
