"""headrace views, all but apply and run: what needs neither Spark nor, mostly, a log."""

import io
import itertools
import json
import re
import subprocess
import sys
import threading
import tomllib
from importlib.resources import files
from pathlib import Path
from time import monotonic

import pytest
from rich.console import Console

from headrace import Admin, Broker, Consumer, Producer
from headrace.client.admin.types import NewTopic
from headrace.pipeline.changes.publishing_state import store_failure as publish_failure
from headrace.pipeline.export.export_state import store_failure as export_failure
from headrace.pipeline.management.progress import LogEnds, VersionProgress
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import Publish, ViewDefinition
from headrace.pipeline.project.loading import read_project
from headrace.pipeline.runner.lock import runner_lock
from headrace.pipeline.serving.catalog import Catalog, DesiredState, Progress, Report, VersionEvent, VersionState
from headrace.pipeline.serving.catalog_tables.schema_changes import Place, SchemaChange, SchemaChanges, VersionChanges
from headrace.pipeline.serving.catalog_tables.version_costs import Cost, VersionCosts
from headrace.pipeline.serving.catalog_tables.versions import PROGRESS
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import SystemClock
from headrace.tools.views.command import COMMANDS, main
from headrace.tools.views.watch import Rates, bars

DEFINITION = ViewDefinition("pages", ("clicks",), "", "kappa", FileText("", ""), Decode()).as_dict()
REPORT = Report("pages", 1)
NOT_AT_WORK = "'headrace views run' is not running"


class Project:
    """A project whose catalog the test fills, and the commands on it."""

    def __init__(self, folder: Path, capsys) -> None:
        self.folder, self._capsys = folder, capsys
        url = f"sqlite:///{folder}/views.db"
        (folder / "headrace.toml").write_text(
            f'[serving]\nurl = "{url}"\n[log]\nbootstrap = "127.0.0.1:1"\noptions = {{"reconnect.backoff.ms" = "10"}}\n'
        )
        self.url = url
        self.database = Database(url)
        self.catalog = Catalog(self.database)

    def add(self, *events, view="pages", offsets=None):
        self.catalog.create_view(view, "kappa", "hash")
        number = self.catalog.add_version(view, DEFINITION, "hash").version
        with self.database.begin() as connection:
            self.catalog.set_select(connection, view, number, f"SELECT {number} AS version")
            if offsets is not None:
                progress = Progress(view, number, 7, {"clicks": offsets}, 120, 3, 2)
                self.catalog.set_progress(connection, progress)
        for event in events:
            if event is VersionEvent.SWITCHED_TO:
                with self.database.begin() as connection:
                    self.catalog.switch(connection, view, number, f"SELECT {number} AS version")
            else:
                self.catalog.set_state(view, number, event)
        return number

    def seen(self, view="pages"):
        with self.database.read() as connection:
            return connection.exec_driver_sql(f"SELECT version FROM {view}").scalar()

    def __call__(self, *arguments):
        code = main([*map(str, arguments), "--project", str(self.folder)])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def value(self, *arguments):
        code, out, err = self(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def project(tmp_path, capsys):
    made = Project(tmp_path, capsys)
    yield made
    made.database.close()


READY = (VersionEvent.STARTED, VersionEvent.CAUGHT_UP)
SERVING = (*READY, VersionEvent.SWITCHED_TO)


# ---------------------------------------------------------------------------------------------------------------- init


def test_init_makes_a_project_without_problems(tmp_path, capsys):
    folder = tmp_path / "shop"
    assert main(["init", str(folder), "--bootstrap-server", "127.0.0.1:1234"]) == 0
    draft = read_project(folder)
    assert draft.problems == []
    made = draft.project
    assert {name: view.architecture for name, view in made.views.items()} == {"pages": "lambda", "users": "kappa"}
    assert made.bootstrap == "127.0.0.1:1234"
    out = capsys.readouterr().out
    assert "headrace topics --create --topic clicks" in out
    assert f"headrace views apply --project {folder}" in out
    compile((folder / "produce.py").read_text(), "produce.py", "exec")


def test_init_overwrites_nothing(tmp_path, capsys):
    assert main(["init", str(tmp_path)]) == 0
    (tmp_path / "views" / "users.sql").write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    (tmp_path / "headrace.toml").unlink()
    assert main(["init", str(tmp_path)]) == 1
    assert (tmp_path / "views" / "users.sql").read_text() == "mine"
    assert "exists already" in capsys.readouterr().err


@pytest.fixture
def no_topics(admin):
    admin.delete_topics([topic for topic in admin.list_topics() if topic.startswith("clicks")]).all()


def test_init_creates_the_topics(tmp_path, capsys, broker, admin, no_topics):
    arguments = ["init", "--create-topics", "--bootstrap-server", broker.bootstrap_servers]
    assert main([*arguments, str(tmp_path / "one")]) == 0
    assert main([*arguments, str(tmp_path / "two")]) == 0
    assert {"clicks", "clicks.dead"} <= set(admin.list_topics())
    out = capsys.readouterr().out
    assert "created the topic clicks\n" in out
    assert "the topic clicks exists already\n" in out


def test_the_producer_of_the_example_sends_clicks(tmp_path, broker, no_topics):
    main(["init", str(tmp_path), "--create-topics", "--bootstrap-server", broker.bootstrap_servers])
    subprocess.run([sys.executable, str(tmp_path / "produce.py"), "20", "100000"], check=True)
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    with Consumer("clicks", **servers, group_id="test", auto_offset_reset="earliest") as consumer:
        first = json.loads(next(iter(consumer)).value)
    assert set(first) == {"user", "page", "ms", "at"}


def test_the_example_says_what_init_says_is_its_default():
    text = (files("headrace.tools.views") / "example_project" / "headrace.toml").read_text()
    assert tomllib.loads(text)["log"]["bootstrap"] == "127.0.0.1:9092"


# -------------------------------------------------------------------------------------------------------- list, status


def test_list_shows_views_and_files_that_are_not_applied(project):
    project.add(*SERVING)
    project.add(*READY)
    (project.folder / "views").mkdir()
    (project.folder / "views" / "new.toml").write_text("not even TOML")
    code, out, err = project("list")
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=4) for line in out.splitlines()[1:]] == [
        ["pages", "kappa", "v1", "serving", "v1 serving, v2 caught_up"],
        ["new", "-", "-", "-", "not applied yet"],
    ]
    assert project.value("list")[0]["serving_version"] == "v1"


