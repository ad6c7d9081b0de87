"""A Lambda view's tables: at every commit the SQL view is the query over exactly the offsets in headrace_progress.

Events are ``(page, ms)``; where an event stands in the list is its offset. Partial results are made here, by the rules
of ``aggregates``, which has tests of its own; so there are no Spark jobs but those of queries that compute.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.pipeline.lambda_.spans import MAX_SPANS, CutLost, check_chain
from headrace.pipeline.lambda_.store import LambdaStore, ProgressMoved
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.serving.catalog import Catalog, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.sqlite.dialect import quoted

pytestmark = pytest.mark.timeout(300)

SCHEMA = "page STRING, ms BIGINT, d DOUBLE, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
BY_PAGE = "SELECT page, count(*) AS n, sum(ms) AS total, max(ms) AS longest FROM events GROUP BY page"
TOTAL = "SELECT count(*) AS n, sum(ms) AS total, max(ms) AS longest FROM events"
BUSY = f"{BY_PAGE} HAVING count(*) > 1"
TOP = f"{BY_PAGE} ORDER BY n DESC, page LIMIT 2"
_numbers = count()
Events = list[tuple[str | None, int | None]]
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def algebra_of(spark) -> Callable[[str], Algebra]:
    known: dict[str, Algebra] = {}

    def make(query: str) -> Algebra:
        if query not in known:
            spark.createDataFrame([], SCHEMA).createOrReplaceTempView("events")
            known[query] = Algebra(analyze(spark.sql(query)))
        return known[query]

    return make


def answer(query: str, events: Events) -> list[Row]:
    """Computes the query's rows from scratch."""
    groups: dict[str | None, list[int | None]] = {} if query != TOTAL else {None: []}
    for page, ms in events:
        groups.setdefault(page if query != TOTAL else None, []).append(ms)
    rows = [
        (page, len(all_), sum(known) if known else None, max(known, default=None))
        for page, all_ in groups.items()
        for known in [[ms for ms in all_ if ms is not None]]
    ]
    if query == TOTAL:
        return [row[1:] for row in rows]
    if query == BUSY:
        rows = [row for row in rows if row[1] > 1]
    if query == TOP:
        return sorted(rows, key=lambda row: (-row[1], row[0] is not None, row[0] or ""))[:2]
    return sorted(rows, key=repr)


def partials(algebra: Algebra, events: Events) -> pa.Table:
    query = BY_PAGE if algebra.key_columns else TOTAL
    return pa.Table.from_pylist(
        [dict(zip(algebra.schema.names, row, strict=True)) for row in answer(query, events)], algebra.schema
    )


def at(offset: int) -> dict[str, dict[int, int]]:
    return {"clicks": {0: offset}}


class Crash(Exception):
    pass


class Crashes:
    """Raises at the n-th thing that is done through what it watches; never if that is None."""

    def __init__(self, at_point: int | None = None) -> None:
        self._at_point = at_point
        #: What was done so far.
        self.points: list[str] = []

    def point(self, where: str) -> None:
        self.points.append(where)
        if len(self.points) - 1 == self._at_point:
            raise Crash(where)

    def watch(self, watched: Any) -> Any:
        return _Watched(self, watched)


class _Watched:
    def __init__(self, crashes: Crashes, watched: Any) -> None:
        self._crashes, self._watched = crashes, watched

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._watched, name)
        if name == "begin":
            return self._begin
        if not callable(found):
            return found

        def called(*arguments: Any, **options: Any) -> Any:
            self._crashes.point(f"before {name}")
            return found(*arguments, **options)

        return called

    @contextmanager
    def _begin(self) -> Iterator[Any]:
        with self._watched.begin() as connection:
            yield connection
            self._crashes.point("before the commit")
        self._crashes.point("after the commit")


