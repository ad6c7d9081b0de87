"""The catalog: versions, their states and desired states, progress, requests."""

import threading
from itertools import product

import pytest

from headrace.pipeline.serving.catalog import Batch, Catalog, DesiredState, Progress, Span, VersionEvent, VersionState
from headrace.pipeline.serving.catalog_tables.version_states import TRANSITIONS, next_state
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import IllegalTransition, UnknownView, UnsuitableSchema
from headrace.pipeline.serving.sql_views import check_view_name
from headrace.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock(wall_ms=1_000_000)


@pytest.fixture
def catalog(database, clock):
    made = Catalog(database, clock)
    made.create_view("pages", "kappa", "h1")
    return made


def go(catalog, version, *events):
    for event in events:
        catalog.set_state("pages", version, event)


def serve(database, catalog, version):
    with database.begin() as connection:
        catalog.switch(connection, "pages", version, f"SELECT {version} AS version")


def caught_up(catalog):
    version = catalog.add_version("pages", {"query": "SELECT 1"}, "h1").version
    go(catalog, version, VersionEvent.STARTED, VersionEvent.CAUGHT_UP)
    return version


def test_only_what_the_table_has_is_possible():
    for state, event in product(VersionState, VersionEvent):
        if event in TRANSITIONS[state]:
            assert next_state(state, event) in VersionState
        else:
            with pytest.raises(IllegalTransition, match=f"is in state {state}"):
                next_state(state, event)


def test_a_version_begins_by_starting_and_is_wanted(catalog, clock):
    made = catalog.add_version("pages", {"query": "SELECT 1"}, "h1")
    assert (made.version, made.state, made.desired_state, made.table_name) == (
        1,
        VersionState.STARTING,
        DesiredState.RUN,
        "pages__v1",
    )
    assert made.definition == {"query": "SELECT 1"}
    assert made.created_ms == clock.wall_ms()
    assert catalog.versions("pages") == [made]
    assert catalog.add_version("pages", {}, "h2").version == 2


def test_an_illegal_event_changes_nothing(catalog, clock):
    made = catalog.add_version("pages", {}, "h1")
    clock.advance(5)
    with pytest.raises(
        IllegalTransition, match="pages v1 is in state starting, which does not allow the event switched_to"
    ):
        catalog.set_state("pages", 1, VersionEvent.SWITCHED_TO)
    assert catalog.version("pages", 1) == made


def test_a_failure_is_kept_with_its_reason_and_forgotten_by_a_restart(catalog):
    catalog.add_version("pages", {}, "h1")
    catalog.set_state("pages", 1, VersionEvent.FAILED, error="no such topic")
    assert catalog.version("pages", 1).error == "no such topic"
    go(catalog, 1, VersionEvent.RESTARTED)
    assert catalog.version("pages", 1).error is None


def test_a_switch_moves_both_versions_and_the_name(database, catalog):
    first, second = caught_up(catalog), caught_up(catalog)
    serve(database, catalog, first)
    serve(database, catalog, second)
    view = catalog.view("pages")
    assert (view.serving_version, view.previous_version) == (second, first)
    assert [version.state for version in catalog.versions("pages")] == [VersionState.STANDBY, VersionState.SERVING]
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT version FROM pages").scalar() == second


def test_a_rollback_is_a_switch_to_the_one_before(database, catalog):
    for version in (caught_up(catalog), caught_up(catalog), 1):
        serve(database, catalog, version)
    view = catalog.view("pages")
    assert (view.serving_version, view.previous_version) == (1, 2)


def test_one_that_is_not_ready_cannot_be_switched_to_and_the_old_one_serves_on(database, catalog):
    serve(database, catalog, caught_up(catalog))
    catalog.add_version("pages", {}, "h2")
    with pytest.raises(IllegalTransition):
        serve(database, catalog, 2)
    assert catalog.view("pages").serving_version == 1
    assert catalog.version("pages", 1).state is VersionState.SERVING


def test_one_that_failed_while_it_served_is_still_pointed_at_and_may_come_back(database, catalog):
    serve(database, catalog, caught_up(catalog))
    go(catalog, 1, VersionEvent.FAILED)
    assert catalog.view("pages").serving_version == 1
    go(catalog, 1, VersionEvent.RESTARTED, VersionEvent.STARTED, VersionEvent.CAUGHT_UP)
    serve(database, catalog, 1)
    assert catalog.version("pages", 1).state is VersionState.SERVING
    assert catalog.view("pages").previous_version is None


def test_a_switch_away_from_one_that_failed_leaves_it_failed(database, catalog):
    serve(database, catalog, caught_up(catalog))
    go(catalog, 1, VersionEvent.FAILED)
    serve(database, catalog, caught_up(catalog))
    assert catalog.version("pages", 1).state is VersionState.FAILED


def test_the_one_that_serves_cannot_be_dropped(database, catalog):
    serve(database, catalog, caught_up(catalog))
    with pytest.raises(IllegalTransition, match="switch to another"):
        catalog.set_desired_state("pages", 1, DesiredState.DROP)
    assert catalog.version("pages", 1).desired_state is DesiredState.RUN


def test_what_is_to_be_dropped_stays_so(catalog):
    catalog.add_version("pages", {}, "h1")
    catalog.set_desired_state("pages", 1, DesiredState.STOP)
    catalog.set_desired_state("pages", 1, DesiredState.DROP)
    with pytest.raises(IllegalTransition, match="about to be dropped"):
        catalog.set_desired_state("pages", 1, DesiredState.RUN)


