"""Markers and partitions of transactions between brokers: what is asked of whom, and what becomes of failures."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from headrace.broker.cluster.links import Links
from headrace.broker.cluster.markers import ClusterMarkers
from headrace.broker.cluster.outbox import Outbox
from headrace.broker.cluster.participants import ClusterParticipants
from headrace.broker.coordinators.committed import CommitWaits
from headrace.broker.metadata_cache import MetadataCache, Node, PartitionInfo, TopicInfo
from headrace.client.errors import BrokerUnreachable
from headrace.coordination.interface import NoNodeError
from headrace.coordination.znodes import TopicAssignment
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProducerFenced,
    TransactionAbortable,
    TransactionCoordinatorFenced,
)
from headrace.runtime.purgatory import Purgatory
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.transactions.coordinator import ProducerIdentity
from headrace.transactions.markers import Marker

US, B, C, NOBODY = 1, 2, 3, -1
MARKER = Marker(7, 0, True, 4)


async def until(is_so):
    """Gives the others their turns, of which a few are enough."""
    for _ in range(100):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


class FakeLinks(Links):
    """Other brokers, which answer what the test says: by default that all is well."""

    def __init__(self, metadata):
        self._address_of = lambda broker_id: ("host", 9092) if broker_id in metadata.nodes else None
        self.asked = []
        self.codes = {}
        self.unreachable = set()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, broker_id, api, body, *, timeout_ms, purpose):
        self.asked.append((broker_id, body))
        await self.may_answer.wait()
        if broker_id in self.unreachable:
            raise BrokerUnreachable("no way to it")
        return (self._marked if api is Api.WRITE_TXN_MARKERS else self._added)(body)

    async def drop(self, broker_id, purpose):
        self.dropped = broker_id, purpose

    def code(self, topic, index):
        return self.codes.get((topic, index), ErrorCode.none)

    def _marked(self, body):
        return SimpleNamespace(
            markers=[
                SimpleNamespace(
                    producer_id=marker["producer_id"],
                    topics=[
                        SimpleNamespace(
                            name=topic["name"],
                            partitions=[
                                SimpleNamespace(partition_index=index, error_code=self.code(topic["name"], index))
                                for index in topic["partition_indexes"]
                            ],
                        )
                        for topic in marker["topics"]
                    ],
                )
                for marker in body["markers"]
            ]
        )

    def _added(self, body):
        return SimpleNamespace(
            results_by_transaction=[
                SimpleNamespace(
                    transactional_id=each["transactional_id"],
                    topic_results=[
                        SimpleNamespace(
                            name=topic["name"],
                            results_by_partition=[
                                SimpleNamespace(
                                    partition_index=index, partition_error_code=self.code(topic["name"], index)
                                )
                                for index in topic["partitions"]
                            ],
                        )
                        for topic in each["topics"]
                    ],
                )
                for each in body["transactions"]
            ]
        )


class FakePartition:
    """Has what is used of one; its high watermark is far away until the test moves it."""

    def __init__(self, topic="t", index=0):
        self.log = SimpleNamespace(topic=topic, partition=index, high_watermark=0)
        self.leader_epoch = 0
        self.error = None

    @property
    def high_watermark(self):
        return self.log.high_watermark

    def is_acknowledged(self, end_offset):
        if self.error is not None:
            raise self.error
        return self.high_watermark >= end_offset


class LocalWriter:
    def __init__(self):
        self.partition = FakePartition()
        self.written = []
        self.error = None

    def write(self, topic, index, marker):
        if self.error is not None:
            raise self.error
        self.written.append((topic, index))
        return self.partition, 1


class MarkersHarness:
    def __init__(self):
        self.metadata = MetadataCache("cluster")
        self.links = FakeLinks(self.metadata)
        self.metadata.nodes = {number: Node(number, "host", 9092) for number in (US, B, C)}
        self.lead("t", US, B, C, B, NOBODY)
        self.lead("__transaction_state", B)
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.local = LocalWriter()
        self.led = {}
        self.delayed_produce = Purgatory("Produce", self.timer)
        commit_waits = CommitWaits(asyncio.get_running_loop(), self.delayed_produce)
        self.markers = ClusterMarkers(US, self.metadata, self, self.links, commit_waits, self.local)
        led = SimpleNamespace(get=lambda topic, index: self.led.get((topic, index)))
        service = SimpleNamespace(coordinator=self, replicated=self._replicated, placement=self)
        self.participants = ClusterParticipants(US, self.metadata, led, self.links, service, self.markers)
        self.sent = []
        self.missing = frozenset()
        self.refusal = None

    def lead(self, topic, *leaders):
        infos = tuple(PartitionInfo(leader, 0, (1, 2, 3), (1, 2, 3)) for leader in leaders)
        self.metadata.put(TopicInfo(topic, UUID(int=len(topic)), infos))

    def send(self, *partitions, marker=MARKER):
        self.markers.send(marker, [("t", index) for index in partitions], self.sent.append)

    async def all_sent(self, count=1):
        await until(lambda: len(self.sent) >= count)
        return [sorted(index for _, index in unsent) for unsent in self.sent]

    # -- as the tree

    async def get(self, path):
        if path != "/brokers/topics/t":
            raise NoNodeError(path)
        return TopicAssignment(None, dict.fromkeys(range(5), (1, 2, 3))).to_json(), None

    # -- as the coordinator

    async def learn_partition_count(self):
        pass

    def index_of(self, _name):
        return 0

    def add_partitions(self, _name, _producer, wanted, *, client_version):
        if self.refusal is not None:
            raise self.refusal
        self.added = wanted

    def missing_partitions(self, _name, _producer, _wanted):
        return self.missing

    async def _replicated(self, _name):
        await asyncio.sleep(0)


@pytest.fixture
async def harness():
    made = MarkersHarness()
    yield made
    await made.participants.close()


# -- markers


async def test_each_leader_gets_the_markers_of_its_partitions(harness):
    harness.local.partition.log.high_watermark = 1
    harness.send(0, 1, 2, 3)
    assert await harness.all_sent() == [[]]
    assert harness.local.written == [("t", 0)]
    asked = {broker_id: body["markers"] for broker_id, body in harness.links.asked}
    assert [marker["topics"] for marker in asked[B]] == [[{"name": "t", "partition_indexes": [1, 3]}]]
    assert [marker["topics"] for marker in asked[C]] == [[{"name": "t", "partition_indexes": [2]}]]
    assert asked[B][0]["coordinator_epoch"] == 4


async def test_without_followers_a_local_marker_is_there_at_once(harness):
    harness.local.partition.log.high_watermark = 1
    harness.send(0)
    assert harness.sent == [frozenset()]


async def test_a_local_marker_counts_when_it_is_committed(harness):
    harness.send(0)
    await asyncio.sleep(0)
    assert not harness.sent
    harness.local.partition.log.high_watermark = 1
    harness.delayed_produce.check_and_complete(("t", 0))
    assert await harness.all_sent() == [[]]


@pytest.mark.parametrize("how", ["lost", "late", "refused"])
async def test_a_local_marker_that_is_to_be_sent_again(harness, how):
    if how == "refused":
        harness.local.error = NotEnoughReplicas("only one")
    harness.send(0)
    await asyncio.sleep(0)
    if how == "lost":
        harness.local.partition.error = NotLeaderOrFollower("not any more")
        harness.delayed_produce.check_and_complete(("t", 0))
    elif how == "late":
        harness.clock.advance(5_000)
        harness.timer.advance()
    assert await harness.all_sent() == [[0]]


async def test_what_others_cannot_write_now_is_sent_again_and_what_is_obsolete_is_not(harness):
    harness.links.codes = {
        ("t", 1): ErrorCode.not_leader_or_follower,
        ("t", 2): ErrorCode.transaction_coordinator_fenced,
    }
    harness.local.error = TransactionCoordinatorFenced("a newer one was there")
    harness.send(0, 1, 2, 3, 4)
    assert await harness.all_sent() == [[1, 4]]  # 4 has no leader


async def test_a_deleted_topic_needs_no_marker(harness):
    harness.markers.send(MARKER, [("gone", 0), ("t", 99)], harness.sent.append)
    assert await harness.all_sent() == [[]]


async def test_a_topic_that_was_not_heard_of_yet_is_waited_for(harness):
    harness.metadata.remove("t")
    harness.send(1, 99)
    assert await harness.all_sent() == [[1]]


async def test_a_broker_that_is_not_to_be_reached(harness):
    harness.links.unreachable = {B}
    harness.send(1, 2)
    assert await harness.all_sent() == [[1]]


async def test_a_broker_that_hangs_is_given_up_when_it_is_known_to_be_gone(harness, monkeypatch):
    monkeypatch.setattr("headrace.broker.cluster.links._CHECK_ALIVE_EVERY_S", 0)
    harness.links.may_answer.clear()
    harness.send(1)
    await until(lambda: harness.links.asked)
    assert not harness.sent
    del harness.metadata.nodes[B]
    assert await harness.all_sent() == [[1]]
    assert harness.links.dropped == (B, "markers")


async def test_markers_gather_while_a_request_is_under_way(harness):
    harness.links.may_answer.clear()
    for producer_id in range(5):
        harness.send(1, marker=MARKER._replace(producer_id=producer_id))
        await asyncio.sleep(0)
    assert len(harness.links.asked) == 1
    harness.links.may_answer.set()
    assert await harness.all_sent(5) == [[]] * 5
    assert [len(body["markers"]) for _, body in harness.links.asked] == [1, 4]


async def test_an_outbox_outlives_what_fails():
    async def send(_broker_id, items):
        got.append(items)
        raise ValueError("a mistake")

    got = []
    outbox = Outbox(send)
    for _ in range(2):
        outbox.put(B, "x")
        await until(lambda: got)
        await asyncio.sleep(0)
        assert got == [["x"]]
        got.clear()
    await outbox.close()


# -- partitions


WHO = ProducerIdentity(7, 0)


async def test_another_coordinator_is_asked(harness):
    harness.links.codes = {("t", 1): ErrorCode.transaction_abortable, ("t", 2): ErrorCode.producer_fenced}
    refusals = await harness.participants.refusals("x", WHO, [("t", 0), ("t", 1), ("t", 2)], adds=False)
    assert {key: type(error) for key, error in refusals.items()} == {
        ("t", 1): TransactionAbortable,
        ("t", 2): ProducerFenced,
    }
    ((broker_id, body),) = harness.links.asked
    assert broker_id == B
    (asked,) = body["transactions"]
    assert asked["verify_only"]
    assert asked["topics"] == [{"name": "t", "partitions": [0, 1, 2]}]


async def test_questions_gather_and_an_id_is_in_a_request_once(harness):
    harness.links.may_answer.clear()
    asking = [asyncio.ensure_future(harness.participants.refusals("x", WHO, [("t", 0)], adds=True))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for name, who, index in (("x", WHO, 1), ("x", WHO, 2), ("x", ProducerIdentity(7, 1), 3), ("y", WHO, 1)):
        asking.append(asyncio.ensure_future(harness.participants.refusals(name, who, [("t", index)], adds=True)))
    await asyncio.sleep(0)
    harness.links.may_answer.set()
    assert await asyncio.gather(*asking) == [{}] * 5
    first, second, third = [
        [(each["transactional_id"], each["producer_epoch"], each["topics"][0]["partitions"]) for each in body]
        for body in (body["transactions"] for _, body in harness.links.asked)
    ]
    assert first == [("x", 0, [0])]
    assert second == [("x", 0, [1, 2]), ("y", 0, [1])]
    assert third == [("x", 1, [3])]


async def test_a_coordinator_that_cannot_be_asked(harness):
    harness.links.unreachable = {B}
    refusals = await harness.participants.refusals("x", WHO, [("t", 0)], adds=True)
    assert isinstance(refusals["t", 0], CoordinatorLoadInProgress)
    harness.lead("__transaction_state", NOBODY)
    refusals = await harness.participants.refusals("x", WHO, [("t", 0)], adds=True)
    assert isinstance(refusals["t", 0], CoordinatorLoadInProgress)


async def test_our_own_coordinator_is_asked_directly(harness):
    harness.lead("__transaction_state", US)
    assert await harness.participants.refusals("x", WHO, [("t", 0)], adds=True) == {}
    assert harness.added == {("t", 0)}
    harness.missing = frozenset([("t", 1)])
    refusals = await harness.participants.refusals("x", WHO, [("t", 0), ("t", 1)], adds=False)
    assert [(key, type(error)) for key, error in refusals.items()] == [(("t", 1), TransactionAbortable)]
    harness.refusal = ProducerFenced("a newer one")
    refusals = await harness.participants.refusals("x", WHO, [("t", 0)], adds=True)
    assert isinstance(refusals["t", 0], ProducerFenced)


@pytest.mark.parametrize("what", ["marker", "another leader", "another's marker"])
async def test_what_was_true_when_it_was_asked_may_not_be_when_it_is_answered(harness, what):
    harness.led["t", 0] = FakePartition()
    harness.links.may_answer.clear()
    asking = asyncio.ensure_future(harness.participants.refusals("x", WHO, [("t", 0)], adds=False))
    await asyncio.sleep(0)
    if what == "marker":
        harness.participants.marker_written("t", 0, 7)
    elif what == "another's marker":
        harness.participants.marker_written("t", 0, 8)
    else:
        harness.led["t", 0].leader_epoch += 1
    harness.links.may_answer.set()
    refusals = await asking
    if what == "another's marker":
        assert refusals == {}
    else:
        assert isinstance(refusals["t", 0], InvalidTxnState)
    assert harness.participants._guards == {}
