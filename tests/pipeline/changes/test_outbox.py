"""The outbox: each step is the exact difference between two states of a view, whatever happens between them."""

import datetime
import itertools
import json
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from changes_harness import FakeView
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import inspect

from headrace.pipeline.changes.change import Change, changes_of
from headrace.pipeline.changes.outbox import StreamMoved, followed
from headrace.pipeline.changes.reported_rows import ReportedRows
from headrace.pipeline.changes.row_values import row_of, row_text, view_columns
from headrace.pipeline.project.definition import ChangeSettings
from headrace.pipeline.serving.change_tables import CHANGE_STEPS, CHANGES, FOLLOWED
from headrace.pipeline.serving.errors import DuplicateKey
from headrace.pipeline.serving.sqlite.dialect import quoted

UTC = datetime.UTC
_numbers = itertools.count()
#: Without shrinking: an example takes a tenth of a second.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("share", pa.float64()),
        ("price", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("odd % \"name'", pa.map_(pa.string(), pa.int64())),
    ]
)
_texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=6)
WIDE_ROWS = st.tuples(
    st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    st.one_of(st.none(), _texts),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.floats(allow_nan=False)),
    st.one_of(st.none(), st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-3))),
    st.one_of(st.none(), st.dates()),
    st.one_of(st.none(), st.datetimes().map(lambda each: each.replace(tzinfo=UTC))),
    st.one_of(st.none(), st.binary(max_size=4)),
    st.one_of(st.none(), st.lists(st.one_of(st.none(), _texts), max_size=2)),
    st.one_of(st.none(), st.dictionaries(_texts, st.integers(-9, 9), max_size=2).map(lambda made: list(made.items()))),
)


def shown(view):
    """What readers see now, as a bag of JSON texts."""
    with view.database.read() as connection:
        columns = view_columns(connection, view.name)
        names = ", ".join(
            f"CAST({quoted(each.name)} AS TEXT)" if each.type == "jsonb" else quoted(each.name) for each in columns
        ).replace("%", "%" if view.database.is_sqlite else "%%")
        found = connection.exec_driver_sql(f"SELECT {names} FROM {view.name}").fetchall()
        return Counter(row_text(row_of(columns, row)) for row in found)


def reported(view):
    with view.database.read() as connection:
        columns = view_columns(connection, view.name)
        return Counter(row_text(row) for row in ReportedRows(connection, view.name, columns).rows())


def changes(view, after=0):
    with view.database.read() as connection:
        query = CHANGES.select().where(CHANGES.c.view == view.name, CHANGES.c.seq > after).order_by(CHANGES.c.seq)
        return connection.execute(query).fetchall()


def applied(rows, found):
    """A bag of rows after these changes. Removing a row that is not there fails."""
    rows = Counter(rows)
    for each in found:
        if each.before is not None:
            assert rows[each.before] >= each.copies, "a change removes a row that was never reported"
            rows[each.before] -= each.copies
        if each.after is not None:
            rows[each.after] += each.copies
    return +rows


