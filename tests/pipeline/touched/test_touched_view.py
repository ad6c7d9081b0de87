"""Versions that are maintained by touched keys, with a broker: builds, micro-batches, restarts and crashes."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from lambda_harness import quick as quick
from lambda_harness import until
from touched_harness import TouchedHarness

from headrace.pipeline.common_cut.common_cut import SoloFollower
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import KappaSettings, LambdaSettings, ViewDefinition
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DuplicateKey
from headrace.pipeline.touched.store import BuildTables, TouchedStore
from headrace.pipeline.touched.view import Steps, TouchedVersion
from headrace.pipeline.version.failures import FailureKind, classify_failure
from headrace.pipeline.whole.view import WholeVersion
from headrace.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(900)
REVENUE = (
    "SELECT c.country, sum(o.amount) AS total, count(DISTINCT o.customer) AS customers "
    "FROM orders o LEFT JOIN customers c ON o.customer = c.customer GROUP BY c.country"
)
UNPAID = "SELECT o.id, o.amount FROM orders o LEFT ANTI JOIN payments p ON p.order_id = o.id"


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with TouchedHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()


def order(number: int, customer: int | None, amount: int = 1) -> dict[str, object]:
    return {"id": number, "customer": customer, "item": f"i{number % 3}", "amount": amount}


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_a_join_follows_the_table(harness, architecture):
    harness.customer(1, {"name": "Ann", "country": "DE"})
    harness.customer(2, {"name": "Bob", "country": "FR"})
    harness.send("orders", order(1, 1, 10), order(2, 2, 20), order(3, None, 30), "{broken")
    harness.apply(REVENUE, architecture, ("orders", "customers"))
    TouchedVersion(harness.context, harness.version).run_once()
    assert harness.check().dead_letters == 1
    assert harness.seen()[0] == [("DE", 10, 1), ("FR", 20, 1), (None, 30, 0)]

    harness.customer(1, {"name": "Ann", "country": "IT"})
    harness.customer(2, None)
    harness.send("orders", order(4, 1, 5), order(5, 7, 1))
    TouchedVersion(harness.context, harness.restarted()).run_once()
    harness.check()
    assert harness.seen()[0] == [("IT", 15, 1), (None, 51, 2)]


@pytest.mark.parametrize("version_class", [TouchedVersion, WholeVersion])
def test_a_build_counts_records_that_its_query_does_not_need(harness, version_class):
    """If one side of a join has no rows, Spark does not compute the other side."""
    harness.send("orders", order(1, 1, 10), "{broken")
    harness.customer(1, None)
    harness.apply("SELECT o.id FROM customers c JOIN orders o ON o.customer = c.customer", "lambda",
                  ("orders", "customers"))  # fmt: skip
    version_class(harness.context, harness.version).run_once()
    progress = TouchedStore(harness.context.database, harness.context.catalog, *harness.version.key).progress()
    assert (progress.events, progress.dead_letters) == (3, 1)


def test_state_in_the_form_of_an_earlier_release_is_built_again(harness):
    harness.customer(1, {"name": "Ann", "country": "DE"})
    harness.send("orders", order(1, 1, 10), order(2, 2, 20))
    harness.apply(REVENUE, "kappa", ("orders", "customers"))
    TouchedVersion(harness.context, harness.version).run_once()
    store = TouchedStore(harness.context.database, harness.context.catalog, *harness.version.key)
    with harness.context.database.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {harness.version.view}__v1_b1_s0_b")
    harness.send("orders", order(3, 1, 5))
    TouchedVersion(harness.context, harness.restarted()).run_once()
    assert store.last_build().batch == 2
    harness.check()


def test_a_running_version_follows_the_log_and_builds_again(harness):
    harness.send("orders", order(1, 1), order(2, 1))
    harness.apply(UNPAID, "lambda", ("orders", "payments"))
    version = TouchedVersion(harness.context, harness.version)
    version.start()
    try:
        until(version.has_caught_up, "the first build")
        harness.serve()
        harness.send("payments", {"order_id": 1, "paid": 1})
        until(lambda: harness.seen()[0] == [(2, 1)], "the payment is seen")
        wanted = harness.context.catalog.add_request(harness.version.view, "batch")
        (request,) = harness.context.catalog.open_requests()
        assert version.request(request)
        harness.send("orders", order(3, 1))
        until(lambda: harness.context.catalog.request(wanted).done_ms is not None, "the batch that was asked for")
        until(lambda: len(harness.seen()[0]) == 2, "the order is seen")
        assert harness.context.catalog.request(wanted).error is None
    finally:
        version.stop()
    assert version.failure() is None
    harness.check()
    builds = TouchedStore(harness.context.database, harness.context.catalog, *harness.version.key)
    assert builds.last_build().batch == 2
    version.drop()
    with harness.context.database.read() as connection:
        import sqlalchemy

        names = sqlalchemy.inspect(connection).get_table_names()
    assert not [name for name in names if name.startswith(harness.version.view)]


@pytest.mark.timeout(200)
def test_a_build_ends_although_micro_batches_are_as_fast(harness):
    """On a busy machine, each catching up took as long as the micro-batch that was committed meanwhile."""
    harness.send("orders", order(1, 1), order(2, 1))
    harness.apply(UNPAID, "lambda", ("orders", "payments"))
    TouchedVersion(harness.context, harness.version).run_once()
    version = TouchedVersion(harness.context, harness.restarted())
    version._open()
    steps, maintainer = version._opened.steps, version._opened.maintainer
    numbers, followers = iter(range(3, 30)), []

    def step() -> None:
        harness.send("orders", order(next(numbers), 1))
        assert steps.step()

    def read_beside_a_step(ranges):
        found = steps.read(ranges)
        followers.append(threading.Thread(target=step))
        followers[-1].start()
        if not maintainer._lock._is_owned():  # else the micro-batch waits for the build
            followers[-1].join()
        return found

    try:
        with _step_after_the_cut(maintainer, step):
            assert maintainer.build(read_beside_a_step, lambda: False) == 2
        for each in followers:
            each.join()
    finally:
        version._close()
    harness.check()


@contextmanager
def _step_after_the_cut(maintainer, step):
    load = maintainer._builder.load

    def step_and_load(*given):
        step()
        return load(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(maintainer._builder, "load", step_and_load)
        yield


class _Crash(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before the commit", "within the commit", "after the commit"])
def test_a_crash_in_a_micro_batch_changes_nothing_or_everything(harness, monkeypatch, moment):
    harness.send("orders", order(1, 1), order(2, 1))
    harness.apply(UNPAID, "kappa", ("orders", "payments"))
    TouchedVersion(harness.context, harness.version).run_once()
    harness.send("payments", {"order_id": 1, "paid": 1})
    harness.send("orders", order(3, 1))

    with monkeypatch.context() as patched:
        _crash_at(patched, moment)
        with pytest.raises(_Crash):
            TouchedVersion(harness.context, harness.restarted()).run_once()
    assert len(harness.seen()[0]) == 2
    harness.check()
    TouchedVersion(harness.context, harness.restarted()).run_once()
    harness.check()
    assert [row[0] for row in harness.seen()[0]] == [2, 3]


def _crash_at(patched, moment: str) -> None:
    commit, add = TouchedStore.commit_step, BuildTables.add

    def crash(*_given, **_named):
        raise _Crash

    def commit_then_crash(self, *given):
        commit(self, *given)
        raise _Crash

    def add_then_crash(self, *given):
        add(self, *given)
        raise _Crash

    if moment == "before the commit":
        patched.setattr(TouchedStore, "commit_step", crash)
    elif moment == "within the commit":
        patched.setattr(BuildTables, "add", add_then_crash)
    else:
        patched.setattr(TouchedStore, "commit_step", commit_then_crash)


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_a_table_of_changes_is_counted_by_a_column_that_is_updated(harness, architecture):
    customers = harness.sources["customers"]
    harness.sources["customers"] = replace(
        customers, kind="changes", decode=replace(customers.decode, envelope="debezium")
    )

    def change(op: str, number: int, country: str = "") -> None:
        after = None if op == "d" else {"customer": number, "country": country}
        harness.send("customers", {"op": op, "before": None, "after": after}, key=str(number))

    for number, country in enumerate(["DE", "FR", "DE"]):
        change("c", number, country)
    harness.apply("SELECT country, count(*) AS n FROM customers GROUP BY country", architecture, ("customers",))
    TouchedVersion(harness.context, harness.version).run_once()
    harness.check()
    assert harness.seen()[0] == [("DE", 2), ("FR", 1)]
    change("u", 0, "FR")
    change("d", 2)
    harness.customer(2, None)  # the tombstone after a delete
    TouchedVersion(harness.context, harness.restarted()).run_once()
    assert harness.check().dead_letters == 0
    assert harness.seen()[0] == [("FR", 2)]
    for partition in range(2):
        harness.producer.send(f"{harness.prefix}-customers", b'{"op":"t","before":null}', partition=partition)
    change("c", 7, "IT")
    TouchedVersion(harness.context, harness.restarted()).run_once()
    assert harness.check().dead_letters == 0
    assert harness.seen()[0] == [("IT", 1)]


@pytest.mark.parametrize(("architecture", "version_class"), [("lambda", TouchedVersion), ("kappa", WholeVersion)])
def test_two_rows_with_the_same_key_stop_the_version(harness, architecture, version_class):
    harness.send("orders", order(1, 1, 10), order(2, 1, 20))
    query = "SELECT o.id, o.amount FROM orders o LEFT ANTI JOIN payments p ON p.order_id = o.id"
    harness.apply(query, architecture, ("orders", "payments"), key=("id",))
    version_class(harness.context, harness.version).run_once()
    before = harness.check()
    harness.send("orders", order(2, 1, 21))
    with pytest.raises(DuplicateKey, match=r"two rows have the same key \(id\): \[2\]") as raised:
        version_class(harness.context, harness.restarted()).run_once()
    assert classify_failure(raised.value) is FailureKind.PERMANENT
    assert harness.check().offsets == before.offsets


def test_micro_batches_follow_the_trigger_of_the_architecture():
    waited = []

    class Once(threading.Event):
        def wait(self, timeout=None):
            waited.append(timeout)
            self.set()
            return True

    for architecture in ("lambda", "kappa"):
        definition = ViewDefinition("v", (), "", architecture, FileText("v.sql", ""), Decode(),
                                    kappa=KappaSettings(trigger_ms=700), lambda_=LambdaSettings(0, 300))  # fmt: skip
        steps = object.__new__(Steps)
        steps._context = SimpleNamespace(clock=ManualClock(), follow=lambda *_: nullcontext(SoloFollower(None)))
        version = SimpleNamespace(key=("v", 1))
        steps._running = SimpleNamespace(definition=definition, version=version, work=None)
        steps._lag_tracker, steps.step = None, lambda: False
        steps.run(Once())
    assert waited == [0.3, 0.7]
