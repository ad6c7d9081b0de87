"""Views whose driver, broker or database is killed with ``kill -9`` at random points, many times.

Whatever was killed is started again. At the end all views (``views_harness``) must be exactly what the topics say.
Every answer that a reader got in between must be right for the offsets that the answer names.

``script/test`` kills each process once, in one run; ``script/soak`` kills each many times, in a run of its own.
"""

from collections.abc import Iterator

import psutil
import pytest
from views_harness import IS_SOAK, KILLS, TIMEOUT_S, ViewsHarness
from views_process import KAPPA, PATIENCE_S

pytestmark = [pytest.mark.timeout(TIMEOUT_S), pytest.mark.xdist_group("views-1")]
only_in_soaks = pytest.mark.skipif(not IS_SOAK, reason="takes many minutes: script/soak runs it")


@pytest.fixture
def harness(tmp_path) -> Iterator[ViewsHarness]:
    made = ViewsHarness(tmp_path)
    yield made
    made.close()


@pytest.fixture
def postgresql_harness(tmp_path, mortal_postgresql) -> Iterator[ViewsHarness]:
    made = ViewsHarness(tmp_path, url=mortal_postgresql.url)
    yield made
    made.close()


def test_each_of_them_is_killed(postgresql_harness, mortal_postgresql):
    harness = postgresql_harness
    harness.begins(reader_may_fail=True)
    harness.comes_to_a_random_point()
    harness.server.kill()
    harness.hesitates(2)
    harness.server.start()
    harness.comes_to_a_random_point()
    mortal_postgresql.kill()
    harness.hesitates(2)
    mortal_postgresql.start()
    harness.comes_to_a_random_point()
    kill_the_driver(harness)
    harness.sees_equal_offsets()
    harness.ends_well()


@only_in_soaks
def test_the_driver_is_killed(harness):
    harness.begins()
    for number in range(KILLS):
        if harness.pick.random() < 0.25:
            harness.hesitates(10)  # it may not have got anywhere since the last time
        else:
            harness.comes_to_a_random_point()
        if number == KILLS // 2:
            harness.project.change_the_kappa_query()
            harness.project.apply()
            harness.hesitates(5)  # into the replay, or past it
        kill_the_driver(harness)
    harness.project.waits_until(lambda: harness.project.serving(KAPPA) == 2, "the changed query does not serve")
    harness.ends_well()


def kill_the_driver(harness: ViewsHarness) -> None:
    """Its Python, its JVM or both; and starts it again, where it does not do so by itself."""
    project = harness.project
    jvm = project.jvm
    how = harness.pick.choice(["python", "jvm", "both"])
    if how == "jvm" and jvm is not None:
        jvm.kill()
        project.waits_until(lambda: project.jvm not in (None, jvm), "no other JVM is started")
        # A version that is at work at two deaths, and gets nowhere in between, is set aside.
        harness.comes_to_a_random_point()
        return
    if how == "both" or jvm is None:
        project.kill()
    else:
        project.process.kill()
        project.ends()
        # The next one may start while this is still about to end.
        assert not psutil.wait_procs([jvm], PATIENCE_S)[1], "the JVM outlives its Python"
    project.start()


@only_in_soaks
def test_the_broker_is_killed(harness):
    harness.begins()
    for _ in range(KILLS):
        harness.comes_to_a_random_point()
        harness.server.kill()
        harness.hesitates(2)
        harness.server.start()
    harness.ends_well()


@only_in_soaks
def test_the_database_is_killed(postgresql_harness, mortal_postgresql):
    harness = postgresql_harness
    harness.begins(reader_may_fail=True)
    for _ in range(KILLS):
        harness.comes_to_a_random_point()
        mortal_postgresql.kill()
        harness.hesitates(2)
        mortal_postgresql.start()
    harness.ends_well()
