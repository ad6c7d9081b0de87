"""The runner: how it acts on the catalog, with fake versions that the test controls."""

import threading
import time
from dataclasses import replace

import pytest

from headrace.client.errors import BrokerUnreachable
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.progress.lag import Lag
from headrace.pipeline.project.definition import Decode, FileText, KappaSettings, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.runner.decisions import DECISIONS, Decision, decide
from headrace.pipeline.runner.runner import Runner
from headrace.pipeline.serving.catalog import Catalog, DesiredState, VersionEvent, VersionState
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable
from headrace.pipeline.spark.session import SparkMissing
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.pipeline.version.running_version import Refused, RunningVersion
from headrace.pipeline.version.work_in_flight import Work
from headrace.testing import ManualClock

SELECT = "SELECT {} AS version"


class FakeVersion(RunningVersion):
    """Starts and stops at once. The test sets its lag and its failures."""

    def __init__(self, harness, context, version):
        super().__init__(context, version)
        self.harness, self.is_running, self.far = harness, False, Lag()
        self.broken = None
        self.asked = []

    def start(self):
        if self.label in self.harness.start_gates:
            self.harness.start_gates[self.label].wait(30)
        error = self.harness.start_errors.pop(self.label, None)
        if error is not None:
            raise error
        self.is_running = True
        self._begin()

    def _begin(self):
        with self.context.database.begin() as connection:
            select = self.select_sql(connection)
            self.context.catalog.set_select(connection, self.version.view, self.version.version, select)
            self.context.catalog.set_state(
                self.version.view, self.version.version, VersionEvent.STARTED, connection=connection
            )

    def stop(self, timeout_s=30):
        if self.harness.stop_errors:
            raise self.harness.stop_errors.pop()
        self.is_running = False
        self.harness.log.append(f"stop {self.label}")

    def failure(self):
        return self.broken

    def lag(self):
        return self.far

    def select_sql(self, connection):
        return self.harness.select.format(self.version.version, self.version.version)

    def request(self, request):
        if request.detail.get("never"):
            raise Refused("never")
        self.asked.append(request.id)
        return True

    def run_once(self):
        self._begin()
        if self.label in self.harness.greedy:
            with self.work.of(Work.BATCH):
                self.harness.java.is_dead = True
                raise ConnectionRefusedError(111, "Connection refused")
        error = self.harness.start_errors.pop(self.label, None)
        if error is not None:
            raise error

    def drop(self):
        self.harness.log.append(f"drop {self.label}")
        if self.harness.drop_errors:
            raise self.harness.drop_errors.pop()


class FakeJava:
    """A Java process whose death the test decides."""

    def __init__(self):
        self.is_dead, self.starts, self.start_errors = False, 0, []

    def has_ended(self):
        return self.is_dead

    def is_gone(self):
        return self.is_dead

    def exit_reason(self):
        return "out of heap memory, exit code 3"

    def restart(self):
        self.starts += 1
        if self.start_errors:
            raise self.start_errors.pop()
        self.is_dead = False
        return f"session {self.starts}"


class RunnerHarness:
    def __init__(self, url, folder):
        self.java = FakeJava()
        self.clock = ManualClock()
        self.database = Database(url)
        self.catalog = Catalog(self.database, self.clock)
        self.metrics = PipelineMetrics()
        project = Project(folder, "127.0.0.1:1", url, str(folder / "archive"), "local[1]", str(folder / "checkpoints"))
        self.context = RunContext(
            spark=None, project=project, database=self.database, catalog=self.catalog, clock=self.clock,
            checkpoints=project.checkpoints, metrics=self.metrics,
        )  # fmt: skip
        self.select = SELECT
        self.made, self.log, self.start_errors, self.drop_errors, self.stop_errors = {}, [], {}, [], []
        self.greedy = set()
        #: By the label of a version, what its start waits for.
        self.start_gates = {}
        self.runner = self.new_runner()

    def new_runner(self):
        def make(context, version):
            self.made[version.label] = FakeVersion(self, context, version)
            return self.made[version.label]

        return Runner(self.context, make, self.java)

    def apply(self, name="pages", switch="auto", **changes):
        definition = replace(DEFINITION, name=name, kappa=KappaSettings(switch=switch), **changes)
        self.catalog.create_view(name, definition.architecture, definition.definition_hash)
        return self.catalog.add_version(name, definition.as_dict(), definition.definition_hash)

    def tick(self, after_ms=200):
        self.clock.advance(after_ms)
        self.runner.tick()

    def catch_up(self, who="pages v1"):
        self.made[who].far = Lag(0, 100, 10.0)
        self.tick()

    def state(self, version=1, view="pages"):
        return self.catalog.version(view, version).state

    def serving(self, view="pages"):
        return self.catalog.view(view).serving_version

    def seen(self, view="pages"):
        """Returns the rows of the SQL view."""
        with self.database.read() as connection:
            return connection.exec_driver_sql(f"SELECT version FROM {view}").scalar()


