"""The log loses records that a view has not read yet. The view reports that and stops; its last answer stays readable.

A view never continues over a gap: neither over records that retention has deleted, nor in a topic that was deleted and
created again, whether the runner was running at that time or not.
"""

import json
import random
import shutil
import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from clicks_truth import PLACES, Clicks, Sample, Truth, check_everything, make_topic
from lasting_server import Server
from views_process import LAMBDA, TOPIC, VIEWS, ViewsProject

from headrace import Admin

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("views-1")]
HISTORY = 3000


@pytest.fixture(scope="module")
def shared_project(tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A broker and a runner for all tests: Spark takes longer to start than they do."""
    folder = tmp_path_factory.mktemp("losses")
    server = Server(folder / "broker")
    clicks = Clicks(server.address, random.Random(5))
    options = {"default.api.timeout.ms": "10000"}  # so long a topic that is gone is looked for
    project = ViewsProject(folder / "project", server.address, batch_every="1 hour", log_options=options)
    yield SimpleNamespace(server=server, clicks=clicks, project=project)
    project.close()
    clicks.close()
    server.close()


@pytest.fixture
def harness(shared_project) -> Iterator[SimpleNamespace]:
    """Both views have counted all there is. In the end they begin anew, as they advise if something is lost."""
    server, project = shared_project.server, shared_project.project
    make_topic(server.address)
    shared_project.clicks.write(HISTORY)
    project.apply()
    if not project.is_running:
        project.start()
    project.serves()
    yield SimpleNamespace(**vars(shared_project), truth=check_everything(project, server.address))
    for view in VIEWS:
        project.command("views", "drop", view)
    shutil.rmtree(project.folder / "archive", ignore_errors=True)  # there is none before the first batch
    delete_topic(server)


def cut(server: Server) -> None:
    """As retention does, up to the end of the log."""
    with Admin(bootstrap_servers=server.address) as admin:
        admin.delete_records(dict.fromkeys(PLACES, -1)).all()


def delete_topic(server: Server) -> None:
    with Admin(bootstrap_servers=server.address) as admin:
        admin.delete_topics([TOPIC]).all()


def fails(project: ViewsProject, *words: str) -> None:
    """Both views come to say why they cannot go on, in the catalog and in ``views status``."""
    for view in VIEWS:
        project.waits_until(lambda view=view: has_failed(project, view, words), f"{view} did not notice")
    status = project.command("views", "status", "--json")
    assert status.count('"failed"') >= len(VIEWS), status
    assert json.loads(status)


def has_failed(project: ViewsProject, view: str, words: tuple[str, ...]) -> bool:
    state, error = project.states(view)[1]
    return state == "failed" and any(word in (error or "") for word in words)


def still_says(project: ViewsProject, truth: Truth) -> None:
    """Checks that both views still show the rows that were right before."""
    for view in VIEWS:
        sample = Sample.of(view, project.ask(view))
        assert sample.next_offsets == truth.next_offsets
        truth.check(sample)


def test_retention_cuts_what_was_not_read_yet(harness):
    harness.project.command("views", "batch", LAMBDA)
    cut(harness.server)  # all of it was read, and is in the archive: nothing is lost
    harness.clicks.write(300)
    for view in VIEWS:
        harness.project.waits_until(lambda view=view: harness.project.counted(view) == HISTORY + 300, f"{view} stopped")
    harness.project.signal_all(signal.SIGSTOP)
    harness.clicks.write(300)  # a fetch that waits at the broker is answered with these, at most
    harness.clicks.write(300)
    truth = Truth(harness.server.address, earlier=harness.truth)
    cut(harness.server)
    harness.clicks.write(300)
    harness.project.signal_all(signal.SIGCONT)
    fails(harness.project, "no more", "begins at", "lost")
    for view in VIEWS:
        truth.check(Sample.of(view, harness.project.ask(view)))


def test_the_topic_is_deleted(harness):
    delete_topic(harness.server)
    fails(harness.project, "no topic")
    still_says(harness.project, harness.truth)
    make_topic(harness.server.address)
    harness.clicks.write(2 * HISTORY)  # the offsets that the views have come to are there again, with other clicks
    harness.project.kill()
    harness.project.start()
    fails(harness.project, "deleted and created again")
    still_says(harness.project, harness.truth)


def test_the_topic_is_made_anew_while_nobody_looks(harness):
    assert harness.project.terminate() == 0, harness.project.log()
    delete_topic(harness.server)
    make_topic(harness.server.address)
    harness.clicks.write(2 * HISTORY)
    harness.project.start()
    fails(harness.project, "deleted and created again")
    still_says(harness.project, harness.truth)
