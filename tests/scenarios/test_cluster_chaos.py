"""Random faults under load, in an order that a seed gives: no record is lost, duplicated or out of order.

For ``script/soak``: ``HEADRACE_SOAK`` is the number of faults. The message of a failure lists what was done.
"""

import os
import time
from random import Random

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, Load, check_replicas_are_alike

from headrace.testing.cluster_process import ClusterProcess

SOAK = int(os.environ.get("HEADRACE_SOAK", "0"))

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(not SOAK, reason="takes minutes: in script/soak"),
    pytest.mark.timeout(600),
]
STEPS = 20


class Chaos:
    def __init__(self, cluster, random):
        self.cluster = cluster
        self.random = random
        self.done = []

    def step(self):
        number = self.random.randrange(1, 4)
        deed = self.random.choice(
            [self.kill, self.bounce, self.stop, self.pause, self.long_pause, self.zookeeper, self.zookeeper_pause]
        )
        self.done.append((deed.__name__, number))
        deed(number)

    def kill(self, number):
        self.cluster.kill(number)
        time.sleep(self.random.uniform(0, 4))
        self.cluster.restart(number)

    def bounce(self, number):
        self.cluster.kill(number)
        self.cluster.restart(number)

    def stop(self, number):
        assert self.cluster.stop(number) == 0
        self.cluster.restart(number)

    def pause(self, number):
        self.cluster.pause(number)
        time.sleep(self.random.uniform(0, 1))
        self.cluster.resume(number)

    def long_pause(self, number):
        """Its session is over when it wakes up."""
        self.cluster.pause(number)
        time.sleep(self.random.uniform(2.5, 4))
        self.cluster.resume(number)

    def zookeeper(self, _):
        self.cluster.zookeeper.kill()
        time.sleep(self.random.uniform(0, 2))
        self.cluster.restart_zookeeper()

    def zookeeper_pause(self, _):
        """For shorter or longer than sessions last."""
        self.cluster.zookeeper.pause()
        time.sleep(self.random.uniform(0, 4))
        self.cluster.zookeeper.resume()


@pytest.mark.parametrize("seed", range(max(1, SOAK)))
def test_chaos(tmp_path, seed):
    random = Random(seed)
    with ClusterProcess(tmp_path, session_timeout_ms=2_000) as cluster:
        harness, chaos = ClusterScenarioHarness(cluster), Chaos(cluster, random)
        harness.wait_until_in_sync()
        try:
            with Load(harness, rate=1_000, **{"delivery.timeout.ms": 300_000}) as load:
                for _ in range(STEPS):
                    chaos.step()
                    if random.random() < 0.7:
                        harness.wait_until_in_sync()
                    load.flows(100)
                harness.wait_until_in_sync()
                harness.wait_until_all_live()
                load.flows()
            load.check()
            for number in cluster.brokers:
                assert cluster.stop(number) == 0
            check_replicas_are_alike(tmp_path, harness.topic)
        except BaseException as error:
            for number in cluster.brokers:
                (tmp_path / f"broker-{number}.log").write_text(cluster.log(number))
            raise AssertionError(f"after {chaos.done}; logs are in {tmp_path}") from error