DEFINITION = ViewDefinition(
    name="pages", topics=("clicks",), pattern="", architecture="kappa",
    query=FileText("pages.sql", "SELECT page, count(*) AS n FROM events GROUP BY page"),
    decode=Decode(schema="page STRING"),
)  # fmt: skip


@pytest.fixture
def harness(sqlite_url, tmp_path):
    made = RunnerHarness(sqlite_url, tmp_path)
    yield made
    made.database.close()


# ------------------------------------------------------------------------------------------------- starting, switching


def test_a_new_version_is_started_and_serves_when_it_has_caught_up(harness):
    harness.apply()
    harness.tick()
    assert (harness.state(), harness.serving()) == (VersionState.REPLAYING, None)
    harness.made["pages v1"].far = Lag(5_000, 10_000, 100.0)
    harness.tick()
    assert harness.state() is VersionState.REPLAYING
    harness.catch_up()
    assert (harness.state(), harness.serving(), harness.seen()) == (VersionState.SERVING, 1, 1)


def test_the_first_version_serves_even_if_switching_is_manual(harness):
    harness.apply(switch="manual")
    harness.tick()
    harness.catch_up()
    assert harness.serving() == 1


def serving_with_a_second(harness, switch="auto"):
    harness.apply()
    harness.tick()
    harness.catch_up()
    harness.apply(switch=switch)
    harness.tick()
    harness.catch_up("pages v2")


def test_a_newer_version_takes_over_and_the_old_one_stands_by(harness):
    serving_with_a_second(harness)
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.STANDBY, VersionState.SERVING, 2)
    assert harness.made["pages v1"].is_running
    assert harness.catalog.view("pages").previous_version == 1


def test_a_version_that_is_switched_by_hand_waits(harness):
    serving_with_a_second(harness, switch="manual")
    harness.tick()
    assert (harness.state(2), harness.seen()) == (VersionState.CAUGHT_UP, 1)


def test_a_version_that_is_far_behind_again_is_not_switched_to(harness):
    serving_with_a_second(harness, switch="manual")
    harness.made["pages v2"].far = Lag(9_000, 10_000)
    harness.tick()
    assert harness.state(2) is VersionState.CAUGHT_UP, "not for every record"
    harness.made["pages v2"].far = Lag(11_000, 20_000)
    harness.tick()
    assert harness.state(2) is VersionState.REPLAYING
    harness.catch_up("pages v2")
    assert harness.state(2) is VersionState.CAUGHT_UP


def test_after_a_rollback_the_newer_version_is_left_alone_also_by_the_next_runner(harness):
    serving_with_a_second(harness)
    with harness.database.begin() as connection:
        harness.catalog.switch(connection, "pages", 1, SELECT.format(1))
    harness.tick()
    harness.runner.close()
    assert (harness.state(1), harness.state(2), harness.serving()) == (VersionState.STOPPED, VersionState.STOPPED, 1)
    harness.runner = harness.new_runner()
    harness.tick()
    harness.catch_up("pages v1")
    harness.catch_up("pages v2")
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.SERVING, VersionState.CAUGHT_UP, 1)


def test_what_a_runner_that_died_left_behind_goes_on(harness):
    serving_with_a_second(harness)
    harness.runner = harness.new_runner()  # as after kill -9: the states are as they were
    harness.tick()
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.REPLAYING, VersionState.REPLAYING, 2)
    harness.catch_up("pages v2")
    harness.catch_up("pages v1")
    assert (harness.state(1), harness.state(2), harness.serving()) == (VersionState.CAUGHT_UP, VersionState.SERVING, 2)


def test_an_older_version_that_catches_up_late_is_not_switched_to(harness):
    harness.apply()
    harness.apply()
    harness.tick()
    harness.catch_up("pages v2")
    harness.catch_up("pages v1")
    assert (harness.serving(), harness.state(1)) == (2, VersionState.CAUGHT_UP)