class Fixture(NamedTuple):
    """One view, and the events that its log has."""

    database: Database
    catalog: Catalog
    name: str
    query: str
    store: LambdaStore
    events: Events

    @classmethod
    def make(cls, database: Database, algebra: Algebra, query: str, *, serves: bool = True) -> Fixture:
        catalog, name = Catalog(database), f"pages{next(_numbers)}"
        catalog.create_view(name, "lambda", "h")
        catalog.add_version(name, {}, "h")
        store = LambdaStore(database, catalog, name, 1, algebra)
        with database.begin() as connection:
            store.create(connection)
        if serves:
            for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
                catalog.set_state(name, 1, event)
            with database.begin() as connection:
                catalog.switch(connection, name, 1, store.select_sql(None))
        return cls(database, catalog, name, query, store, [])

    def restarted(self, crashes: Crashes | None = None) -> Fixture:
        """As another process sees it."""
        database, catalog = self.database, self.catalog
        if crashes:
            database, catalog = crashes.watch(database), crashes.watch(catalog)
        store = LambdaStore(database, catalog, self.name, 1, self.store.algebra)
        return self._replace(store=store)

    def offset(self) -> int:
        progress = self.store.progress()
        return 0 if progress is None else progress.offsets["clicks"][0]

    def micro_batch(self, events: Events) -> None:
        start = self.offset()
        self.events[start:] = events
        self.store.commit_micro_batch(
            at(start + len(events)),
            partials(self.store.algebra, events),
            events=len(events),
            dead_letters=0,
            first_offsets=at(start),
        )

    def load(self, batch: int, cut: int, chunk: int = 1000) -> int:
        table = partials(self.store.algebra, self.events[:cut])
        chunks = [table.slice(start, chunk) for start in range(0, len(table), chunk)]
        return self.store.batch_tables.load(batch, at(cut), chunks)

    def run_batch(self) -> None:
        with self.store.batch_in_progress() as (batch, cut):
            offset = cut["clicks"][0] if cut else len(self.events)
            self.load(batch, offset)
            self.store.commit_batch(batch, at(offset))

    def rows(self) -> tuple[int, list[Row]]:
        """The SQL view and how far it counts, of one moment."""
        with self.database.read() as connection:
            progress = self.catalog.progress(connection, self.name, 1)
            found = connection.exec_driver_sql(f"SELECT * FROM {quoted(self.name)}").fetchall()
        rows = [tuple(int(x) if x is not None and not isinstance(x, str) else x for x in row) for row in found]
        offset = 0 if progress is None else progress.offsets["clicks"][0]
        return offset, rows if self.query == TOP else sorted(rows, key=repr)

    def check(self) -> None:
        offset, rows = self.rows()
        assert rows == answer(self.query, self.events[:offset])
        batches = self.store.batches()
        check_chain(batches[-1].cut if batches else {}, self.store.spans(), at(offset))

    def tables(self) -> list[str]:
        with self.database.read() as connection:
            return sorted(n for n in sqlalchemy.inspect(connection).get_table_names() if n.startswith(f"{self.name}__"))


@pytest.fixture(autouse=True)
def hasty(database: Database) -> None:
    """No power cut is tested here, and hundreds of transactions need not wait for the disk."""
    if database.is_sqlite:
        sqlalchemy.event.listen(database._writer, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))


@pytest.fixture
def view(database, algebra_of) -> Fixture:
    return Fixture.make(database, algebra_of(BY_PAGE), BY_PAGE)


FIRST: Events = [("home", 3), ("about", 5), (None, 1), ("home", None)]
SECOND: Events = [("home", 10), ("new", 7)]
THIRD: Events = [(None, None), ("about", -4), ("last", None)]


@pytest.mark.parametrize("query", [BY_PAGE, TOTAL, BUSY, TOP], ids=["by page", "total", "having", "top"])
def test_the_view_is_the_query_over_the_progress_at_every_commit(database, algebra_of, query):
    view = Fixture.make(database, algebra_of(query), query)
    view.check()
    for step in (FIRST, "batch", SECOND, THIRD, "batch", [], "batch", "batch", FIRST):
        view.run_batch() if step == "batch" else view.micro_batch(step)
        view.check()
    assert [each.batch for each in view.store.batches()] == [4]
    progress = view.store.progress()
    assert (progress.batch_id, progress.events) == (5, len(view.events))


def test_micro_batches_go_on_while_a_batch_is_computed(view):
    view.micro_batch(FIRST)
    view.micro_batch(SECOND)
    with view.store.batch_in_progress() as (batch, cut):
        assert (batch, cut) == (1, at(6))
        view.micro_batch(THIRD)
        view.check()
        assert view.load(batch, 6, chunk=2) == 4
        view.check()
        view.micro_batch(SECOND)
        view.store.commit_batch(batch, cut)
    view.check()
    assert [(each.first_offsets, each.next_offsets) for each in view.store.spans()] == [(at(6), at(9)), (at(9), at(11))]
    assert view.store.batches()[0].rows == 4


def test_the_first_batch_says_where_the_view_begins(database, algebra_of):
    view = Fixture.make(database, algebra_of(BY_PAGE), BY_PAGE, serves=False)
    assert view.store.progress() is None
    view.events[:] = FIRST
    with view.store.batch_in_progress() as (batch, cut):
        assert (batch, cut) == (1, None)
        view.load(batch, 4)
        view.store.commit_batch(batch, at(4), events=4, dead_letters=1)
    progress = view.store.progress()
    assert (progress.offsets, progress.events, progress.dead_letters) == (at(4), 4, 1)
    select_sql = view.catalog.version(view.name, 1).select_sql
    assert select_sql == view.store.select_sql(1), "so that a command can switch to it"
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        view.catalog.set_state(view.name, 1, event)
    with database.begin() as connection:
        view.catalog.switch(connection, view.name, 1, select_sql)
    view.check()


