"""``headrace start --brokers N`` and ``--zookeeper``: what they print and refuse, and how they handle dead brokers."""

import json
import os
import re
import signal
import time
from urllib.request import urlopen

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, check_replicas_are_alike, until

from headrace.testing.broker_process import BrokerProcess, StartFailed
from headrace.testing.cluster_process import LocalClusterProcess

pytestmark = pytest.mark.xdist_group("cluster")


class Local:
    """The face of a cluster that a harness wants."""

    def __init__(self, process):
        self.bootstrap_servers = process.address
        self.process = process


def test_a_cluster_by_one_command(tmp_path):
    with LocalClusterProcess(tmp_path / "data", "--console", "127.0.0.1:0") as parent:
        harness = ClusterScenarioHarness(Local(parent))
        with Load(harness) as load:
            load.flows()
        load.check()
        assert len(parent.address.split(",")) == 3
        url, console_pid = re.search(r"the console is at (\S+), as process (\d+)", parent.log).groups()
        with urlopen(f"{url}/api/overview") as answer:
            assert {f"{row['host']}:{row['port']}" for row in json.load(answer)["brokers"]} == set(
                parent.address.split(",")
            )
        assert harness.alive() == [1, 2, 3]
        assert sorted(os.listdir(tmp_path / "data")) == ["broker-1", "broker-2", "broker-3", "zookeeper"]
        assert parent.terminate() == 0
        assert "Traceback" not in parent.log
        assert not os.path.exists(f"/proc/{console_pid}")
    check_replicas_are_alike(tmp_path / "data", harness.topic)
    with LocalClusterProcess(tmp_path / "data") as parent:
        again = ClusterScenarioHarness(Local(parent), "u", 1)
        until(lambda: {"t", "u"} <= set(again.metadata().topics), "both topics")
        until(lambda: again.in_sync("t"), "all replicas in sync")


def test_whoever_started_a_broker_knows_at_once_that_it_died(tmp_path):
    with LocalClusterProcess(tmp_path / "data") as parent:
        harness = ClusterScenarioHarness(Local(parent))
        harness.wait_until_in_sync()
        with Load(harness) as load:
            load.flows()
            victim = harness.partition(0).leader
            parent.kill_broker(victim)
            began = time.monotonic()
            until(lambda: harness.partition(0).leader != victim, "another leader")
            took_s = time.monotonic() - began
            load.flows()
        load.check()
        assert took_s < 6.0, "a session takes 18 s to time out"
        assert f"broker {victim} (process {parent.pid_of(victim)}) was ended by signal 9" in parent.log
        command = parent.log.split("To start it again: headrace start ")[1].split(" (headrace)")[0].split()
        with BrokerProcess(tmp_path / "data" / f"broker-{victim}", *command[2:]):
            until(lambda: harness.alive() == [1, 2, 3], "it is back")
            harness.wait_until_in_sync()


def test_the_brokers_go_with_a_parent_that_is_killed(tmp_path):
    with LocalClusterProcess(tmp_path / "data") as parent:
        harness = ClusterScenarioHarness(Local(parent))
        harness.wait_until_in_sync()
        with Load(harness) as load:
            load.flows()
        pids = [parent.pid_of(number) for number in (1, 2, 3)]
        parent.kill()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "they are gone")
    with LocalClusterProcess(tmp_path / "data") as again:
        harness.moved_to(Local(again))
        harness.wait_until_in_sync()
        load.check()


def test_when_none_is_left_the_parent_ends(tmp_path):
    with LocalClusterProcess(tmp_path / "data", brokers=1) as parent:
        os.kill(parent.pid_of(1), signal.SIGKILL)
        until(lambda: not parent.is_running, "it ends")
        assert parent.terminate() == 1
        assert "no broker is left" in parent.log


def refusal(folder, *arguments, **settings):
    with pytest.raises(StartFailed) as refused:
        BrokerProcess(folder, *arguments, **settings)
    assert "Traceback" not in str(refused.value)
    return [line for line in str(refused.value).splitlines() if line.startswith("headrace: ")]


def test_what_is_refused_with_one_line(tmp_path):
    with LocalClusterProcess(tmp_path / "data", brokers=1) as parent:
        connect = parent.log.split("the znode tree is at ")[1].split()[0]
        login = ("-o", f"headrace.zookeeper.login.file={tmp_path / 'data' / 'zookeeper' / 'brokers.login'}")
        (line,) = refusal(tmp_path / "other", "--zookeeper", connect)
        assert line.endswith("ZooKeeper rejects our login (headrace.zookeeper.login)")
        (line,) = refusal(tmp_path / "other", "--zookeeper", connect, "--broker-id", "1", *login)
        assert line == f"headrace: another broker with the id 1 runs at {parent.address}"
        with BrokerProcess(tmp_path / "alone"):
            pass
        (line,) = refusal(tmp_path / "alone", "--zookeeper", connect, *login)
        assert "belongs to cluster" in line
        (line,) = refusal(tmp_path / "alone", "--brokers", "2")
        assert line == f"headrace: {tmp_path / 'alone'} is the folder of a single broker; give --brokers another --data"
        (line,) = refusal(tmp_path / "data", "--brokers", "2")
        assert line == f"headrace: {tmp_path / 'data' / 'zookeeper'} is in use by another process"
        (line,) = refusal(tmp_path / "data")
        assert line == f"headrace: {tmp_path / 'data'} is the folder of a cluster; start it with --brokers"
        (line,) = refusal(tmp_path / "new", "--brokers", "2", "-o", "num.partitions=none")
        assert "num.partitions" in line
        lines = refusal(tmp_path / "new", "--brokers", "2", listen=parent.address)
        assert f"headrace: cannot listen on {parent.address}: Address already in use" in lines
    (line,) = refusal(tmp_path / "nobody", "--zookeeper", "127.0.0.1:1", "-o", "zookeeper.connection.timeout.ms=300")
    assert (
        line
        == "headrace: no ZooKeeper at 127.0.0.1:1 answered within 300 ms; the last attempt failed: Connection refused"
    )


def test_a_broker_without_an_id_gets_one(tmp_path):
    with (
        BrokerProcess(tmp_path / "zookeeper", command="zookeeper") as zookeeper,
        BrokerProcess(tmp_path / "a", "--zookeeper", f"{zookeeper.address}/deep/down"),
    ):
        assert "broker.id=1001" in (tmp_path / "a" / "meta.properties").read_text()