def test_a_switch_that_readers_are_in_the_way_of_is_tried_again_later(harness, monkeypatch):
    tries = []

    def switch(*arguments):
        tries.append(arguments)
        raise DatabaseBusy("readers have held a view")

    harness.apply()
    harness.tick()
    monkeypatch.setattr(harness.catalog, "switch_all", switch)
    harness.catch_up()
    harness.tick()
    assert len(tries) == 1, "not at every round"
    monkeypatch.undo()
    harness.tick(after_ms=5_000)
    assert harness.serving() == 1


def obstacle(harness, version=1):
    return harness.catalog.reports()["pages", version].obstacle


@pytest.mark.parametrize("once", [False, True])
def test_a_switch_waits_for_a_users_view_says_so_and_happens_when_the_view_is_gone(postgresql_url, tmp_path, once):
    """PostgreSQL gives a view no other columns while a user's view depends on it."""
    harness = RunnerHarness(postgresql_url, tmp_path)
    harness.apply()
    harness.tick()
    harness.catch_up()
    with harness.database.begin() as connection:
        connection.exec_driver_sql("CREATE VIEW report AS SELECT version FROM pages")
    harness.select = "SELECT {} AS version2, {} AS version"
    harness.apply(topics=("others",))
    if once:
        harness.runner.close()
        assert harness.runner.run_once() == ["pages v2"], "its readers do not see it"
    else:
        harness.tick()
        harness.catch_up("pages v2")
        harness.tick()
        assert harness.state(2) is VersionState.CAUGHT_UP
    assert (harness.serving(), harness.seen("report")) == (1, 1)
    text = obstacle(harness, 2)
    assert text.startswith(
        "is not switched to, which is tried again every 5 s: other objects of the database depend on"
    )
    assert "view report depends on view pages" in text
    assert "drop them" in text
    with harness.database.begin() as connection:
        connection.exec_driver_sql("DROP VIEW report")
    if once:
        harness.runner = harness.new_runner()
        assert harness.runner.run_once() == []
    else:
        harness.tick(after_ms=5_000)
    assert (harness.serving(), harness.seen()) == (2, 2)
    assert obstacle(harness, 2) is None
    harness.database.close()


def test_the_same_obstacle_is_logged_once(harness, monkeypatch, caplog):
    monkeypatch.setattr(
        harness.catalog, "switch_all", lambda *_: (_ for _ in ()).throw(DatabaseBusy("readers have held it"))
    )
    harness.apply()
    harness.tick()
    harness.catch_up()
    for _ in range(3):
        harness.tick(after_ms=5_000)
    assert sum("readers have held it" in record.getMessage() for record in caplog.records) == 1


def test_a_select_that_the_database_refuses_is_an_obstacle(harness, monkeypatch):
    def switch(connection, _):
        connection.exec_driver_sql("SELECT absent")

    monkeypatch.setattr(harness.catalog, "switch_all", switch)
    harness.apply()
    harness.tick()
    harness.catch_up()
    assert "no such column: absent" in obstacle(harness)


def test_a_switch_by_a_command_ends_the_obstacle(harness, monkeypatch):
    monkeypatch.setattr(
        harness.catalog, "switch_all", lambda *_: (_ for _ in ()).throw(DatabaseBusy("readers have held it"))
    )
    harness.apply()
    harness.tick()
    harness.catch_up()
    assert "readers have held it" in obstacle(harness)
    monkeypatch.undo()
    with harness.database.begin() as connection:
        harness.catalog.switch(connection, "pages", 1, SELECT.format(1))
    harness.tick()
    harness.tick(after_ms=1_000)
    assert obstacle(harness) is None


def test_the_last_error_stays_until_a_version_has_moved(harness):
    harness.apply()
    harness.tick()
    harness.made["pages v1"].broken = BrokerUnreachable("no broker")
    harness.tick()
    harness.tick(after_ms=60_000)
    assert (harness.state(), harness.catalog.version("pages", 1).error) == (VersionState.REPLAYING, None)
    harness.tick(after_ms=1_000)
    assert obstacle(harness) == "failed at its last try: no broker"
    harness.metrics.micro_batch("pages", 1, seconds=1, events=5)
    harness.tick()
    assert obstacle(harness) is None


