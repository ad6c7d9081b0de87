"""Network partitions: each broker and the ZooKeeper is on a host of its own, and some hosts cannot reach each other.

Whatever is cut: every acknowledged record is there in the end, once and in order. Packets are dropped silently
(``namespaces.py``), so brokers notice a cut only by a session's end or by a timeout.
"""

import time
from contextlib import contextmanager

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, as_options, until, zookeeper_shell
from namespaces import Namespaces, NoNamespaces

from headrace.coordination.paths import partition_state_path
from headrace.coordination.znodes import PartitionState
from headrace.testing.cluster_process import ClusterProcess

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(240)]

BROKERS = ("broker-1", "broker-2", "broker-3")
SESSION_S = 3


@pytest.fixture(scope="module")
def network():
    try:
        made = Namespaces("zookeeper", *BROKERS)
    except NoNamespaces as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    options = as_options({"replica.lag.time.max.ms": 3_000, "replica.socket.timeout.ms": 3_000})
    with ClusterProcess(folder, *options, session_timeout_ms=1_000 * SESSION_S, host_of=network) as made:
        yield made


@pytest.fixture
def harness(cluster, network, request):
    made = ClusterScenarioHarness(cluster, request.node.name, partitions=3)
    made.wait_until_in_sync()
    yield made
    network.mend()
    made.wait_until_all_live()


def others(number):
    return [name for name in BROKERS if name != f"broker-{number}"]


@contextmanager
def under_load(harness, network):
    """Repairs the faults of its block, and checks that the cluster is whole again, under load, with a new topic."""
    with Load(harness) as load:
        load.flows()
        yield load
        network.mend()
        wait_until_all_follow(harness)
        harness.wait_until_all_live()
        load.flows()
        harness.create(f"{harness.topic}-after")
    load.check()


def written(harness, index=0):
    """Returns the state of a partition in the tree: any broker may be the last to know it."""
    path = partition_state_path(harness.topic, index)
    return PartitionState.from_json(zookeeper_shell(harness.cluster.zookeeper_address, "get", path).encode())


def leads_no_more(harness, number):
    until(lambda: all(written(harness, index).leader not in (number, -1) for index in range(3)), "other leaders")


def wait_until_all_follow(harness):
    """A returning broker takes itself for the leader until it gets a request: its metadata is as old as its log. Once
    it is in the ISR, it has got the request."""
    until(lambda: all(len(written(harness, index).isr) == len(BROKERS) for index in range(3)), "all replicas in sync")


def test_a_leader_that_nobody_reaches(harness, network):
    with under_load(harness, network) as load:
        leader = harness.partition(0).leader
        network.unplug(f"broker-{leader}")
        leads_no_more(harness, leader)
        load.flows()


def test_a_leader_that_reaches_all_but_the_tree(harness, network):
    """It does not know that it leads no more, and clients still come to it: it acknowledges nothing."""
    with under_load(harness, network) as load:
        leader = harness.partition(0).leader
        network.cut(f"broker-{leader}", "zookeeper")
        leads_no_more(harness, leader)
        load.flows()


def test_a_leader_that_reaches_the_tree_and_no_broker(harness, network):
    """It takes the others out of the ISR, and is then too few: nothing is acknowledged until they are back."""
    leader = harness.partition(0).leader
    with under_load(harness, network):
        network.cut(f"broker-{leader}", *others(leader))
        until(lambda: written(harness).isr == (leader,), "that it is alone in the ISR")


def test_a_controller_that_reaches_no_other_broker(harness, network):
    """It stays controller, as the tree says. What it could not tell them, it tells them then."""
    controller = harness.controller
    with under_load(harness, network):
        network.cut(f"broker-{controller}", *others(controller))
        time.sleep(2 * SESSION_S)  # so that the broker tries, and its clients notice


def test_a_follower_that_is_heard_but_does_not_hear(harness, network):
    """One way only: its questions arrive, the answers do not."""
    leader = harness.partition(0).leader
    follower = next(one for one in harness.partition(0).replicas if one != leader)
    with under_load(harness, network) as load:
        network.drop(f"broker-{leader}", f"broker-{follower}")
        until(lambda: follower not in written(harness).isr, "that it is not in sync")
        load.flows()


def test_the_tree_is_gone_for_everybody(harness, network):
    """For longer than the sessions last. Leaders lead on; who is controller is found out anew."""
    with under_load(harness, network) as load:
        network.unplug("zookeeper")
        time.sleep(SESSION_S + 1)
        load.flows()
