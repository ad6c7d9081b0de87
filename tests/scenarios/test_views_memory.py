"""A view whose query exhausts the Java heap is suspended; the other views stay right.

The query asks for a text of nearly a gigabyte, which does not fit into a heap of half a gigabyte. So Java ends at the
first record.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from clicks_truth import Clicks, Sample, Truth, check_everything, make_topic
from lasting_server import Server
from views_harness import IS_SOAK
from views_process import KAPPA, LAMBDA, TOPIC, ViewsProject

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("views-0")]
GREEDY = "greedy"
_VIEW = f"""\
topics = ["{TOPIC}"]
architecture = "%s"
query = "{GREEDY}.sql"

[decode]
schema = "visitor STRING, page STRING, ms BIGINT"
"""
_SQL = "SELECT page, max(length(repeat(page, 400000000))) AS longest FROM events GROUP BY page"


class MemoryHarness:
    def __init__(self, folder: Path) -> None:
        self.server = Server(folder / "broker")
        make_topic(self.server.address)
        self.clicks = Clicks(self.server.address, random.Random(13))
        self.project = ViewsProject(folder / "project", self.server.address, memory="512m")

    def begins(self, architecture: str) -> None:
        views = self.project.folder / "views"
        (views / f"{GREEDY}.toml").write_text(_VIEW % architecture)
        (views / f"{GREEDY}.sql").write_text(_SQL)
        self.clicks.write(600)
        self.project.apply()

    def deaths(self) -> int:
        return self.project.log(10_000).count("Java process has died")

    def close(self) -> None:
        self.project.close()
        self.clicks.close()
        self.server.close()


@pytest.fixture
def harness(tmp_path) -> Iterator[MemoryHarness]:
    made = MemoryHarness(tmp_path)
    yield made
    made.close()


def test_a_view_that_exhausts_the_heap_is_set_aside_and_the_others_go_on(harness):
    harness.begins("lambda")
    project = harness.project
    project.start()
    project.waits_until(lambda: project.states(GREEDY)[1][0] == "failed", "the greedy view is not set aside")
    state, error = project.states(GREEDY)[1]
    assert "out of heap memory" in error
    assert f"headrace views switch {GREEDY} --restart" in error
    project.serves()
    check_everything(project, harness.server.address)
    assert harness.deaths() == 2

    jvm = project.jvm
    jvm.kill()  # as the system does it when memory is short
    harness.clicks.write(300)
    check_everything(project, harness.server.address)
    assert project.jvm.pid != jvm.pid
    assert project.terminate() == 0, project.log()

    project.start()  # the next one has not forgotten
    harness.clicks.write(300)
    check_everything(project, harness.server.address)
    assert project.states(GREEDY)[1] == (state, error)
    assert project.terminate() == 0, project.log()
    assert harness.deaths() == 3
    log = project.log(10_000)
    assert "Traceback" not in log, log
    assert "\tat " not in log, log


@pytest.mark.skipif(not IS_SOAK, reason="takes more than a minute: script/soak views runs it")
def test_running_once_ends_with_an_exit_code_that_tells(harness):
    harness.begins("kappa")
    project = harness.project
    project.start("--once")
    assert project.ends() == 1, project.log()
    assert project.states(GREEDY)[1][0] == "failed"
    assert harness.deaths() == 2
    truth = Truth(harness.server.address)
    for view in (LAMBDA, KAPPA):
        sample = Sample.of(view, project.ask(view))
        assert sum(sample.next_offsets.values()) == sum(truth.next_offsets.values())
        truth.check(sample)
    log = project.log(10_000)
    assert "Traceback" not in log, log