def test_nothing_is_told_in_words(project):
    assert project("list")[1] == "there are no views\n"
    assert project("status")[1] == "there are no versions\n"


def test_status_of_a_log_that_is_away_leaves_its_numbers_out(project):
    project.add(*SERVING, offsets={0: 120})
    project.add()
    project.catalog.set_state("pages", 2, VersionEvent.FAILED, error="there is no topic 'clicks'")
    code, out, err = project("status")
    assert code == 0
    assert [line.split()[:8] for line in out.splitlines()[1:]] == [
        ["pages", "v1", "serving", "stream", "-", "120", "3", "2"],
        ["pages", "v2", "failed", "stream", "-", "-", "-", "-"],
    ]
    assert "pages v2 failed: there is no topic 'clicks'\n" in err
    assert NOT_AT_WORK in err


def test_status_says_how_far_behind_the_log_a_version_is(project, broker, admin, no_topics):
    with (project.folder / "headrace.toml").open("w") as file:
        file.write(f'[serving]\nurl = "{project.url}"\n[log]\nbootstrap = "{broker.bootstrap_servers}"\n')
    fill(admin, broker, "clicks", 10)
    project.add(*SERVING, offsets={0: 4})
    project.add(VersionEvent.STARTED)
    value = project.value("status", "pages")
    assert value["running"] is False
    assert [(one["records_behind"], one["records_total"]) for one in value["versions"]] == [(6, 10), (10, 10)]
    assert value["versions"][0] | {"updated_ms": 0, "age_ms": 0} == {
        "view": "pages", "version": 1, "architecture": "kappa", "way": "stream", "state": "serving", "serves": True,
        "wanted": "run", "error": None, "retry_ms": None, "obstacle": None, "records_behind": 6, "records_reading": 0,
        "records_total": 10, "records_per_s": None,
        "seconds_left": None, "batch_id": 7, "offsets": {"clicks": {"0": 4}}, "own_offsets": None,
        "events": 120, "dead_letters": 3,
        "dropped_late": 2, "updated_ms": 0, "complete_ms": None, "age_ms": 0,
        "cost": None, "schema_changes": [],
    }  # fmt: skip


