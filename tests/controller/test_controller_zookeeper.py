"""Tests controllers over the network: with a tree that Headrace serves, and with a real ZooKeeper."""

import asyncio
import time
import uuid

import pytest
from controller_harness import ControllerHarness, Member

from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import NodeExistsError
from headrace.coordination.paths import CONTROLLER, PERSISTENT_PATHS, broker_path, delete_topic_path, topic_path
from headrace.coordination.server.service import TreeService
from headrace.coordination.server.tree_server import TreeServer
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import TopicAssignment, random_uuid
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock

pytestmark = pytest.mark.xdist_group("zookeeper")

PATIENCE_S = 60


async def until(is_so):
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  of many things, which have no event
            await asyncio.sleep(0.001)


async def until_tree(is_so):
    """Reads ZooKeeper until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            pass


class NetworkControllerHarness(ControllerHarness):
    def __init__(self, connect):
        super().__init__()
        self.connect = connect

    async def session(self):
        return await ZookeeperCoordination.connect(self.connect, session_timeout_ms=20_000)

    async def start(self, *broker_ids):
        self.hand = self.hand or await self.session()
        for path in PERSISTENT_PATHS:
            try:
                await self.hand.create(path)
            except NodeExistsError:
                continue
        for broker_id in broker_ids:
            member = self.members[broker_id] = Member(self, broker_id, await self.session(), self.settings)
            await member.register()
            await member.controller.start()
            await until(lambda: any(one.controller.is_active for one in self.members.values()))
        await self.settle()

    async def settle(self):
        """Waits until no controller has had work for 50 ms, which is longer than a notification takes."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 0.05:
            await self.hand.children("/")
            for member in self.members.values():
                await member.coordination.children("/")
                if member.controller.metrics.event_queue_size or member.controller.metrics.state != "Idle":
                    quiet_since = time.monotonic()

    async def close(self):
        for member in self.members.values():
            await member.controller.stop()
            await member.coordination.close()
        await self.hand.close()

    async def leader(self, topic, index=0):
        state = await self.state(topic, index)
        return None if state is None else state[0]

    async def until_led(self, topic, leader, index=0):
        async def is_led():
            return await self.leader(topic, index) == leader

        await until_tree(is_led)

    async def until_gone(self, path):
        async def is_gone():
            return not await self.exists(path)

        await until_tree(is_gone)


@pytest.fixture
async def served():
    clock = ManualClock()
    service = TreeService.of(TreeHost(clock), clock, Timer(clock), secret=b"secret")
    server = TreeServer(service)
    host, port = await server.start("127.0.0.1", 0)
    harness = NetworkControllerHarness(f"{host}:{port}/kafka")
    harness.service = service
    yield harness
    await harness.close()
    await server.stop()


@pytest.fixture
async def real(zookeeper):
    harness = NetworkControllerHarness(f"{zookeeper.address}/{uuid.uuid4().hex}")
    yield harness
    await harness.close()


@pytest.fixture(params=["served", "real"])
def harness(request):
    return request.getfixturevalue(request.param)


async def test_a_life_over_the_network(harness):
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2, 3), (2, 3, 1))
    await harness.until_led("t", 2, 1)
    assert await harness.leader("t") == 1
    await harness.grow("t", (3, 2))
    await harness.until_led("t", 3, 2)
    # By hand the controller is moved.
    before = harness.controller.epoch
    await harness.hand.delete(CONTROLLER)
    await until(lambda: any(one.controller.epoch > before for one in harness.members.values()))
    await harness.settle()
    assert harness.controller.epoch == before + 1
    # The controller's broker dies.
    dead = harness.members.pop(harness.active.broker_id)
    await dead.controller.stop()
    await dead.coordination.close()
    await until(lambda: any(one.controller.is_active for one in harness.members.values()))
    await harness.settle()
    for index in range(3):
        assert await harness.leader("t", index) in harness.members
    # A topic goes when the last broker is back.
    await harness.hand.create(delete_topic_path("t"))
    await harness.settle()
    assert await harness.exists(topic_path("t"))
    await harness.start(dead.broker_id)
    await harness.until_gone(delete_topic_path("t"))
    assert not await harness.exists(topic_path("t"))


async def test_a_controller_whose_session_ends_comes_back_as_a_broker(served):
    await served.start(1, 2)
    await served.create_topic("t", (1, 2), (2, 1))
    old = served.active
    other = next(one for one in served.members.values() if one is not old)
    session_id = old.coordination.session_id
    registered = (await served.hand.exists(broker_path(old.broker_id))).czxid
    assert served.service.sessions.expire(session_id)
    await until(lambda: old.registered == 2 and other.controller.is_active)
    await served.settle()
    assert served.active is other
    assert not old.controller.is_active
    assert old.controller.active_controller_id == other.broker_id
    assert other.channel.brokers[old.broker_id].epoch > registered
    for index in range(2):
        assert await served.leader("t", index) == other.broker_id


async def test_many_partitions_are_made_together(served):
    await served.start(1, 2, 3)
    replicas = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assigned = TopicAssignment(random_uuid(), {index: replicas[index % 3] for index in range(300)})
    await served.hand.create(topic_path("t"), assigned.to_json())
    await served.until_led("t", 3, 299)
    await served.settle()
    assert len(served.channel.take_leaders()) == 900
    assert [await served.leader("t", index) for index in range(6)] == [1, 2, 3, 1, 2, 3]
