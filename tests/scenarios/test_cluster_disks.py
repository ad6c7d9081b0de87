"""A full disk of one broker counts as failed: its leaders move to other brokers, and the other disk works on."""

import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, until

from headrace.testing.broker_process import BrokerProcess, StartFailed

pytestmark = pytest.mark.xdist_group("cluster")

#: Mounts a small disk that nobody else sees, then becomes what it is told to run.
_WITH_DISK = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=16m none "$0" && exec "$@"')


@pytest.fixture
def cluster(tmp_path):
    """The first of three brokers has two disks, the second of which is small."""
    if shutil.which("unshare") is None:
        pytest.skip("a disk that can be filled needs the command unshare (Debian: util-linux)")
    small = tmp_path / "small"
    small.mkdir()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(BrokerProcess(tmp_path / "zookeeper", command="zookeeper"))

        def start(number, *disks, **options):
            belongs = ("--zookeeper", zookeeper.address, "--broker-id", str(number))
            folders = Path(",".join(map(str, (tmp_path / f"{number}", *disks))))
            return stack.enter_context(BrokerProcess(folders, *belongs, **options))

        try:
            first = start(1, small, runner=(*_WITH_DISK, str(small)))
        except StartFailed as error:
            if "mount" not in str(error):
                raise
            pytest.skip(f"a disk that can be filled needs a mount of its own: {error}")
        brokers = {1: first, 2: start(2), 3: start(3)}
        addresses = {number: broker.address for number, broker in brokers.items()}
        yield SimpleNamespace(
            brokers=brokers, addresses=addresses, bootstrap_servers=",".join(addresses.values()), small=small
        )


def test_leaders_leave_a_disk_that_fails(cluster):
    harness = ClusterScenarioHarness(cluster, partitions=6)
    harness.wait_until_in_sync()
    first = cluster.brokers[1]
    inside = ("nsenter", "--target", str(first.pid), "--mount")
    listed = subprocess.run([*inside, "ls", cluster.small], check=True, capture_output=True, text=True, timeout=10)
    lost = {int(index) for index in re.findall(rf"^{harness.topic}-(\d+)$", listed.stdout, re.MULTILINE)}
    kept = set(range(harness.partitions)) - lost
    assert lost
    assert kept
    with Load(harness) as load:
        load.flows()
        fill = ["sh", "-c", f"cat /dev/zero > {cluster.small}/fill"]
        subprocess.run([*inside, *fill], check=False, capture_output=True, timeout=30)
        until(lambda: set(in_sync_at(harness, 1)) == kept, "only what is on the other disk is in sync")
        assert not {index for index in lost if harness.partition(index).leader == 1}
        load.flows()
        assert first.is_running
    load.check()


def in_sync_at(harness, broker_id):
    partitions = harness.metadata().topics[harness.topic].partitions
    return [index for index, one in partitions.items() if broker_id in one.isrs]