def test_status_says_what_a_version_costs(project):
    project.add(*SERVING, offsets={0: 4})
    project.add()
    cost = Cost(busy=0.034, micro_batch_ms=12.5, records_per_s=900.0, cpu_cores=0.02)
    VersionCosts(project.database).write({("pages", 1): cost, ("pages", 2): cost})
    first, second = project.value("status")["versions"]
    assert first["cost"] == {"busy": 0.034, "micro_batch_ms": 12.5, "records_per_s": 900.0, "cpu_cores": 0.02}
    assert second["cost"] is None, "it does not run"
    with runner_lock(project.url):
        _, out, _ = project("status")
    assert [line.split()[-1] for line in out.splitlines()] == ["BUSY", "3%", "-"]


def test_status_says_which_columns_records_no_longer_have(project):
    project.add(*SERVING, offsets={0: 4})
    missing = SchemaChange("missing", "orders", "shop.orders", "price", Place(0, 500, 0), 120, 0.5)
    new = SchemaChange("new", "orders", "shop.orders", "cost", Place(1, 7, 0))
    SchemaChanges(project.database).write({("pages", 1): VersionChanges((missing, new), {})})
    _, _, err = project("status")
    assert err.splitlines()[:2] == [f"pages v1: {missing.text}", f"pages v1: {new.text}"]
    (version,) = project.value("status")["versions"]
    assert version["schema_changes"][0] == {
        "kind": "missing", "source": "orders", "topic": "shop.orders", "column": "price", "records": 120, "share": 0.5,
        "since": {"partition": 0, "offset": 500, "timestamp_ms": 0},
    }  # fmt: skip
    SchemaChanges(project.database).write({("pages", 1): VersionChanges((), {"orders": {}})})
    assert SchemaChanges(project.database).read() == {("pages", 1): VersionChanges((), {"orders": {}})}


def fill(admin: Admin, broker: Broker, topic: str, count: int) -> None:
    admin.create_topics([NewTopic(topic, 1)]).all()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(topic, b"{}")


def test_watching_ends_when_all_have_caught_up(project):
    project.add(*SERVING, offsets={0: 1})
    project.add(VersionEvent.STARTED)
    done = threading.Event()

    def catch_up():
        project.catalog.set_state("pages", 2, VersionEvent.CAUGHT_UP)
        done.set()

    timer = threading.Timer(0.3, catch_up)
    with runner_lock(project.url):
        timer.start()
        code, out, _ = project("status", "--watch")
    timer.join()
    assert (code, done.is_set()) == (0, True)
    assert out.splitlines() == ["pages v1 serving", "pages v2 replaying", "pages v2 caught_up"]


def test_watching_says_if_nothing_will_change_or_something_failed(project, monkeypatch):
    monkeypatch.setattr("headrace.tools.views.watch.PATIENCE_S", 0.1)
    project.add(VersionEvent.STARTED)
    code, _, err = project("status", "--watch")
    assert (code, NOT_AT_WORK in err) == (1, True)
    project.catalog.set_state("pages", 1, VersionEvent.FAILED, error="why")
    code, _, err = project("status", "--watch")
    assert (code, err) == (1, "pages v1 failed: why\n")


