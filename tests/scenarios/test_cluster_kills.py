"""Three broker processes are killed, paused and stopped under load: no record is lost or duplicated."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, OurLoad, codecs_of, until

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("cluster")

#: How often each broker is restarted: in script/test as often as the time allows, but at least once.
ROUNDS = 5
ROUNDS_S = None if "HEADRACE_SOAK" in os.environ else 8.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder):
    with ClusterProcess(folder, session_timeout_ms=2_000) as made:
        yield made


@pytest.fixture
def harness(cluster, request):
    made = ClusterScenarioHarness(cluster, request.node.name.replace("[", "-").rstrip("]"))
    made.wait_until_in_sync()
    yield made
    for number, broker in cluster.brokers.items():
        broker.resume()
        if not broker.is_running:
            cluster.restart(number)
    made.wait_until_all_live()


def rounds():
    began = time.monotonic()
    for number in range(ROUNDS):
        if number and ROUNDS_S is not None and time.monotonic() - began > ROUNDS_S * number / (number + 1):
            return  # another one would take too long
        yield number


def other_than(*taken):
    return next(number for number in (1, 2, 3) if number not in taken)


def test_three_brokers_know_each_other(harness, cluster):
    found = harness.metadata()
    assert {number: f"{node.host}:{node.port}" for number, node in found.brokers.items()} == cluster.addresses
    assert found.controller_id in cluster.brokers
    leaders = [one.leader for one in found.topics[harness.topic].partitions.values()]
    assert sorted(set(leaders)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("victim", "codec"),
    [("leader", "none"), ("controller", "none"), ("follower", "none"), ("leader", "lz4"), ("controller", "zstd")],
)
def test_kill_9(harness, cluster, folder, victim, codec):
    with Load(harness, width=1 if codec == "none" else 100, **{"compression.type": codec}) as load:
        load.flows()
        chosen = {
            "leader": lambda: harness.partition(0).leader,
            "controller": lambda: harness.controller,
            "follower": lambda: other_than(harness.partition(0).leader, harness.controller),
        }[victim]()
        cluster.kill(chosen)
        until(lambda: chosen not in harness.alive(), "it is known to be dead")
        load.flows()
        cluster.restart(chosen)
        harness.wait_until_in_sync()
        load.flows()
    load.check()
    assert codec in codecs_of(folder, harness.topic)


@pytest.mark.parametrize(
    ("load_of", "usual_pause_s"),
    [pytest.param(OurLoad, 1.0, id="ours"), pytest.param(Load, 2.0, id="librdkafka")],
)
def test_a_rolling_restart_fails_no_write(harness, cluster, load_of, usual_pause_s):
    """And no partition stands still for long. Measured on two busy cores: 0.2 to 0.4 s under our producer, 0.2 to 1.1 s
    under librdkafka; the bounds leave room for a machine that is busier still."""
    pauses_s = []
    with load_of(harness) as load:
        for _ in rounds():
            for number in (1, 2, 3):
                assert cluster.stop(number) == 0
                load.flows(200)
                cluster.restart(number)
                harness.wait_until_in_sync()
            pauses_s += load.take_pauses_s().values()
        load.flows()
    load.check()
    told = f"a partition's longest pause, of each round: {', '.join(f'{one:.2f}' for one in sorted(pauses_s))} s"
    assert median(pauses_s) < usual_pause_s, told
    assert max(pauses_s) < 5.0, told


def test_a_leader_that_stood_still_does_not_acknowledge_what_others_do_not_have(harness, cluster):
    with Load(harness) as load:
        chosen = harness.partition(0).leader
        cluster.pause(chosen)
        until(lambda: harness.partition(0).leader != chosen, "another leader")
        load.flows()
        cluster.resume(chosen)
        until(lambda: chosen in harness.alive(), "it is back")
        harness.wait_until_in_sync()
        load.flows()
    load.check()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_broker_that_comes_back_says_nothing_before_it_knows(harness, cluster, number):
    """A client that is told of no brokers may drop its connections to all of them, as librdkafka does."""
    cluster.kill(number)
    with ThreadPoolExecutor() as pool:
        back = pool.submit(cluster.restart, number)
        answer = until(lambda: first_metadata(cluster.addresses[number], harness.topic), "its first answer")
        back.result()
    assert sorted(node.node_id for node in answer.brokers) == [1, 2, 3]
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.none]
    assert len(answer.topics[0].partitions) == harness.partitions


def first_metadata(address, topic):
    """None as long as nobody listens."""
    try:
        with RawClient(address) as client:
            return client.ask(Api.METADATA, 7, topics=[{"name": topic}], allow_auto_topic_creation=True)
    except ConnectionError:
        return None


@pytest.mark.parametrize(
    "load_of",
    [
        pytest.param(OurLoad, id="ours"),
        pytest.param(
            Load,
            id="librdkafka",
            marks=pytest.mark.skipif(
                "HEADRACE_SOAK" not in os.environ,
                reason="now and then librdkafka 2.16 overtakes its own retries, see docs/cluster.md",
            ),
        ),
    ],
)
def test_hard_bounces(harness, cluster, load_of):
    """A broker that comes back at once: its session is not waited for, and it cuts off what it alone had."""
    with load_of(harness) as load:
        for _ in rounds():
            for number in (1, 2, 3):
                cluster.kill(number)
                cluster.restart(number)
                harness.wait_until_in_sync()
                load.flows(200)
    load.check()


def test_all_at_once(harness, cluster):
    with Load(harness) as load:
        load.flows()
        for number in (1, 2, 3):
            cluster.kill(number)
        for number in (1, 2, 3):
            cluster.restart(number)
        harness.wait_until_in_sync()
        load.flows()
    load.check()


def test_with_one_of_three_left_nothing_is_acknowledged(harness, cluster):
    left = harness.controller
    with Load(harness) as load:
        load.flows()
        for number in (1, 2, 3):
            if number != left:
                cluster.kill(number)
        until(lambda: harness.alive() == [left], "they are known to be dead")
        producer = Load(harness, **{"delivery.timeout.ms": 3_000}).producer
        failures = []
        producer.produce(harness.topic, b"-1", partition=0, on_delivery=lambda error, _: failures.append(error))
        producer.flush(10)
        assert failures[0] is not None
        for number in (1, 2, 3):
            if number != left:
                cluster.restart(number)
        harness.wait_until_in_sync()
        load.flows()
    load.check()
