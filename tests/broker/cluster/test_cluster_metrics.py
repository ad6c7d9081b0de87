"""The metrics of replicas, of fetchers and of the session with ZooKeeper, after events of each."""

from types import SimpleNamespace

import pytest
from broker_replica_harness import TOPIC_ID, BrokerReplicaHarness, until

from headrace.broker.cluster.member_metrics import MemberMetrics
from headrace.broker.cluster.zookeeper_session import ZookeeperSession
from headrace.broker.metrics.counters import MinuteRate
from headrace.broker.metrics.families import FAMILIES
from headrace.broker.metrics.values import View
from headrace.controller.decisions.broker_requests import LeaderAndIsr, LeaderAndIsrPartition
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.interface import SessionState
from headrace.coordination.request_times import RequestTimes

PARTITION = "kafka_cluster_partition_"
FETCHERS = "kafka_server_replicafetchermanager_"
MANAGER = "kafka_server_replicamanager_"
LATENCY = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"


@pytest.fixture
async def harness(tmp_path):
    made = BrokerReplicaHarness(tmp_path)
    await made.open()
    yield made
    await made.close()


def start(harness, broker_id, **settings):
    return harness.start(broker_id, **settings)


def values(broker, name):
    """By labels; without labels just the value."""
    (family,) = [family for family in FAMILIES if family.name == name]
    found = {labels: float(value) for labels, value in family.values(View(broker))}
    return found[()] if [*found] == [()] else found


async def test_partitions_tell_how_they_are_replicated(harness):
    harness.topic_configs["t"] = {"min.insync.replicas": "2"}
    leader, follower = start(harness, 1), start(harness, 2)
    await harness.lead(1, (1, 2, 3), isr=(1, 2))
    await harness.lead(1, (1, 2, 3), index=1, isr=(1,), to=(1,))
    assert values(leader, f"{PARTITION}insyncreplicascount") == {("t", "0"): 2, ("t", "1"): 1}
    assert values(leader, f"{PARTITION}underreplicated") == {("t", "0"): 1, ("t", "1"): 1}
    assert values(leader, f"{PARTITION}underminisr") == {("t", "0"): 0, ("t", "1"): 1}
    for name in ("insyncreplicascount", "underreplicated", "underminisr"):
        assert values(follower, f"{PARTITION}{name}") == {("t", "0"): 0}


async def test_replicas_that_are_being_added_are_not_missing(harness):
    leader = start(harness, 1)
    await harness.lead(1, (1,))
    assert values(leader, f"{MANAGER}reassigningpartitions") == 0
    for epoch, assignment, reassigning in ((1, Assignment((2, 1), (2,), (1,)), 1), (2, Assignment((1, 2)), 0)):
        told = LeaderAndIsrPartition("t", 0, Leadership(1, epoch, (1,), 1, epoch), assignment, False)
        await leader.replicas.become_leader_or_follower(LeaderAndIsr(1, 0, 1, 1, (told,), {"t": TOPIC_ID}, ()))
        assert values(leader, f"{MANAGER}reassigningpartitions") == reassigning
        assert values(leader, f"{MANAGER}underreplicatedpartitions") == 1 - reassigning


async def test_a_partition_that_is_fenced_counts_as_failed_until_the_controller_speaks(harness):
    start(harness, 1)
    follower = start(harness, 2, replica_fetch_wait_max_ms=20)
    await harness.lead(1, (1, 2))
    failed = f"{FETCHERS}failedpartitionscount"
    assert values(follower, failed) == {("Replica",): 0}
    await harness.lead(1, (1, 2), epoch=1, to=(1,))
    await until(lambda: values(follower, failed) == {("Replica",): 1}, "the refusal")
    await harness.lead(1, (1, 2), epoch=2)
    assert values(follower, failed) == {("Replica",): 0}


async def test_a_partition_whose_log_fails_counts_as_failed(harness, monkeypatch):
    start(harness, 1)
    follower = start(harness, 2)
    await harness.lead(1, (1, 2))
    monkeypatch.setattr(follower, "log_dirs_failed", lambda: None)  # which takes it from its fetcher
    follower.logs.log_dirs[0].take_offline(OSError(5, "broken"))
    await harness.brokers[1].produce(b"a", acks=1)
    await until(lambda: values(follower, f"{FETCHERS}failedpartitionscount") == {("Replica",): 1}, "the failure")


async def test_fetchers_tell_how_often_they_fetch_and_whether_they_live(harness):
    start(harness, 1)
    follower = start(harness, 2, replica_fetch_wait_max_ms=5)
    dead, rate = f"{FETCHERS}deadthreadcount", f"{FETCHERS}minfetchrate"
    assert (values(follower, dead), values(follower, rate)) == ({("Replica",): 0}, {("Replica",): 0})
    await harness.lead(1, (1, 2))
    (fetcher,) = follower.replicas.fetchers
    await until(lambda: fetcher._fetches > 2, "the fetches")
    assert values(follower, rate)["Replica",] > 0
    assert values(follower, dead) == {("Replica",): 0}
    fetcher.stop()
    await until(lambda: values(follower, dead) == {("Replica",): 1}, "the end")


def test_a_rate_is_that_of_about_the_last_minute():
    rate = MinuteRate(0)
    assert rate.of(100, 10_000) == 10
    assert rate.of(200, 10_500) == 10  # too soon to tell
    assert rate.of(200, 20_000) == 10
    assert 3 < rate.of(200, 80_000) < 4
    assert rate.of(200, 800_000) < 0.001


def broker_of(**parts):
    """A broker that is a member of a cluster, with only some parts."""
    return SimpleNamespace(role=SimpleNamespace(metrics=lambda: MemberMetrics(SimpleNamespace(**parts))))


def test_the_session_with_zookeeper_has_a_state():
    session = ZookeeperSession(SimpleNamespace(session_id=1))
    broker = broker_of(session=session)
    for state, name in (
        (SessionState.SUSPENDED, "CONNECTING"),
        (SessionState.LOST, "CLOSED"),
        (SessionState.CONNECTED, "CONNECTED"),
    ):
        session._changed(state)
        expected = {(one,): one == name for one in ("CONNECTED", "CONNECTING", "CLOSED")}
        assert values(broker, "kafka_server_sessionexpirelistener_sessionstate") == expected


def test_how_long_zookeeper_takes():
    times = RequestTimes()
    broker = broker_of(coordination=SimpleNamespace(request_times=times))
    assert (values(broker, LATENCY), values(broker, f"{LATENCY}_count")) == ({}, 0)
    for took_ms in range(300, 0, -1):
        times.add(took_ms * 1_000_000)
    assert values(broker, f"{LATENCY}_count") == 300
    found = values(broker, LATENCY)
    assert (found["0.50",], found["0.999",]) == (129, 256)