def test_what_failed_and_is_tried_again_is_waited_for(project, monkeypatch):
    project.add(VersionEvent.STARTED)
    project.catalog.set_state("pages", 1, VersionEvent.FAILED, error="no broker", due_ms=1)
    assert "pages v1 failed, and will be tried again: no broker\n" in project("status")[2]

    looks, looked_twice = itertools.count(1), threading.Event()  # the first state is shown before the second look
    monkeypatch.setattr(LogEnds, "refresh", lambda _: next(looks) > 1 and looked_twice.set())

    def come_back():
        assert looked_twice.wait(60)
        for event in (VersionEvent.RESTARTED, VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            project.catalog.set_state("pages", 1, event)

    recovery = threading.Thread(target=come_back)
    with runner_lock(project.url):
        recovery.start()
        code, out, _ = project("status", "--watch")
    recovery.join()
    assert code == 0
    assert out.splitlines()[0] == "pages v1 failed, and will be tried again: no broker"
    assert out.splitlines()[-1] == "pages v1 caught_up"


def test_a_watcher_sees_the_last_error_while_the_next_try_is_under_way(project):
    project.add(VersionEvent.STARTED)
    project.catalog.set_reports([Report("pages", 1, obstacle="failed at its last try: no broker")])
    timer = threading.Timer(0.3, project.catalog.set_state, ("pages", 1, VersionEvent.CAUGHT_UP))
    with runner_lock(project.url):
        timer.start()
        out = project("status", "--watch")[1]
    timer.join()
    assert out.splitlines()[0] == "pages v1 replaying; it failed at its last try: no broker"
    assert "pages v1 failed at its last try: no broker\n" in project("status")[2]


def test_status_shows_failures_of_publishing_and_exporting_only_while_the_view_does_so(project):
    project.add(*SERVING)
    publish_failure(project.database, "pages", Publish("out"), ValueError("it is full"), 1)
    export_failure(project.database, "pages", "exports/pages", ValueError("no room"), 1)
    values = DEFINITION | {"publish": {"topic": "out"}, "export": {"path": "exports/pages"}}
    with project.database.begin() as connection:
        project.catalog.set_definition(connection, "pages", 1, values)
    said = project("status")[2]
    assert "pages: publishing to out fails and is tried again: it is full\n" in said
    assert "pages: exporting to exports/pages fails and is tried again: no room\n" in said
    with project.database.begin() as connection:
        project.catalog.set_definition(connection, "pages", 1, DEFINITION)
    said = project("status")[2]
    assert "publishing" not in said
    assert "exporting" not in said


def test_status_says_why_a_version_that_has_caught_up_does_not_serve(project):
    project.add(*SERVING, offsets={0: 120})
    project.add(VersionEvent.STARTED, VersionEvent.CAUGHT_UP)
    project.catalog.set_reports([Report("pages", 2, obstacle="is not switched to: view report depends on view pages")])
    assert "pages v2 is not switched to: view report depends on view pages\n" in project("status")[2]
    assert project.value("status")["versions"][1]["obstacle"].startswith("is not switched to")


def test_the_progress_within_a_batch_is_shown(project, broker, admin, no_topics):
    with (project.folder / "headrace.toml").open("w") as file:
        file.write(f'[serving]\nurl = "{project.url}"\n[log]\nbootstrap = "{broker.bootstrap_servers}"\n')
    fill(admin, broker, "clicks", 10)
    project.add(VersionEvent.STARTED)
    project.catalog.set_reports([Report("pages", 1, reading=4)])
    (version,) = project.value("status")["versions"]
    assert (version["records_behind"], version["records_reading"]) == (10, 4)
    timer = threading.Timer(0.5, project.catalog.set_state, ("pages", 1, VersionEvent.CAUGHT_UP))
    with runner_lock(project.url):
        timer.start()
        out = project("status", "--watch")[1]
    timer.join()
    words = "10 of 10 records behind, 4 of them read by the current batch"
    assert out.splitlines()[0] == f"pages v1 replaying: {words}"


def test_a_quiet_topic_that_is_fully_read_does_not_make_a_view_look_old(project):
    """The rows were last written an hour ago, and the log was compared with them a moment ago."""
    now_ms = SystemClock().wall_ms()
    project.add(*SERVING, offsets={0: 120})
    with project.database.begin() as connection:
        connection.execute(PROGRESS.update().values(updated_ms=now_ms - 3_600_000))
    assert project.value("status")["versions"][0]["age_ms"] >= 3_600_000
    project.catalog.set_reports([Report("pages", 1, complete_ms=now_ms)])
    project.catalog.set_reports([Report("pages", 1)])  # a version that was started again does not know yet
    (version,) = project.value("status")["versions"]
    assert version["complete_ms"] == now_ms
    assert 0 <= version["age_ms"] < 600_000
    assert re.search(r" \d+ s  -$", project("status")[1].splitlines()[1])


def test_on_a_terminal_there_are_bars(project):
    project.add(VersionEvent.STARTED)
    (version,) = project.catalog.versions()
    shown = io.StringIO()
    Console(file=shown, width=120).print(bars([VersionProgress(version, True, None, 250, 1000, REPORT, 125.0)]))
    assert re.fullmatch(
        r"pages v1 +replaying \(serves\) +\S+ +250 behind +125/s +2 s left\s*", shown.getvalue().replace("╸", "━")
    )


def test_rates_are_of_what_was_seen_lately():
    rates = Rates()
    version = type("Version", (), {"label": "pages v1", "state": VersionState.REPLAYING})()
    seen = [VersionProgress(version, False, None, behind, 1000, REPORT) for behind in (1000, 900, 500)]
    assert [rates.of(each, at) for each, at in zip(seen, (0.0, 1.0, 12.0), strict=True)] == [None, 100.0, None]
    assert VersionProgress(version, False, None, 300, 1000, REPORT, 100.0).seconds_left == 3.0


# ---------------------------------------------------------------------------------------------------- switch, rollback


def test_switch_takes_the_newest_that_has_caught_up(project):
    project.add(*SERVING)
    for _ in range(2):
        project.add(*READY)
    project.add(VersionEvent.STARTED)
    assert project("switch", "pages") == (0, "pages v3 serves from now on, v1 before\n", "")
    assert project.seen() == 3
    assert project("switch", "pages", 2)[0] == 0
    assert project.seen() == 2
    assert project.value("rollback", "pages") == {
        "view": "pages",
        "version": 3,
        "before": 2,
        "together_with": [],
    }
    assert (project.seen(), project.catalog.version("pages", 2).state) == (3, VersionState.STANDBY)
    assert project("switch", "pages", 3) == (0, "pages v3 serves already\n", "")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ((), "pages v2 is starting, so readers cannot be switched to it; wait until it has caught up"),
        (
            (VersionEvent.STARTED,),
            "pages v2 is replaying, so readers cannot be switched to it; wait until it has caught up",
        ),
        (
            (VersionEvent.STOPPED,),
            "pages v2 is stopped, so readers cannot be switched to it; start it with 'headrace views run'",
        ),
        ((VersionEvent.FAILED,), "pages v2 is failed, so readers cannot be switched to it; it says: None"),
        (
            (VersionEvent.DROPPED,),
            "pages v2 is dropping, so readers cannot be switched to it; apply its definition again",
        ),
    ],
)
def test_readers_are_only_sent_where_everything_is(project, events, words):
    project.add(*SERVING)
    project.add(*events)
    assert project("switch", "pages", 2) == (1, "", f"headrace views: {words}\n")
    assert project.seen() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["switch", "pagez"], "there is no view 'pagez'"),
        (["switch", "pages", "9"], "pages has no version 9"),
        (["switch", "pages"], "no newer version of pages has caught up"),
        (["rollback", "pages"], "pages has no earlier version: the view was never switched"),
        (["drop", "pages", "1"], "pages v1 serves: switch to another version before you drop it"),
        (["batch", "pages"], NOT_AT_WORK),
        (["status", "nobody"], "there is no view 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(project, arguments, words):
    project.add(*SERVING)
    code, out, err = project(*arguments)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert words in err


def test_a_restart_is_asked_of_the_runner(project):
    project.add(VersionEvent.FAILED)
    code, out, err = project("switch", "pages", "--restart")
    assert (code, out) == (0, "the failed versions of pages will be tried again\n")
    assert NOT_AT_WORK in err
    assert [request.kind for request in project.catalog.open_requests()] == ["restart"]


# --------------------------------------------------------------------------------------------------------- drop, batch


def test_a_version_is_dropped_by_the_next_runner_if_there_is_none(project):
    project.add(*SERVING)
    project.add(*READY)
    code, out, err = project("drop", "pages", 2)
    assert (code, out) == (0, "pages v2 will be dropped\n")
    assert NOT_AT_WORK in err
    assert project.catalog.version("pages", 2).desired_state is DesiredState.DROP
    assert "caught_up (to be dropped)" in project("status")[1]


def test_dropping_a_view_takes_it_from_its_readers_at_once(project):
    project.add(*SERVING)
    project.add(*READY)
    (project.folder / "views").mkdir()
    (project.folder / "views" / "pages.toml").touch()
    code, out, err = project("drop", "pages")
    assert (code, out) == (0, "pages will be dropped\n")
    assert "pages.toml still exists: the next 'headrace views apply' creates the view again" in err
    assert {version.desired_state for version in project.catalog.versions()} == {DesiredState.DROP}
    with project.database.read() as connection:
        assert not connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE type = 'view'").all()


class FakeRunner:
    """Answers what is asked, in a thread, while it holds the lock."""

    def __init__(self, project, step):
        self._project, self._step = project, step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._lock = runner_lock(project.url)

    def _run(self):
        until = monotonic() + 30
        while not self._stop.is_set() and monotonic() < until:
            self._step(self._project)
            self._stop.wait(0.02)

    def __enter__(self):
        self._lock.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self._lock.__exit__()


def test_a_drop_is_waited_for(project):
    project.add(*SERVING)
    project.add(*READY)

    def step(project):
        for version in project.catalog.versions():
            if version.desired_state is DesiredState.DROP:
                project.catalog.set_state(version.view, version.version, VersionEvent.DROPPED)
                with project.database.begin() as connection:
                    project.catalog.remove_version(connection, version.view, version.version)

    with FakeRunner(project, step):
        assert project("drop", "pages", 2) == (0, "pages v2 is dropped\n", "")


@pytest.mark.parametrize("error", [None, "pages v1 is a kappa view, which has no batch"])
def test_a_batch_is_asked_of_the_runner_and_waited_for(project, error):
    project.add(*SERVING)
    asked = []

    def step(project):
        for request in project.catalog.open_requests():
            asked.append((request.kind, request.detail))
            project.catalog.finish_request(request.id, error=error)

    with FakeRunner(project, step):
        code, out, err = project("batch", "pages", "--full")
    assert asked == [("batch", {"full": True})]
    if error is None:
        assert (code, err) == (0, "")
        assert out.startswith("a full batch of pages is done, after ")
    else:
        assert (code, out, err) == (1, "", f"headrace views: {error}\n")


def test_a_batch_that_takes_too_long_is_not_waited_for(project):
    project.add(*SERVING)
    with runner_lock(project.url):
        code, _, err = project("batch", "pages", "--timeout", 1)
    assert (code, "not done after 1 ms; it continues" in err) == (1, True)


# ------------------------------------------------------------------------------------------------------------- all


def test_problems_of_the_project_have_a_line_each(tmp_path, capsys):
    (tmp_path / "headrace.toml").write_text("[log]\nbootstrap = 7\n[serving]\nurl = 'oracle://x'\n[nonsense]\n")
    assert main(["list", "--project", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(f"{tmp_path}/headrace.toml:" in line for line in lines)


def test_problems_are_there_for_programs_too(tmp_path, capsys):
    (tmp_path / "headrace.toml").write_text("[log]\nbootstrap = 7\n")
    assert main(["list", "--json", "--project", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    (problem,) = json.loads(captured.out)["problems"]
    assert problem == {
        "file": f"{tmp_path}/headrace.toml", "line": 2, "column": None,
        "message": "log.bootstrap must be a text in quotes",
    }  # fmt: skip
    assert captured.err == ""


def test_an_error_that_nobody_expected_is_one_line_unless_debug_asks_for_more(project, monkeypatch):
    def fails(*_):
        raise ZeroDivisionError(
            "An error occurred while calling o41.sql.\n: java.lang.Error: deep\n\tat a.b.C(C.java:1)"
        )

    monkeypatch.setattr("headrace.tools.views.status.list_views", fails)
    assert project("list") == (
        1, "", "headrace views: ZeroDivisionError: deep (--debug shows the whole error)\n",
    )  # fmt: skip
    code, _, err = project("list", "--debug")
    assert code == 1
    assert "Traceback (most recent call last)" in err
    assert "at a.b.C(C.java:1)" in err


def test_wrong_use(project):
    assert project("run", "--serve", "nowhere") == (
        2, "", "headrace views: 'nowhere' is not an address; write HOST:PORT (see headrace views --help)\n",
    )  # fmt: skip
    assert main(["nonsense"]) == 2
    assert main([]) == 2


def test_a_second_runner_is_told_before_spark_starts(project):
    with runner_lock(project.url):
        code, out, err = project("run")
    assert (code, out) == (1, "")
    assert "headrace views: another 'headrace views run' is running on this project (process " in err


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"apply", "explain", "run", "serve", "init"}))
def test_commands_start_without_spark_and_without_arrow(project, command):
    project.add(*SERVING)
    code = (
        "import sys; from headrace.tools.views.command import main; main(sys.argv[1:]);"
        "print([name for name in ('pyspark', 'pyarrow', 'numpy', 'starlette', 'numba') if name in sys.modules])"
    )
    arguments = [command, *(["pages"] if command not in ("list", "status") else []), "--project", str(project.folder)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
