"""Lambda and Kappa views on a real Spark cluster, whose workers and executors are killed meanwhile."""

from collections.abc import Iterator

import pytest
from views_harness import IS_SOAK, KILLS, TIMEOUT_S, ViewsHarness

from headrace.testing.spark_cluster import SparkCluster

pytestmark = [pytest.mark.timeout(TIMEOUT_S), pytest.mark.xdist_group("views-1")]
#: Small, as three JVMs share a machine; and what was lost is noticed at once.
_CONF = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.task.maxFailures": "8"}


@pytest.fixture
def cluster(tmp_path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def harness(tmp_path, cluster) -> Iterator[ViewsHarness]:
    made = ViewsHarness(tmp_path, master=cluster.url, conf=_CONF)
    yield made
    made.close()


@pytest.mark.skipif(not IS_SOAK, reason="takes four minutes: script/soak runs it. test_large_views_cluster is shorter")
def test_a_cluster_keeps_the_views_though_its_workers_are_killed(harness, cluster):
    harness.begins()
    for number in range(KILLS):
        harness.project.waits_until(lambda: len(cluster.executors) > 0, "there are no executors")
        harness.comes_to_a_random_point()
        if number % 3 == 0:  # a machine goes away, and another one comes
            cluster.kill_worker(harness.pick.randrange(cluster.worker_count))
            harness.hesitates(3)
            cluster.start_worker()
        else:
            cluster.kill_executor(harness.pick.choice(cluster.executors))
    harness.ends_well()