def test_what_a_version_reads_and_when_it_was_complete_is_told_once_a_second(harness):
    harness.apply()
    harness.tick()
    version = harness.made["pages v1"]
    version.far, version.reading = Lag(5_000, 10_000, 100.0), lambda: 1_200
    harness.tick(after_ms=1_000)
    assert harness.catalog.reports()["pages", 1].reading == 1_200
    version.far = Lag(0, 10_000, 100.0, complete_ms=harness.clock.wall_ms())
    first_ms = harness.clock.wall_ms()
    harness.tick(after_ms=1_000)
    assert harness.catalog.reports()["pages", 1].complete_ms == first_ms
    assert harness.metrics.of("pages", 1).age_seconds == 1.0
    version.far = Lag(0, 10_000, 100.0, complete_ms=harness.clock.wall_ms())
    harness.tick()
    assert harness.catalog.reports()["pages", 1].complete_ms == first_ms, "not at every round"
    version.broken = BrokerUnreachable("no broker")
    harness.tick()
    harness.tick(after_ms=1_000)
    report = harness.catalog.reports()["pages", 1]
    assert (report.reading, report.complete_ms) == (0, first_ms + 1_000)
    assert harness.metrics.of("pages", 1).age_seconds > 1.0


def test_a_version_that_ran_once_is_complete_as_of_when_it_began(harness):
    harness.apply()
    began_ms = harness.clock.wall_ms()
    harness.runner.run_once()
    assert harness.catalog.reports()["pages", 1].complete_ms == began_ms


def test_settings_that_change_restart_a_version_but_when_to_switch_does_not(harness):
    version = harness.apply()
    harness.tick()
    first = harness.made["pages v1"]
    for definition, is_the_same in (
        (replace(DEFINITION, kappa=KappaSettings(switch="manual")), True),
        (replace(DEFINITION, dead_letters="pages.dead"), False),
    ):
        with harness.database.begin() as connection:
            harness.catalog.set_definition(connection, version.view, version.version, definition.as_dict())
        harness.tick()
        harness.tick()
        assert (harness.made["pages v1"] is first) == is_the_same
    assert (first.is_running, harness.made["pages v1"].definition.dead_letters) == (False, "pages.dead")


# ------------------------------------------------------------------------------------------------------------ failures


def test_what_may_pass_is_tried_again_with_longer_waits(harness):
    harness.apply()
    harness.start_errors["pages v1"] = BrokerUnreachable("no broker")
    harness.tick()
    assert (harness.state(), harness.catalog.version("pages", 1).error) == (VersionState.FAILED, "no broker")
    assert harness.catalog.version("pages", 1).due_ms == harness.clock.wall_ms() + 500
    harness.tick(after_ms=499)
    assert harness.state() is VersionState.FAILED
    harness.start_errors["pages v1"] = BrokerUnreachable("still no broker")
    harness.tick(after_ms=1)
    assert harness.catalog.version("pages", 1).error == "still no broker"
    harness.tick(after_ms=999)
    assert harness.state() is VersionState.FAILED
    harness.tick(after_ms=1)
    assert (harness.state(), harness.catalog.version("pages", 1).error) == (VersionState.REPLAYING, None)
    assert harness.metrics.of("pages", 1).failures == 2


def test_what_will_not_pass_stays_failed_until_somebody_asks(harness):
    harness.apply()
    harness.tick()
    harness.made["pages v1"].broken = DataLost("offsets 0 to 9 are gone")
    harness.tick()
    harness.tick(after_ms=3_600_000)
    assert (harness.state(), harness.catalog.version("pages", 1).error) == (
        VersionState.FAILED,
        "offsets 0 to 9 are gone",
    )
    assert harness.catalog.version("pages", 1).due_ms is None
    asked = harness.catalog.add_request("pages", "restart")
    harness.tick()
    harness.tick()
    assert harness.state() is VersionState.REPLAYING
    assert harness.catalog.request(asked).done_ms is not None


def test_a_new_runner_tries_what_failed_in_the_one_before(harness):
    harness.apply()
    harness.start_errors["pages v1"] = DataLost("gone")
    harness.tick()
    harness.runner = harness.new_runner()
    harness.tick()
    assert harness.state() is VersionState.REPLAYING


def test_a_version_that_fails_while_it_serves_goes_on_being_read_and_the_others_run(harness):
    serving_with_a_second(harness)
    harness.made["pages v2"].broken = DataLost("gone")
    harness.tick()
    assert (harness.state(1), harness.state(2)) == (VersionState.STANDBY, VersionState.FAILED)
    assert (harness.serving(), harness.seen()) == (2, 2)
    assert harness.made["pages v1"].is_running