def test_what_is_dropped_is_forgotten_and_its_number_is_not_used_again(database, catalog):
    serve(database, catalog, caught_up(catalog))
    serve(database, catalog, caught_up(catalog))
    with database.begin() as connection:
        catalog.set_progress(connection, Progress("pages", 1, 3, {"clicks": {0: 1}}))
    with database.begin() as connection:
        catalog.set_state("pages", 1, VersionEvent.DROPPED, connection=connection)
        catalog.remove_version(connection, "pages", 1)
    caught_up(catalog)
    assert catalog.view("pages").previous_version is None
    go(catalog, 3, VersionEvent.DROPPED)
    with database.begin() as connection:
        assert catalog.progress(connection, "pages", 1) is None
        catalog.remove_version(connection, "pages", 3)
    assert catalog.add_version("pages", {}, "h").version == 4


def test_one_that_runs_is_not_removed(database, catalog):
    caught_up(catalog)
    with pytest.raises(IllegalTransition), database.begin() as connection:
        catalog.remove_version(connection, "pages", 1)


def test_a_view_goes_with_all_that_is_known_of_it(database, catalog):
    caught_up(catalog)
    with database.begin() as connection:
        catalog.remove_view(connection, "pages")
    assert catalog.views() == []
    assert catalog.versions() == []


def test_progress_is_seen_with_the_data_that_it_describes(database, catalog, clock):
    with database.begin() as writer:
        catalog.set_progress(writer, Progress("pages", 1, 4, {"clicks": {10: 5, 9: 6}}, events=11, dead_letters=1))
        with database.read() as reader:
            assert catalog.progress(reader, "pages", 1) is None
    clock.advance(100)
    with database.begin() as writer:
        catalog.set_progress(writer, Progress("pages", 1, 5, {"clicks": {"9": 7, "10": 8}}, events=14, dropped_late=2))
    with database.read() as reader:
        assert catalog.progress(reader, "pages", 1) == Progress(
            "pages", 1, 5, {"clicks": {9: 7, 10: 8}}, events=14, dead_letters=0, dropped_late=2, updated_ms=1_000_100
        )


def test_spans_and_batches_of_a_lambda_view(database, catalog, clock):
    spans = [Span("pages", 1, number, {"c": {0: number}}, {"c": {0: number + 1}}, 7) for number in range(3)]
    batch = Batch("pages", 1, 2, {"c": {0: 2}}, "pages__b2", 100, created_ms=clock.wall_ms())
    with database.begin() as connection:
        for span in spans:
            catalog.add_span(connection, span)
        catalog.add_batch(connection, batch)
    with database.begin() as connection:
        assert catalog.spans(connection, "pages", 1) == spans
        assert catalog.batches(connection, "pages", 1) == [batch]
        catalog.remove_spans(connection, "pages", 1, [0, 1])
        catalog.remove_batch(connection, "pages", 1, 2)
        assert catalog.spans(connection, "pages", 1) == spans[2:]
        assert catalog.batches(connection, "pages", 1) == []


def test_a_command_asks_and_the_runner_answers(catalog, clock):
    first, second = catalog.add_request("pages", "batch", {"full": True}), catalog.add_request("pages", "batch")
    assert [(request.id, request.detail) for request in catalog.open_requests()] == [
        (first, {"full": True}),
        (second, {}),
    ]
    clock.advance(7)
    catalog.finish_request(first, error="there is no archive")
    assert [request.id for request in catalog.open_requests()] == [second]
    answered = catalog.request(first)
    assert answered is not None
    assert (answered.done_ms, answered.error) == (clock.wall_ms(), "there is no archive")
    assert catalog.request(99) is None


def test_what_is_not_there_is_named(catalog):
    with pytest.raises(UnknownView, match="no view 'users'"):
        catalog.set_state("users", 1, VersionEvent.STARTED)
    with pytest.raises(UnknownView, match="pages has no version 9"):
        catalog.set_desired_state("pages", 9, DesiredState.STOP)
    with pytest.raises(UnknownView):
        catalog.add_request("users", "batch")


def test_a_name_that_cannot_be_a_views_is_refused():
    for name in ("", "Pages", "1st", "a b", "headrace_views", "pg_x", "x" * 51):
        with pytest.raises(UnsuitableSchema, match="cannot be the name of a view"):
            check_view_name(name)
    for name in ("user", "order", "limit", "current_user", "index", "values"):
        with pytest.raises(UnsuitableSchema, match=f"SELECT . FROM {name} would fail"):
            check_view_name(name)
    for name in ("users", "orders", "plan", "view", "day", "key", "count", "date", "timestamp"):
        check_view_name(name)


def test_another_process_sees_the_same_catalog(catalog, database_url):
    other = Database(database_url)
    assert [view.name for view in Catalog(other).views()] == ["pages"]
    other.close()


def test_processes_that_open_an_empty_database_at_once_all_succeed(database_url):
    databases = [Database(database_url) for _ in range(4)]
    made = []
    threads = [threading.Thread(target=lambda db=db: made.append(Catalog(db).views())) for db in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in databases:
        each.close()
    assert made == [[]] * 4


def test_versions_that_are_added_at_once_get_numbers_of_their_own(catalog):
    threads = [threading.Thread(target=catalog.add_version, args=("pages", {}, f"h{n}")) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.version for version in catalog.versions("pages")] == [1, 2, 3, 4, 5, 6]
