"""Views whose driver, broker or database is killed with ``kill -9`` at random points, again and again.

Whatever was killed comes back. In the end both views are exactly what the topic says; and in between every answer that
a reader got was right for the offsets that it named.

``script/test`` kills each of them once, in one life; ``script/soak`` each of them many times, in a life of its own.
"""

from collections.abc import Iterator

import psutil
import pytest
from views_process import KAPPA, PATIENCE_S
from views_scene import IS_SOAK, KILLS, TIMEOUT_S, Scene

pytestmark = [pytest.mark.timeout(TIMEOUT_S), pytest.mark.xdist_group("views")]
only_in_soaks = pytest.mark.skipif(not IS_SOAK, reason="takes many minutes: script/soak runs it")


@pytest.fixture
def scene(tmp_path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture
def postgresql_scene(tmp_path, mortal_postgresql) -> Iterator[Scene]:
    made = Scene(tmp_path, url=mortal_postgresql.url)
    yield made
    made.close()


def test_each_of_them_is_killed(postgresql_scene, mortal_postgresql):
    scene = postgresql_scene
    scene.begins()
    scene.watcher.may_fail = True
    scene.comes_to_a_random_point()
    scene.server.kill()
    scene.hesitates(2)
    scene.server.start()
    scene.comes_to_a_random_point()
    mortal_postgresql.kill()
    scene.hesitates(2)
    mortal_postgresql.start()
    scene.comes_to_a_random_point()
    kill_the_driver(scene)
    scene.ends_well()


@only_in_soaks
def test_the_driver_is_killed(scene):
    scene.begins()
    for number in range(KILLS):
        if scene.pick.random() < 0.25:
            scene.hesitates(10)  # it may not have got anywhere since the last time
        else:
            scene.comes_to_a_random_point()
        if number == KILLS // 2:
            scene.project.change_the_kappa_query()
            scene.project.apply()
            scene.hesitates(5)  # into the replay, or past it
        kill_the_driver(scene)
    scene.project.waits_until(lambda: scene.project.serving(KAPPA) == 2, "the changed query does not serve")
    scene.ends_well()


def kill_the_driver(scene: Scene) -> None:
    """Its Python, its JVM or both; and starts it again, where it does not do so by itself."""
    project = scene.project
    jvm = project.jvm
    how = scene.pick.choice(["python", "jvm", "both"])
    if how == "jvm" and jvm is not None:
        jvm.kill()
        project.waits_until(lambda: project.jvm not in (None, jvm), "no other JVM is started")
        # A version that is at work at two deaths, and gets nowhere in between, is set aside.
        scene.comes_to_a_random_point()
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
def test_the_broker_is_killed(scene):
    scene.begins()
    for _ in range(KILLS):
        scene.comes_to_a_random_point()
        scene.server.kill()
        scene.hesitates(2)
        scene.server.start()
    scene.ends_well()


@only_in_soaks
def test_the_database_is_killed(postgresql_scene, mortal_postgresql):
    scene = postgresql_scene
    scene.begins()
    scene.watcher.may_fail = True
    for _ in range(KILLS):
        scene.comes_to_a_random_point()
        mortal_postgresql.kill()
        scene.hesitates(2)
        mortal_postgresql.start()
    scene.ends_well()