def test_a_failed_new_version_never_touches_the_one_that_serves(harness):
    harness.apply()
    harness.tick()
    harness.catch_up()
    harness.apply()
    harness.start_errors["pages v2"] = ValueError("a query that does not work")
    harness.tick()
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.SERVING, VersionState.FAILED, 1)


def test_a_user_may_have_switched_to_another_version_when_one_that_failed_is_back(harness):
    serving_with_a_second(harness)
    harness.made["pages v2"].broken = BrokerUnreachable("away")
    harness.tick()
    with harness.database.begin() as connection:
        harness.catalog.switch(connection, "pages", 1, SELECT.format(1))
    harness.tick(after_ms=500)
    harness.catch_up("pages v2")
    assert (harness.serving(), harness.state(1), harness.state(2)) == (1, VersionState.SERVING, VersionState.CAUGHT_UP)


# ---------------------------------------------------------------------------------------------------- the Java process


def at_work_on(harness, who, work=Work.STREAM):
    """From now on, until the test leaves the block."""
    return harness.made[who].work.of(work)


def the_greedy_one_kills_java(harness, who="greedy v1"):
    """As it does whenever it has begun."""
    harness.java.is_dead = True
    with pytest.raises(ConnectionRefusedError), at_work_on(harness, who):
        raise ConnectionRefusedError(111, "Connection refused")


def test_when_java_dies_another_one_is_started_and_all_go_on(harness):
    serving_with_a_second(harness)
    before = dict(harness.made)
    harness.java.is_dead = True
    harness.tick()
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.STOPPED, VersionState.STOPPED, 2)
    assert not any(made.is_running for made in before.values())
    harness.tick(after_ms=500)
    assert (harness.java.starts, harness.state(1), harness.state(2)) == (
        1,
        VersionState.REPLAYING,
        VersionState.REPLAYING,
    )
    assert all(harness.made[who] is not before[who] for who in before)
    assert {made.context.spark for made in harness.made.values()} == {"session 1"}
    harness.catch_up("pages v2")
    assert (harness.state(2), harness.seen()) == (VersionState.SERVING, 2)


def test_a_version_that_was_at_work_at_two_deaths_is_set_aside_and_the_others_go_on(harness, caplog):
    harness.apply("greedy")
    harness.apply()
    harness.tick()
    with at_work_on(harness, "pages v1"):
        the_greedy_one_kills_java(harness)
        harness.tick()
    harness.tick(after_ms=500)
    assert (harness.state(1, "greedy"), harness.state()) == (VersionState.REPLAYING, VersionState.STOPPED), (
        "one suspect at a time"
    )
    the_greedy_one_kills_java(harness)
    harness.tick()
    harness.tick(after_ms=1_000)
    found = harness.catalog.version("greedy", 1)
    assert (found.state, found.due_ms) == (VersionState.FAILED, None)
    assert "out of heap memory, exit code 3" in found.error
    assert "[spark] memory" in found.error
    assert "headrace views switch greedy --restart" in found.error
    harness.tick()
    with at_work_on(harness, "pages v1"):
        pass
    harness.catch_up()
    assert (harness.state(), harness.java.starts) == (VersionState.SERVING, 2)
    lines = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    assert len(lines) == 3, lines
    assert not any(record.exc_info for record in caplog.records if record.levelname != "DEBUG")

    harness.runner.close()
    harness.runner = harness.new_runner()  # the next start does not do the same again
    harness.tick()
    assert (harness.state(1, "greedy"), harness.state()) == (VersionState.FAILED, VersionState.REPLAYING)
    harness.catalog.add_request("greedy", "restart")
    harness.tick()
    harness.tick()
    assert harness.state(1, "greedy") is VersionState.REPLAYING


def test_a_death_during_a_start_is_seen_as_one(harness):
    harness.apply()
    harness.java.is_dead = True
    harness.start_errors["pages v1"] = ConnectionRefusedError(111, "Connection refused")
    harness.java.has_ended = lambda: False  # not yet reaped when it is asked first
    harness.tick()
    assert (harness.state(), harness.catalog.version("pages", 1).error) == (VersionState.STOPPED, None)
    harness.tick(after_ms=500)
    assert (harness.java.starts, harness.state()) == (1, VersionState.REPLAYING)


