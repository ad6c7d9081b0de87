"""A cluster and its ZooKeeper: a real one, one that crashes and restarts, and a controller moved by hand."""

import os
import time

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, until, zookeeper_shell

from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.zookeeper_process import ZookeeperEnsemble, ZookeeperMissing

pytestmark = pytest.mark.xdist_group("cluster")


def test_a_zookeeper_that_is_killed_and_comes_back(tmp_path):
    """Without ZooKeeper, leaders stay as they are, and no broker writes to the tree."""
    with ClusterProcess(tmp_path) as cluster:
        harness = ClusterScenarioHarness(cluster)
        harness.wait_until_in_sync()
        with Load(harness) as load:
            load.flows()
            cluster.zookeeper.kill()
            load.flows(1_000)
            cluster.restart_zookeeper()
            load.flows()
            harness.create("later", 3)
        load.check()
        assert load.longest_pause_s < 3.0
        assert all("the ZooKeeper session" not in cluster.log(number) for number in (1, 2, 3)), "sessions go on"


def test_a_zookeeper_that_stands_still(tmp_path):
    """For a moment; and for longer than sessions last, which may be over then, or go on if clients are heard first.
    Either way records are acknowledged meanwhile, and when it goes on all is as before."""
    session_s = 2.0
    with ClusterProcess(tmp_path, session_timeout_ms=int(1_000 * session_s)) as cluster:
        harness = ClusterScenarioHarness(cluster)
        harness.wait_until_in_sync()
        with Load(harness) as load:
            load.flows()
            for pause_s in (session_s / 4, 2 * session_s):
                cluster.zookeeper.pause()
                until_then = time.monotonic() + pause_s
                load.flows()
                until(lambda end=until_then: time.monotonic() > end, "the end of the pause")
                cluster.zookeeper.resume()
                harness.create(f"after-{pause_s}", 3)
                harness.wait_until_all_live()
                harness.wait_until_in_sync()
                load.flows()
        load.check()
        assert load.longest_pause_s < 3.0


def test_a_controller_that_is_removed_by_hand(tmp_path):
    with ClusterProcess(tmp_path) as cluster:
        harness = ClusterScenarioHarness(cluster)
        harness.wait_until_in_sync()
        with Load(harness) as load:
            for number in range(3):
                epoch = int(zookeeper_shell(cluster.zookeeper_address, "get", "/controller_epoch").split()[0])
                zookeeper_shell(cluster.zookeeper_address, "delete", "/controller")
                until(
                    lambda epoch=epoch: (
                        int(zookeeper_shell(cluster.zookeeper_address, "get", "/controller_epoch").split()[0]) > epoch
                    ),
                    "the next controller",
                )
                harness.create(f"after-{number}")
            load.flows()
        load.check()
        assert load.longest_pause_s < 3.0


def test_on_a_real_zookeeper_below_a_chroot(tmp_path, mortal_zookeeper):
    connect = f"{mortal_zookeeper.address}/headrace/prod"
    with ClusterProcess(tmp_path, zookeeper=connect, session_timeout_ms=4_000) as cluster:
        harness = ClusterScenarioHarness(cluster)
        harness.wait_until_in_sync()
        assert "/controller" not in zookeeper_shell(mortal_zookeeper.address, "ls", "/")
        with Load(harness) as load:
            load.flows()
            victim = harness.controller
            cluster.kill(victim)
            until(lambda: victim not in harness.alive(), "it is known to be dead")
            load.flows()
            cluster.restart(victim)
            harness.wait_until_in_sync()
            mortal_zookeeper.kill()
            load.flows()
            mortal_zookeeper.start()
            harness.wait_until_all_live()  # on a busy machine a session may end meanwhile
            harness.create("later", 3)
            mortal_zookeeper.pause()
            load.flows(1_000)
            mortal_zookeeper.resume()
            harness.wait_until_all_live()
            harness.create("last", 3)
        load.check()


@pytest.mark.skipif("HEADRACE_SOAK" not in os.environ, reason="three JVMs: in script/soak")
def test_on_an_ensemble_that_loses_a_server(tmp_path):
    try:
        ensemble = ZookeeperEnsemble(tmp_path / "ensemble", 3)
    except ZookeeperMissing as missing:
        pytest.skip(str(missing))
    with ensemble, ClusterProcess(tmp_path, zookeeper=ensemble.address, session_timeout_ms=8_000) as cluster:
        harness = ClusterScenarioHarness(cluster)
        harness.wait_until_in_sync()
        with Load(harness) as load:
            load.flows()
            for number, server in enumerate(ensemble.servers[:2]):
                server.kill()
                load.flows()
                harness.create(f"after-{number}")
                server.start()
            for number, server in enumerate(ensemble.servers):
                server.pause()
                load.flows()
                harness.create(f"beside-{number}")
                server.resume()
                load.flows()
        load.check()


def test_a_broker_stops_without_a_zookeeper(tmp_path):
    with ClusterProcess(tmp_path, brokers=2) as cluster:
        cluster.zookeeper.kill()
        until(lambda: "the connection to ZooKeeper is lost" in cluster.log(1), "it is noticed")
        began = time.monotonic()
        assert cluster.stop(1) == 0
        assert time.monotonic() - began < 10
        assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()