@pytest.mark.parametrize("is_keyed", [True, False], ids=["keyed", "bag"])
@given(data=st.data())
@settings(max_examples=15, deadline=None, phases=_PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_changes_lead_from_each_told_state_to_the_next(database, is_keyed, data):
    view = FakeView(database, WIDE, ("id", "text") if is_keyed else None, f"wide_{next(_numbers)}")
    states = data.draw(st.lists(st.lists(WIDE_ROWS, max_size=4), min_size=2, max_size=4), label="states")
    if is_keyed:
        states = [list({(row[0], row[1]): row for row in state}.values()) for state in states]
    state, rows = None, Counter()
    for number, stored in enumerate(states):
        if number == 2:
            view.add_version()
        view.commit(stored, switch=True)
        before, state = state, view.step()
        rows = applied(rows, changes(view, before.last_seq)) if before else shown(view)
        assert rows == reported(view) == shown(view)
        assert state.as_of["offsets"] == {"clicks": {"0": view.batch}}
        assert state.stream == (before or state).stream
    found = changes(view)
    assert [each.seq for each in found] == list(range(1, len(found) + 1))
    for each in found if is_keyed else ():
        assert {"insert": (True, False), "delete": (False, True), "update": (False, False)}[each.op] == (
            each.before is None,
            each.after is None,
        )
        assert json.loads(each.after or each.before).items() >= json.loads(each.key).items()


def test_rows_with_one_key_are_an_update_and_others_inserts_and_deletes():
    removed = [({"k": 1, "v": 2}, 1), ({"k": 2, "v": 2}, 1)]
    found = changes_of(removed, [({"k": 1, "v": 3}, 1), ({"k": None, "v": 1}, 1)], ["k"])
    assert found == [
        Change("update", {"k": 1}, {"k": 1, "v": 2}, {"k": 1, "v": 3}),
        Change("delete", {"k": 2}, {"k": 2, "v": 2}, None),
        Change("insert", {"k": None}, None, {"k": None, "v": 1}),
    ]
    assert changes_of([], [({"v": 1}, 3)], None) == [Change("insert", None, None, {"v": 1}, 3)]


def test_a_key_that_does_not_identify_rows_is_an_error():
    with pytest.raises(DuplicateKey, match=r'same key \(k\): \{"k":1\}'):
        changes_of([], [({"k": 1, "v": 1}, 1), ({"k": 1, "v": 2}, 1)], ["k"])


def test_several_commits_become_one_difference_and_equal_rows_none(database):
    view = FakeView(database)
    view.commit([("home", 1)])
    assert view.step().last_seq == 0
    assert view.outbox.due(["pages", "other"]) == []
    view.commit([("home", 2)])
    view.commit([("home", 3), ("shop", 1)])
    assert view.outbox.due(["pages"]) == ["pages"]
    assert view.step().last_seq == 2
    assert [(each.op, each.before, each.after) for each in changes(view)] == [
        ("update", '{"page":"home","clicks":1}', '{"page":"home","clicks":3}'),
        ("insert", None, '{"page":"shop","clicks":1}'),
    ]
    view.commit([("shop", 1), ("home", 3)])
    state = view.step()
    assert (state.last_seq, state.as_of["offsets"]) == (2, {"clicks": {"0": 4}})


def test_a_switch_tells_only_the_difference_of_the_versions(database):
    view = FakeView(database)
    view.commit([("home", 1), ("shop", 2)])
    began = view.step()
    view.add_version()
    view.commit([("home", 1), ("shop", 3)])
    assert view.step() == began, "the new version does not serve yet"
    view.commit([("home", 1), ("shop", 3)], switch=True)
    state = view.step()
    assert (state.stream, state.as_of["version"]) == (began.stream, 2)
    assert [each.after for each in changes(view)] == ['{"page":"shop","clicks":3}']


@pytest.mark.parametrize("what", ["columns", "key", "too many rows"])
def test_what_numbered_changes_cannot_say_begins_a_stream(database, what):
    view = FakeView(database)
    view.settings = ChangeSettings(keep_changes=3)
    view.commit([("home", 1)])
    began = view.step()
    view.commit([("home", 2)])
    assert view.step().last_seq == 1
    if what == "columns":
        view.add_version(pa.schema([("page", pa.string()), ("clicks", pa.string())]))
        view.commit([("home", "2")], switch=True)
    elif what == "key":
        view.add_version(key=("page", "clicks"))
        view.commit([("home", 2)], switch=True)
    else:
        view.commit([(f"p{n}", n) for n in range(4)])
    state = view.step()
    assert state.stream != began.stream
    assert (state.first_seq, state.last_seq, changes(view)) == (1, 0, [])
    assert reported(view) == shown(view)


def test_the_outbox_is_bounded_in_rows_and_in_time(database):
    view = FakeView(database)
    view.settings = ChangeSettings(keep_changes=3, keep_ms=10_000)
    for clicks in range(6):
        view.commit([("home", clicks)])
        view.clock.advance(1000)
        state = view.step()
    assert (state.first_seq, state.last_seq) == (3, 5)
    assert [each.seq for each in changes(view)] == [3, 4, 5]
    view.clock.advance(11_000)
    view.commit([("home", 99)])
    state = view.step()
    assert (state.first_seq, [each.seq for each in changes(view)]) == (6, [6])
    with database.read() as connection:
        assert [each.last_seq for each in connection.execute(CHANGE_STEPS.select())] == [6]


@pytest.mark.parametrize("crash", ["report", "_write"])
def test_a_step_that_crashes_leaves_nothing_and_the_next_one_tells_everything(database, monkeypatch, crash):
    view = FakeView(database)
    view.commit([("home", 1)])
    began = view.step()
    view.commit([("home", 2), ("shop", 1)])
    owner = ReportedRows if crash == "report" else type(view.outbox)
    real = getattr(owner, crash)

    def crashing(*arguments):
        real(*arguments)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(owner, crash, crashing)
        with pytest.raises(SystemExit):
            view.step()
    with database.read() as connection:
        assert followed(connection, "pages") == began
    assert changes(view) == []
    view.step()
    assert applied(Counter(['{"page":"home","clicks":1}']), changes(view)) == shown(view) == reported(view)


def test_a_second_process_that_follows_changes_nothing(database, monkeypatch):
    view = FakeView(database)
    view.commit([("home", 1)])
    view.step()
    view.commit([("home", 2)])
    real = ReportedRows.differences

    def overtaken(self, limit):
        found = real(self, limit)
        monkeypatch.setattr(ReportedRows, "differences", real)
        view.step()
        return found

    monkeypatch.setattr(ReportedRows, "differences", overtaken)
    with pytest.raises(StreamMoved, match="only one 'headrace views run'"):
        view.step()
    assert [each.seq for each in changes(view)] == [1]


def test_a_view_that_nobody_follows_keeps_nothing(database):
    view = FakeView(database)
    view.commit([("home", 1)])
    view.step()
    view.outbox.forget("pages")
    assert view.outbox.views() == set()
    with database.read() as connection:
        assert not inspect(connection).has_table("pages__told")
    view.step()
    with database.begin() as connection:
        view.catalog.remove_view(connection, "pages")
        assert not inspect(connection).has_table("pages__told")
        assert connection.execute(FOLLOWED.select()).fetchall() == []