def test_spans_stay_few_and_a_cut_under_way_stays_where_it_is(view):
    pages = [f"p{number % 5}" for number in range(60)]
    for page in pages[:10]:
        view.micro_batch([(page, 1)])
        view.store.merge_spans()
    with view.store.batch_in_progress() as (batch, cut):
        for page in pages[10:]:
            view.micro_batch([(page, 2)])
            view.store.merge_spans()
            assert len(view.store.spans()) <= 10 + MAX_SPANS
        view.check()
        view.load(batch, 10)
        view.store.commit_batch(batch, cut)
        view.check()
    assert len(view.store.spans()) <= MAX_SPANS
    again = view.restarted()
    for _ in range(40):
        again.micro_batch(FIRST)
        again.store.merge_spans()
    assert len(again.store.spans()) <= MAX_SPANS
    again.check()
    again.run_batch()
    assert again.store.spans() == []
    again.check()


def test_a_batch_that_no_span_ends_at_is_refused(view):
    view.micro_batch(FIRST)
    view.load(1, 3)
    before = view.rows()
    with pytest.raises(CutLost, match="no span ends"):
        view.store.commit_batch(1, at(3))
    assert view.rows() == before
    assert view.store.batches() == []


def test_what_does_not_follow_on_the_progress_is_refused(view):
    view.micro_batch(FIRST)
    rows = partials(view.store.algebra, SECOND)
    for first, end in ((at(3), at(6)), (at(5), at(6)), (at(4), at(3)), (None, at(3))):
        with pytest.raises(ProgressMoved, match="does not follow"):
            view.store.commit_micro_batch(end, rows, events=2, dead_letters=0, first_offsets=first)
    view.check()


def test_two_processes_cannot_both_write_a_version(view, monkeypatch):
    """The other one commits just when this one has computed what to write."""
    view.micro_batch(FIRST)
    other = view.restarted()
    compute = view.store._overlaid

    def interrupted(rows: pa.Table) -> Any:
        made = compute(rows)
        other.micro_batch(THIRD)
        return made

    monkeypatch.setattr(view.store, "_overlaid", interrupted)
    with pytest.raises(ProgressMoved, match="another process writes this version"):
        view.micro_batch(SECOND)
    monkeypatch.undo()
    view.events[4:] = THIRD
    view.check()
    view.micro_batch(SECOND)
    view.check()


# ------------------------------------------------------------------------------------------------------------ crashes


def _prepared(view: Fixture) -> None:
    for step in (FIRST, "batch", SECOND, THIRD):
        view.run_batch() if step == "batch" else view.micro_batch(step)


def _many_spans(view: Fixture) -> None:
    for number in range(MAX_SPANS + 1):
        view.micro_batch([(f"p{number % 3}", number)])


def _land_in_between(view: Fixture) -> None:
    """A batch that was cut before the last micro-batch."""
    with view.store.batch_in_progress() as (batch, _):
        pass
    cut = view.store.spans()[0].next_offsets
    view.load(batch, cut["clicks"][0], chunk=2)
    view.store.commit_batch(batch, cut)