@pytest.fixture
def hanging(harness, monkeypatch):
    """A harness with two views; the start of the second one hangs."""
    monkeypatch.setattr("headrace.pipeline.runner.runner.START_WAIT_S", 1.0)
    harness.apply()
    harness.apply("hangs")
    gate = harness.start_gates["hangs v1"] = threading.Event()
    yield harness
    gate.set()


def wait_for(condition):
    give_up_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def test_a_start_that_hangs_does_not_delay_the_other_views(hanging, caplog):
    hanging.tick()
    hanging.catch_up()
    assert (hanging.state(), hanging.state(1, "hangs")) == (VersionState.SERVING, VersionState.STARTING)
    assert hanging.serving() == 1
    said = [record.getMessage() for record in caplog.records if "has not started within" in record.getMessage()]
    assert said == ["hangs v1: has not started within 1 s; the other views go on"]
    hanging.start_gates["hangs v1"].set()

    def serves():
        hanging.catch_up("hangs v1")
        return hanging.state(1, "hangs") is VersionState.SERVING

    wait_for(serves)  # the thread of the start ends a moment after the version runs


def test_a_version_that_hangs_in_its_start_can_be_dropped(hanging):
    hanging.tick()
    running = hanging.made["hangs v1"]
    hanging.catalog.set_desired_state("hangs", 1, DesiredState.DROP)
    hanging.tick()
    with hanging.database.read() as connection:
        assert [each.view for each in hanging.catalog.versions(None, connection)] == ["pages"]
    stops = hanging.log.count("stop hangs v1")
    hanging.start_gates["hangs v1"].set()  # its start goes on, and is stopped when it ends
    wait_for(lambda: hanging.log.count("stop hangs v1") > stops)
    assert not running.is_running


def test_the_runner_can_end_while_a_start_hangs(hanging):
    hanging.tick()
    hanging.runner.close()
    assert (hanging.state(), hanging.state(1, "hangs")) == (VersionState.STOPPED, VersionState.STOPPED)


class ContextOfDeadJava:
    """Spark's context, whose Java process does not answer any more.

    :param answers_runner: whether it still answered the thread of the runner.
    """

    def __init__(self, *, answers_runner):
        self._jsc, self._answers_runner = self, answers_runner

    def sc(self):
        if not self._answers_runner or threading.current_thread() is not threading.main_thread():
            raise ConnectionRefusedError(111, "Connection refused")
        return self

    def getLocalProperties(self):  # noqa: N802  a name of Java
        return self

    def clone(self):
        return {}


@pytest.mark.parametrize("answers_runner", [True, False])
def test_a_death_before_starts_side_by_side_is_seen_as_one(harness, monkeypatch, answers_runner):
    """The threads of the starts ask Java for its properties first."""
    harness.apply()
    harness.apply("users")
    harness.java.is_dead = True
    harness.java.has_ended = lambda: False  # not yet reaped when it is asked first
    with monkeypatch.context() as changed:
        changed.setattr("pyspark.SparkContext._active_spark_context", ContextOfDeadJava(answers_runner=answers_runner))
        harness.tick()
    assert (harness.state(), harness.state(1, "users")) == (VersionState.STOPPED, VersionState.STOPPED)
    harness.tick(after_ms=500)
    assert (harness.state(), harness.state(1, "users")) == (VersionState.REPLAYING, VersionState.REPLAYING)


def test_a_version_that_did_not_get_memory_is_tried_once_more_and_set_aside(harness):
    harness.apply()
    harness.tick()
    for state in (VersionState.REPLAYING, VersionState.FAILED):
        with pytest.raises(MemoryError), at_work_on(harness, "pages v1"):
            raise MemoryError
        harness.made["pages v1"].broken = RuntimeError(
            "Lost task 0.0: java.lang.OutOfMemoryError: Direct buffer memory"
        )
        harness.tick()
        harness.tick(after_ms=10_000)
        assert harness.state() is state
    assert "set aside" in harness.catalog.version("pages", 1).error
    assert harness.java.starts == 0
    harness.runner = harness.new_runner()
    harness.tick()
    assert harness.state() is VersionState.FAILED


def test_a_java_that_does_not_start_is_tried_a_few_times(harness):
    harness.apply()
    harness.tick()
    harness.java.is_dead, harness.java.start_errors = True, [SparkMissing("no Java")] * 5
    for _ in range(5):  # the first one notices the death
        harness.tick(after_ms=30_000)
    with pytest.raises(SparkMissing):
        harness.tick(after_ms=30_000)
    assert harness.java.starts == 5


