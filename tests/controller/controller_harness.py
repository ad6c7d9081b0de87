"""A cluster for controllers: one tree, one session per broker, and channels that record requests and respond."""

import asyncio

from headrace.controller.controller import Controller, ControllerSettings
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)
from headrace.coordination.interface import NoNodeError
from headrace.coordination.paths import (
    DELETE_TOPICS,
    ISR_CHANGE_PREFIX,
    PERSISTENT_PATHS,
    REASSIGN_PARTITIONS,
    broker_path,
    partition_state_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import (
    BrokerRegistration,
    Endpoint,
    EntityConfig,
    PartitionSet,
    PartitionState,
    Reassignment,
    TopicAssignment,
    random_uuid,
)
from headrace.protocol.errors import ErrorCode
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination

PATIENCE_S = 20


async def until(is_so):
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  of many things, which have no event
            await asyncio.sleep(0)


class FakeChannel:
    """Brokers that do as they are told."""

    def __init__(self, harness):
        self.harness = harness
        self.controller = None
        self.brokers = {}
        self.sent = []
        self.is_open = False

    def set_brokers(self, live):
        self.is_open = True
        self.brokers = {one.broker_id: one for one in live}

    def send(self, request):
        broker = self.brokers[request.broker_id]
        assert request.broker_epoch == broker.epoch
        self.sent.append(request)
        if request.broker_id in self.harness.silent:
            return
        asyncio.get_running_loop().call_soon(self.answer, request)

    def answer(self, request):
        if isinstance(request, UpdateMetadata):
            return
        lost = self.harness.lost.get(request.broker_id, ())
        codes = {
            one[:2]: ErrorCode.kafka_storage_error if one[:2] in lost else ErrorCode.none for one in request.partitions
        }
        kind = LeaderAndIsrResponse if isinstance(request, LeaderAndIsr) else StopReplicaResponse
        self.controller.on_response(request, kind(ErrorCode.none, codes))

    def close(self):
        self.is_open = False
        self.brokers = {}

    def take(self, kind=None):
        taken, self.sent = self.sent, []
        return [one for one in taken if kind is None or isinstance(one, kind)]

    def take_leaders(self):
        """By broker and partition: leader, epoch, ISR, whether it is new."""
        return {
            (one.broker_id, *told[:2]): (*told.leadership[:3], told.is_new)
            for one in self.take(LeaderAndIsr)
            for told in one.partitions
        }

    def take_deletes(self):
        return {(one.broker_id, *two[:2]) for one in self.take(StopReplica) for two in one.partitions if two.is_deleted}


class Member:
    """A broker with a controller."""

    def __init__(self, harness, broker_id, coordination, settings):
        self.harness = harness
        self.broker_id = broker_id
        self.coordination = coordination
        self.channel = FakeChannel(harness)
        self.registered = 0
        #: So often registering fails.
        self.failures = 0
        self.controller = self.channel.controller = Controller(
            broker_id, coordination, harness.clock, harness.timer, self.channel, settings, register=self.register
        )

    async def register(self):
        if self.failures:
            self.failures -= 1
            raise OSError("not now")
        self.registered += 1
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"host{self.broker_id}", 9092)
        registration = BrokerRegistration((endpoint,), 0)
        await self.coordination.create(broker_path(self.broker_id), registration.to_json(), ephemeral=True)


class ControllerHarness:
    def __init__(self, **settings):
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.host = TreeHost(self.clock)
        self.settings = ControllerSettings(**{"auto_leader_rebalance_enable": False} | settings)
        self.members = {}
        #: Brokers that do not answer.
        self.silent = set()
        #: By broker, partitions on a broken disk.
        self.lost = {}
        self.hand = None

    def session(self):
        return ExpiringCoordination(self.host)

    async def start(self, *broker_ids):
        if self.hand is None:
            self.hand = self.session()
            if await self.hand.exists("/brokers") is None:
                for path in PERSISTENT_PATHS:
                    await self.hand.create(path)
        for broker_id in broker_ids:
            member = self.members[broker_id] = Member(self, broker_id, self.session(), self.settings)
            await member.register()
            await member.controller.start()
            await self.settle()
        return self

    async def settle(self):
        """Until nothing happens any more."""
        quiet = 0
        async with asyncio.timeout(PATIENCE_S):
            while quiet < 10:
                await asyncio.sleep(0)
                busy = any(
                    one.controller.metrics.event_queue_size or one.controller.metrics.state != "Idle"
                    for one in self.members.values()
                )
                quiet = 0 if busy else quiet + 1

    async def stop(self, *broker_ids):
        for broker_id in broker_ids or list(self.members):
            member = self.members.pop(broker_id)
            await member.controller.stop()
            await member.coordination.close()
        await self.settle()

    @property
    def active(self):
        (found,) = [one for one in self.members.values() if one.controller.is_active]
        return found

    @property
    def controller(self):
        return self.active.controller

    @property
    def channel(self):
        return self.active.channel

    # By hand, or by other brokers

    async def create_topic(self, topic, *assignment, topic_id=None, **configs):
        assigned = TopicAssignment(topic_id or random_uuid(), dict(enumerate(assignment)))
        await self.hand.create(topic_config_path(topic), EntityConfig(configs).to_json())
        await self.hand.create(topic_path(topic), assigned.to_json())
        await self.settle()

    async def grow(self, topic, *added):
        assigned = await self.assignment(topic)
        partitions = dict(enumerate([*assigned.partitions.values(), *added]))
        await self.hand.set(topic_path(topic), assigned._replace(partitions=partitions).to_json())
        await self.settle()

    async def request_deletion(self, *topics):
        for topic in topics:
            await self.hand.create(f"{DELETE_TOPICS}/{topic}")
        await self.settle()

    async def request_moves(self, moves):
        await self.hand.create(REASSIGN_PARTITIONS, Reassignment(moves).to_json())
        await self.settle()

    async def change_isr(self, topic, index, isr, *, is_told=True):
        """As the leader does."""
        path = partition_state_path(topic, index)
        data, stat = await self.hand.get(path)
        state = PartitionState.from_json(data)._replace(isr=tuple(isr))
        await self.hand.set(path, state.to_json(), version=stat.version)
        if is_told:
            content = PartitionSet.of([(topic, index)]).to_json()
            await self.hand.create(ISR_CHANGE_PREFIX, content, sequence=True)
        await self.settle()

    # What is in the tree

    async def state(self, topic, index=0):
        try:
            data, _ = await self.hand.get(partition_state_path(topic, index))
        except NoNodeError:
            return None
        state = PartitionState.from_json(data)
        return state.leader, state.leader_epoch, state.isr

    async def assignment(self, topic):
        return TopicAssignment.from_json((await self.hand.get(topic_path(topic)))[0])

    async def exists(self, path):
        return await self.hand.exists(path) is not None