STEPS: dict[str, tuple[Callable[[Fixture], None], Callable[[Fixture], None]]] = {
    "micro-batch": (_prepared, lambda view: view.micro_batch(FIRST)),
    "batch": (_prepared, lambda view: view.run_batch()),
    "batch in between": (_prepared, _land_in_between),
    "first batch": (lambda view: view.events.extend(FIRST), lambda view: view.run_batch()),
    "merge": (_many_spans, lambda view: view.store.merge_spans() and None),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_all_of_a_step_or_nothing(database, algebra_of, step):
    """A crash at each point in turn: readers see right rows at once, and the next run finishes the step."""
    prepare, act = STEPS[step]

    def prepared() -> Fixture:
        view = Fixture.make(database, algebra_of(BY_PAGE), BY_PAGE)
        prepare(view)
        return view

    watched = Crashes()
    act(prepared().restarted(watched))
    assert {"before the commit", "after the commit"} <= set(watched.points)
    # All of them take a while, above all with PostgreSQL.
    every = 1 if "HEADRACE_SOAK" in os.environ else 2 if database.is_sqlite else 10
    chosen = [at for at, where in enumerate(watched.points) if at % every == 0 or "commit" in where]
    for point in chosen:
        view = prepared()
        count_before = len(view.events)
        with pytest.raises(Crash):
            act(view.restarted(Crashes(point)))
        view.check()
        again = view.restarted()
        if again.offset() == count_before or step != "micro-batch":
            act(again)
        again.run_batch()
        again.check()
        known = {f"{view.name}__v1_over", f"{view.name}__v1_speed", again.store.batches()[-1].table_name}
        assert set(again.tables()) == known, "nothing is left over"


def test_dropping_leaves_nothing(view):
    view.micro_batch(FIRST)
    view.run_batch()
    view.load(2, 4)  # which never landed
    with view.database.begin() as connection:
        from headrace.pipeline.serving.tables import drop_view

        drop_view(connection, view.name)
        view.store.drop(connection)
    assert view.tables() == []


# ------------------------------------------------------------------------------------------------ any sequence at all

pages = st.sampled_from(["home", "about", "", None, 'quo"te', "ünü"])
some_events = st.lists(st.tuples(pages, st.one_of(st.none(), st.integers(-(2**40), 2**40))), max_size=6)
actions = st.one_of(
    some_events.map(lambda events: ("read", events)),
    some_events.map(lambda events: ("read", events)),
    st.sampled_from([("cut", []), ("load", []), ("land", []), ("restart", [])]),
)


@pytest.mark.parametrize(("query", "examples"), [(BY_PAGE, 12), (TOTAL, 6), (TOP, 6)], ids=["by page", "total", "top"])
def test_any_sequence_of_micro_batches_merges_and_batches(database, algebra_of, query, examples):
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(actions, max_size=25))
    def check(sequence):
        view = Fixture.make(database, algebra_of(query), query)
        under_way: Any = None
        loaded = False
        for what, events in sequence:
            match what:
                case "read":
                    view.micro_batch(events)
                    view.store.merge_spans()
                case "restart":
                    view, under_way, loaded = view.restarted(), None, False
                case "cut" if under_way is None:
                    manager = view.store.batch_in_progress()
                    under_way, loaded = (manager, *manager.__enter__()), False
                case "load" if under_way:
                    view.load(under_way[1], under_way[2]["clicks"][0] if under_way[2] else 0, chunk=2)
                    loaded = True
                case "land" if under_way and loaded:
                    view.store.commit_batch(under_way[1], under_way[2] or at(0))
                    under_way[0].__exit__(None, None, None)
                    under_way = None
            view.check()

    check()


# ----------------------------------------------------------------------------------------------------------- the view


def test_a_group_that_no_longer_qualifies_is_hidden(database, algebra_of):
    query = "SELECT page, sum(ms) AS total, count(*) AS n FROM events GROUP BY page HAVING sum(ms) > 0"
    algebra = algebra_of(query)
    view = Fixture.make(database, algebra, query)

    def commit(end: int, **totals: int) -> list[Row]:
        rows = [{"_k0": page, "_p0": total, "_p1": 1} for page, total in totals.items()]
        table = pa.Table.from_pylist(rows, algebra.schema)
        view.store.commit_micro_batch(at(end), table, events=len(rows), dead_letters=0)
        return view.rows()[1]

    assert commit(2, a=5, b=-1) == [("a", 5, 1)]
    with view.store.batch_in_progress() as (batch, cut):
        assert view.store.batch_tables.load(batch, cut, [pa.Table.from_pylist(
            [{"_k0": "a", "_p0": 5, "_p1": 1}, {"_k0": "b", "_p0": -1, "_p1": 1}], algebra.schema)]) == 2  # fmt: skip
        view.store.commit_batch(batch, cut)
    assert view.rows()[1] == [("a", 5, 1)]
    assert commit(4, a=-9, b=3) == [("b", 2, 2)]
    assert commit(5, a=9) == [("a", 5, 3), ("b", 2, 2)]


def test_order_by_what_is_not_shown_and_texts_by_their_bytes(database, algebra_of):
    query = "SELECT page FROM events GROUP BY page ORDER BY max(ms) DESC NULLS LAST, page DESC LIMIT 4"
    algebra = algebra_of(query)
    view = Fixture.make(database, algebra, query)
    names = algebra.schema.names
    rows = [("a", 1), ("B", 1), ("ä", 1), ("high", 9), ("none", None), ("low", 0)]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], algebra.schema)
    view.store.commit_micro_batch(at(6), table, events=6, dead_letters=0)
    with database.read() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {quoted(view.name)}").fetchall()
    assert [row[0] for row in found] == ["high", "ä", "a", "B"]