def test_running_once_that_is_interrupted_says_what_is_not_there(harness):
    harness.apply()
    stop = threading.Event()
    stop.set()
    assert harness.runner.run_once(stop) == ["pages v1"]


def test_running_once_survives_the_death_of_java_and_tells_who_is_not_there(harness):
    harness.apply("greedy")
    harness.apply()
    harness.greedy = {"greedy v1"}
    assert harness.runner.run_once() == ["greedy v1"]
    assert (harness.java.starts, harness.state(1, "greedy"), harness.serving()) == (2, VersionState.FAILED, 1)
    assert harness.new_runner().run_once() == ["greedy v1"], "it is not tried again, and still not there"
    assert harness.java.starts == 2
    harness.greedy = set()
    harness.catalog.add_request("greedy", "restart")
    assert harness.new_runner().run_once() == []


# --------------------------------------------------------------------------------------------------- stopping, dropping


def test_stopping_the_runner_stops_everything_and_says_so(harness):
    serving_with_a_second(harness)
    stop = threading.Event()
    stop.set()
    harness.runner.run(stop)
    assert (harness.state(1), harness.state(2), harness.seen()) == (VersionState.STOPPED, VersionState.STOPPED, 2)
    assert not any(made.is_running for made in harness.made.values())


def test_a_version_that_does_not_stop_is_asked_again_and_the_others_go_on(harness, caplog):
    harness.apply()
    harness.apply("users")
    harness.tick()
    harness.stop_errors += [TimeoutError("pages v1 has not stopped after 30 s")] * 2
    harness.catalog.set_desired_state("pages", 1, DesiredState.STOP)
    harness.tick()
    harness.tick()
    assert harness.state() is VersionState.REPLAYING
    harness.catch_up("users v1")
    assert (harness.state(), harness.serving("users")) == (VersionState.STOPPED, 1)
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["pages v1: pages v1 has not stopped after 30 s"]


def test_a_version_that_is_not_wanted_stops_and_starts_when_it_is_again(harness):
    harness.apply()
    harness.tick()
    harness.catalog.set_desired_state("pages", 1, DesiredState.STOP)
    harness.tick()
    harness.tick()
    assert (harness.state(), harness.log) == (VersionState.STOPPED, ["stop pages v1"])
    harness.catalog.set_desired_state("pages", 1, DesiredState.RUN)
    harness.tick()
    assert harness.state() is VersionState.REPLAYING


def test_a_dropped_version_is_stopped_removed_and_forgotten(harness):
    serving_with_a_second(harness)
    harness.catalog.set_desired_state("pages", 1, DesiredState.DROP)
    harness.tick()
    assert [version.version for version in harness.catalog.versions("pages")] == [2]
    assert harness.log == ["stop pages v1", "drop pages v1"]
    assert ("pages", 1) not in harness.metrics.snapshot()
    assert harness.seen() == 2


def test_a_drop_that_does_not_work_is_tried_again(harness):
    serving_with_a_second(harness)
    harness.drop_errors.append(OSError("disk"))
    harness.catalog.set_desired_state("pages", 1, DesiredState.DROP)
    harness.tick()
    harness.tick()
    assert harness.state(1) is VersionState.DROPPING
    assert harness.log.count("drop pages v1") == 1
    harness.tick(after_ms=500)
    assert [version.version for version in harness.catalog.versions("pages")] == [2]


def test_a_drop_that_a_dead_runner_began_is_finished(harness):
    serving_with_a_second(harness)
    harness.catalog.set_desired_state("pages", 1, DesiredState.DROP)
    harness.catalog.set_state("pages", 1, VersionEvent.DROPPED)
    harness.runner = harness.new_runner()
    harness.tick()
    assert [version.version for version in harness.catalog.versions("pages")] == [2]


def test_a_view_goes_with_its_last_version_and_may_come_again(harness):
    serving_with_a_second(harness)
    with harness.database.begin() as connection:
        harness.catalog.retire_view(connection, "pages")
    harness.tick()
    assert harness.catalog.views() == []
    with harness.database.read() as connection:
        tables = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'view'").all()
    assert tables == []
    assert harness.apply().version == 1
    harness.tick()
    harness.catch_up()
    assert harness.seen() == 1


# ------------------------------------------------------------------------------------------------------------ requests


