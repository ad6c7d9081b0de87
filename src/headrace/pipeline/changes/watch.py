"""Watches the answer of a query: a snapshot, then the difference to each later answer.

The query runs again when the progress of a view that it reads has changed. Each answer comes from one snapshot of the
database, so each difference leads from one state that a reader could see to another, with the ``as_of`` of the second.
Several commits may become one difference. If the database is away meanwhile, the next difference has everything since
the last answer. Nothing is asked of the runner.

Rows are compared as a bag: a row that occurs twice counts twice. If the query reads one view, and its answer has the
columns that identify a row of this view, then a row that went and a row that came with the same key are one update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headrace.pipeline.changes.change import DELETE, INSERT, UPDATE
from headrace.pipeline.changes.row_values import row_text
from headrace.pipeline.serving.errors import DatabaseUnreachable, QueryError
from headrace.pipeline.serving.queries.formats import jsonable
from headrace.pipeline.serving.queries.query import Answer, QueryService
from headrace.views.answers import AsOf

#: The values of a row, as JSON values.
Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class WatchedChange:
    op: str
    before: Values | None
    after: Values | None


@dataclass(frozen=True, slots=True)
class Difference:
    """
    :param rows: all rows of the first answer; None for the later ones.
    :param changes: what differs from the answer before.
    """

    columns: Sequence[str]
    rows: Sequence[Values] | None
    changes: Sequence[WatchedChange]
    as_of: Sequence[AsOf]


def differences_between(
    before: Sequence[Values], after: Sequence[Values], key: Sequence[int] = ()
) -> list[WatchedChange]:
    """Returns the steps from one answer to the next: first removed and updated rows, in the order of the first answer.

    :param key: the positions of the columns that identify a row; empty if there are none.
    """
    old, new = Counter(map(row_text, before)), Counter(map(row_text, after))
    gone, came = _surplus(before, old - new), _surplus(after, new - old)
    by_key: dict[str, list[Values]] = {}
    for row in came if key else ():
        by_key.setdefault(row_text([row[at] for at in key]), []).append(row)
    found = []
    updated: list[Values] = []
    for row in gone:
        same = by_key.get(row_text([row[at] for at in key])) if key else None
        if same:
            updated.append(same.pop(0))
            found.append(WatchedChange(UPDATE, row, updated[-1]))
        else:
            found.append(WatchedChange(DELETE, row, None))
    left = Counter(map(row_text, came)) - Counter(map(row_text, updated))
    return found + [WatchedChange(INSERT, None, row) for row in _surplus(came, left)]


def _surplus(rows: Sequence[Values], counts: Counter[str]) -> list[Values]:
    """These rows, each as often as counted, in their order."""
    left = Counter(counts)
    found = []
    for row in rows:
        text = row_text(row)
        if left[text] > 0:
            left[text] -= 1
            found.append(row)
    return found


class Watch:
    """
    :param wait: waits for a moment between two looks; returns False to end.
    :param on_away: called when the database does not answer; the next look tries again.
    """

    def __init__(
        self,
        service: QueryService,
        sql: str,
        *,
        limit: int,
        timeout_ms: int,
        wait: Callable[[], bool],
        on_away: Callable[[DatabaseUnreachable], None] = lambda _: None,
    ) -> None:
        self._service, self._sql, self._limit, self._timeout_ms = service, sql, limit, timeout_ms
        self._wait, self._on_away = wait, on_away

    def differences(self) -> Iterator[Difference]:
        """The first answer, then the difference to each later answer that has one.

        :raises QueryError: if the query is wrong, reads no view, or has more rows than the limit.
        """
        answer = self._ask()
        if not answer.as_of:
            raise QueryError("the query reads no view, so its answer never changes: name a view in FROM")
        rows = _values(answer)
        yield Difference(answer.columns, rows, (), answer.as_of)
        while self._wait():
            try:
                now = self._service.as_of([each.view for each in answer.as_of])
                if _progress(now) == _progress(answer.as_of):
                    continue
                before, answer = (answer, rows), self._ask()
            except DatabaseUnreachable as error:
                self._on_away(error)
                continue
            rows = _values(answer)
            if answer.columns != before[0].columns:
                yield Difference(answer.columns, rows, (), answer.as_of)
                continue
            changes = differences_between(before[1], rows, self._key(answer))
            if changes:
                yield Difference(answer.columns, None, changes, answer.as_of)

    def _ask(self) -> Answer:
        answer = self._service.query(self._sql, limit=self._limit, timeout_ms=self._timeout_ms)
        if answer.is_truncated:
            raise QueryError(
                f"the answer has more than {self._limit} rows, or is too large, and --watch compares whole answers: "
                "raise --limit, or make the query smaller"
            )
        return answer

    def _key(self, answer: Answer) -> list[int]:
        if len(answer.as_of) != 1:
            return []
        (only,) = answer.as_of
        key = self._service.key_of(only.view, only.version)
        if not key or any(name not in answer.columns for name in key):
            return []
        return [answer.columns.index(name) for name in key]


def _values(answer: Answer) -> list[Values]:
    return [tuple(jsonable(value) for value in row) for row in answer.rows]


def _progress(as_of: Sequence[AsOf]) -> list[tuple[object, ...]]:
    return [(each.view, each.version, each.offsets, each.updated_ms) for each in as_of]