def test_keys_that_are_no_numbers_and_texts_that_no_database_stores(database, algebra_of):
    query = "SELECT page, d, count(*) AS n FROM events GROUP BY page, d"
    algebra = algebra_of(query)
    view = Fixture.make(database, algebra, query)
    odd = pa.array([b"nul\x00", b"\xff\xfe", b"\xfe\xff", b"x"]).view(pa.string())
    doubles = [float("nan"), -0.0, 0.0, None]
    table = pa.table([odd, pa.array(doubles, pa.float64()), pa.array([1, 1, 1, 1], pa.int64())], schema=algebra.schema)
    for end in (1, 2):
        view.store.commit_micro_batch(at(end), table, events=4, dead_letters=0)
    for _ in range(2):
        with view.store.batch_in_progress() as (batch, cut):
            before = list(view.store.batch_tables.partial_rows(batch - 1)) if batch > 1 else []
            # Twice, as the next batch's Spark job tells them apart from what was stored.
            assert view.store.batch_tables.load(batch, cut, [*before, table, table.slice(0, 2)]) == 3
            view.store.commit_batch(batch, cut)
        view.store.commit_micro_batch(at(cut["clicks"][0] + 1), table, events=4, dead_letters=0)
    with database.read() as connection:
        found = connection.exec_driver_sql(f"SELECT page, n FROM {quoted(view.name)}").fetchall()
    nul = "nul\x00" if database.is_sqlite else "nul\ufffd"
    assert sorted(map(tuple, found)) == sorted([(nul, 5), ("\ufffd\ufffd", 8), ("x", 3)])


def test_far_off_times_are_groups_of_their_own_and_shown_as_the_last_there_is(database, algebra_of):
    query = """SELECT _timestamp AS at, year(_timestamp) AS y, count(*) AS n, max(CAST(_timestamp AS DATE)) AS day
               FROM events GROUP BY _timestamp"""
    algebra = algebra_of(query)
    view = Fixture.make(database, algebra, query)
    times = pa.array([1_700_000_000_000_000_000, 1_700_000_000_000_000_001, 0], pa.int64())
    days = pa.array([19_675_925, 19_675_925, 0], pa.int32())
    columns = [times.cast(algebra.schema.types[0]), pa.array([1, 1, 1], pa.int64()), days.cast(pa.date32())]
    table = pa.table(columns, schema=algebra.schema)
    view.store.commit_micro_batch(at(1), table, events=3, dead_letters=0)
    with view.store.batch_in_progress() as (batch, cut):
        assert view.store.batch_tables.load(batch, cut, [table]) == 3
        view.store.commit_batch(batch, cut)
    view.store.commit_micro_batch(at(2), table, events=3, dead_letters=0)
    with database.read() as connection:
        rows = connection.exec_driver_sql(f"SELECT * FROM {quoted(view.name)}").fetchall()
    found = [(str(row[0])[:10], row[1], row[2], str(row[3])) for row in rows]
    far = ("9999-12-31", 55840, 2, "9999-12-31")
    assert sorted(found) == [("1970-01-01", 1970, 2, "1970-01-01"), far, far]


def test_partials_of_a_batch_come_back_in_pages(view, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.lambda_.batch_tables._ROWS_PER_PAGE", 2)
    view.micro_batch([*FIRST, *SECOND, *THIRD])
    view.run_batch()
    pages = list(view.store.batch_tables.partial_rows(1))
    assert [len(page) for page in pages] == [2, 2, 1]
    found = pa.concat_tables(pages).to_pylist()
    assert sorted(found, key=repr) == sorted(partials(view.store.algebra, view.events).to_pylist(), key=repr)


# ------------------------------------------------------------------------------------------------------------ readers


def test_a_reader_in_a_loop_sees_one_prefix_of_the_log_at_every_moment(view):
    """While micro-batches are committed, spans merged and batches landed."""
    view.micro_batch(FIRST)
    stop, wrong, seen = threading.Event(), [], set()

    def read() -> None:
        try:
            while not stop.is_set():
                offset, rows = view.rows()
                seen.add(offset)
                assert rows == answer(BY_PAGE, view.events[:offset])
        except BaseException as error:  # noqa: BLE001  the test looks at it
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    try:
        for number in range(30 * int(os.environ.get("HEADRACE_SOAK", "1"))):
            view.micro_batch([(f"p{number % 7}", number), ("home", 1)])
            view.store.merge_spans()
            if number % 5 == 4:
                view.run_batch()
            assert not wrong
    finally:
        stop.set()
        for each in readers:
            each.join()
    assert not wrong
    assert len(seen) > 5
    view.check()
