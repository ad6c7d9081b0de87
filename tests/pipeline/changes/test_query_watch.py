"""``query --watch``: a snapshot, then differences that lead from each answer to the next."""

import json
from argparse import Namespace
from collections import Counter

import pyarrow as pa
import pytest
from changes_harness import FakeView
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.changes.row_values import row_text
from headrace.pipeline.changes.watch import Watch, differences_between
from headrace.pipeline.serving.errors import DatabaseUnreachable, QueryError
from headrace.pipeline.serving.queries.query import QueryService
from headrace.tools.query import watch as query_watch
from headrace.tools.query.watch import json_lines, text_lines

_ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.text("ab", max_size=1))))


@given(before=_ROWS, after=_ROWS, key=st.sampled_from([(), (0,), (0, 1)]))
def test_the_difference_leads_from_one_answer_to_the_next(before, after, key):
    rows = Counter(map(row_text, before))
    for change in differences_between(before, after, key):
        if change.before is not None:
            assert rows[row_text(change.before)] > 0
            rows[row_text(change.before)] -= 1
        if change.after is not None:
            rows[row_text(change.after)] += 1
        if change.op == "update":
            assert [change.before[at] for at in key] == [change.after[at] for at in key]
    assert +rows == Counter(map(row_text, after))
    assert differences_between(before, list(reversed(before)), key) == []


class Script:
    """Does one thing per look of a watch, and ends it after the last."""

    def __init__(self, *steps):
        self._steps = list(steps)

    def __call__(self):
        if not self._steps:
            return False
        self._steps.pop(0)()
        return True


@pytest.fixture
def view(database):
    made = FakeView(database)
    made.commit([("home", 1), ("shop", 2)])
    return made


@pytest.fixture
def service(database_url):
    opened = QueryService(database_url)
    yield opened
    opened.close()


def watched(service, sql, *steps, limit=100, **options):
    watch = Watch(service, sql, limit=limit, timeout_ms=10_000, wait=Script(*steps), **options)
    return list(watch.differences())


def test_a_watch_gives_a_snapshot_and_then_changes_with_their_as_of(view, service):
    found = watched(
        service, "SELECT page, clicks FROM pages ORDER BY page",
        lambda: None,
        lambda: view.commit([("home", 5), ("tea", 1)]),
        lambda: view.commit([("tea", 1), ("home", 5)]),
        lambda: (view.add_version(), view.commit([("home", 5), ("tea", 2)], switch=True)),
    )  # fmt: skip
    assert [list(each.rows or ()) for each in found] == [[("home", 1), ("shop", 2)], [], []]
    assert [[(one.op, one.before, one.after) for one in each.changes] for each in found[1:]] == [
        [("update", ("home", 1), ("home", 5)), ("delete", ("shop", 2), None), ("insert", None, ("tea", 1))],
        [("update", ("tea", 1), ("tea", 2))],
    ]
    assert [(each.as_of[0].version, each.as_of[0].offsets) for each in found] == [
        (1, {"clicks": {0: 1}}), (1, {"clicks": {0: 2}}), (2, {"clicks": {0: 4}}),
    ]  # fmt: skip


def test_any_query_can_be_watched_and_other_columns_are_a_new_snapshot(view, service):
    total = "SELECT sum(clicks) AS total FROM pages"
    first, second = watched(service, total, lambda: view.commit([("home", 10)]))
    assert (first.rows, [(one.op, one.before, one.after) for one in second.changes]) == (
        [(3,)],
        [("delete", (3,), None), ("insert", None, (10,))],
    )

    def wider():
        view.add_version(pa.schema([("page", pa.string()), ("clicks", pa.int64()), ("more", pa.bool_())]))
        view.commit([("home", 1, True)], switch=True)

    _, again = watched(service, "SELECT * FROM pages", wider)
    assert (again.columns, again.rows) == (["page", "clicks", "more"], [("home", 1, True)])


def test_a_watch_waits_for_a_database_that_is_away(view, service, monkeypatch):
    real, said = QueryService.query, []

    def away(*_, **__):
        raise DatabaseUnreachable("gone")

    def break_it():
        view.commit([("home", 9), ("shop", 2)])
        monkeypatch.setattr(QueryService, "query", away)

    def repair():
        monkeypatch.setattr(QueryService, "query", real)

    _, after = watched(service, "SELECT * FROM pages", break_it, lambda: None, repair, on_away=said.append)
    assert len(said) == 2
    assert [(one.op, one.after) for one in after.changes] == [("update", ("home", 9))]


def test_what_cannot_be_watched_is_an_error(view, service):
    with pytest.raises(QueryError, match="reads no view"):
        watched(service, "SELECT 1 AS one")
    with pytest.raises(QueryError, match=r"more than 1 rows.*raise --limit"):
        watched(service, "SELECT * FROM pages", limit=1)
    with pytest.raises(QueryError, match="more than 2 rows"):
        watched(service, "SELECT * FROM pages", lambda: view.commit([("a", 1), ("b", 1), ("c", 1)]), limit=2)


def test_lines_say_what_came_went_and_changed(view, service):
    found = watched(service, "SELECT * FROM pages ORDER BY page", lambda: view.commit([("home", None), ("tea", 1)]))
    lines = [line for each in found for line in text_lines(each)]
    shown = [line.partition(", ")[0] for line in lines]
    assert shown == [
        "# page  clicks", "+ home  1", "+ shop  2", "= pages v1 as of clicks 0:1",
        "~ home  1 -> home  NULL", "- shop  2", "+ tea  1", "= pages v1 as of clicks 0:2",
    ]  # fmt: skip
    snapshot, first, *_, last = [json.loads(line) for each in found for line in json_lines(each)]
    assert (snapshot["event"], snapshot["columns"], snapshot["rows"]) == (
        "snapshot", ["page", "clicks"], [["home", 1], ["shop", 2]],
    )  # fmt: skip
    assert (first["op"], first["before"], first["after"], first["last"]) == (
        "update", {"page": "home", "clicks": 1}, {"page": "home", "clicks": None}, False,
    )  # fmt: skip
    assert (last["op"], last["last"], last["as_of"][0]["offsets"]) == ("insert", True, {"clicks": {"0": 2}})


def test_the_command_prints_each_answer_as_soon_as_it_has_it(view, service, capsys, monkeypatch):
    monkeypatch.setattr(query_watch, "_wait", Script(lambda: view.commit([("home", 2)])))
    options = Namespace(limit=10, timeout=1000, json=False)
    query_watch.watch(service, "SELECT * FROM pages ORDER BY page", options)
    assert [line[:7] for line in capsys.readouterr().out.splitlines()] == [
        "# page ", "+ home ", "+ shop ", "= pages", "~ home ", "- shop ", "= pages",
    ]  # fmt: skip