def test_a_request_goes_once_to_the_version_that_serves_and_again_after_it_failed(harness):
    serving_with_a_second(harness)
    asked = harness.catalog.add_request("pages", "batch", {"full": True})
    harness.tick()
    harness.tick()
    serving = harness.made["pages v2"]
    assert (serving.asked, harness.made["pages v1"].asked) == ([asked], [])
    serving.broken = BrokerUnreachable("away")
    harness.tick()
    harness.tick(after_ms=500)
    harness.tick()
    assert harness.made["pages v2"].asked == [asked]


def test_a_request_that_is_refused_is_answered(harness):
    harness.apply()
    harness.tick()
    asked = harness.catalog.add_request("pages", "batch", {"never": True})
    harness.tick()
    assert harness.catalog.request(asked).error == "never"


def test_a_request_to_a_version_that_failed_is_answered_with_why(harness):
    harness.apply()
    harness.start_errors["pages v1"] = DataLost("gone")
    harness.tick()
    asked = harness.catalog.add_request("pages", "batch")
    harness.tick()
    assert harness.catalog.request(asked).error == "pages v1 failed: gone"


# ---------------------------------------------------------------------------------------------------------------- once


def test_running_once_brings_all_versions_up_to_date_and_ends(harness):
    harness.apply()
    harness.apply("users")
    assert harness.runner.run_once() == []
    assert (harness.serving(), harness.seen(), harness.seen("users"), harness.state()) == (
        1,
        1,
        1,
        VersionState.STOPPED,
    )
    harness.apply()
    harness.start_errors["users v1"] = DataLost("gone")
    assert harness.runner.run_once() == ["users v1"]
    assert (harness.serving(), harness.state(1, "users"), harness.state(1), harness.state(2)) == (
        2, VersionState.FAILED, VersionState.STOPPED, VersionState.STOPPED,
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------- the table, metrics


def test_there_is_a_decision_for_every_state_and_wish():
    assert all(DECISIONS[wanted].keys() == set(VersionState) for wanted in DesiredState)


@pytest.mark.parametrize("state", list(VersionState))
def test_nothing_is_ever_started_that_is_being_dropped(harness, state):
    version = replace(harness.apply(), state=state, desired_state=DesiredState.DROP)
    assert decide(version, is_active=False) is decide(version, is_active=True) is Decision.DROP
    assert (
        decide(replace(version, state=VersionState.DROPPING, desired_state=DesiredState.RUN), is_active=False)
        is Decision.DROP
    )


def test_metrics_say_what_is(harness):
    serving_with_a_second(harness)
    harness.made["pages v2"].far = Lag(42, 100, 7.0)
    harness.tick()
    counts = harness.metrics.of("pages", 2)
    assert (counts.state, counts.serves, counts.records_behind, counts.records_per_s) == ("serving", True, 42, 7.0)
    assert not harness.metrics.of("pages", 1).serves


def test_a_database_that_is_away_is_waited_for(harness, monkeypatch, caplog):
    caplog.set_level("INFO", "headrace.views")
    harness.apply()
    harness.tick()
    monkeypatch.setattr(harness.catalog, "views", lambda *_: (_ for _ in ()).throw(DatabaseBusy("locked")))
    rounds = iter(range(3))
    harness.runner._round(lambda: next(rounds))
    harness.runner._round(lambda: next(rounds))
    monkeypatch.undo()
    harness.runner._round(lambda: next(rounds))
    assert [record.getMessage() for record in caplog.records][-2:] == [
        "waiting for the serving database: locked",
        "the serving database is available again",
    ]
    assert harness.made["pages v1"].is_running


def test_a_failure_that_the_database_cannot_be_told_of_is_not_forgotten(harness, monkeypatch):
    harness.apply()
    harness.tick()
    first = harness.made["pages v1"]
    first.broken = BrokerUnreachable("gone")

    def away(*_, **__):
        raise DatabaseUnreachable("away")

    with monkeypatch.context() as patch:
        patch.setattr(harness.catalog, "set_state", away)
        with pytest.raises(DatabaseUnreachable):
            harness.tick()
    assert not first.is_running
    harness.tick()
    assert harness.made["pages v1"] is not first
    assert harness.made["pages v1"].is_running


def test_one_that_ran_for_a_while_is_not_made_to_wait_for_what_was_long_ago(harness):
    harness.apply()
    for _ in range(3):
        harness.tick(10_000)
        harness.made["pages v1"].broken = BrokerUnreachable("gone")
        harness.tick(10_000)
        assert harness.state() is VersionState.FAILED
        harness.tick(500)
        assert harness.state() is VersionState.REPLAYING
