"""Prints what ``headrace query --watch`` sees: a snapshot, then changes, as lines or as JSON lines.

::

    + home  12               a row came; all rows of the first answer are such lines
    ~ home  12 -> 13         a row changed
    - home  13               a row went
    = pages v2 as of clicks 0:1200, 0.1 s ago        after each answer: up to where its rows count

With ``--json`` each line is an object: ``{"event": "snapshot", "columns": [...], "rows": [...], "as_of": [...]}``, then
``{"event": "change", "op": "update", "before": {...}, "after": {...}, "as_of": [...], "last": true}``. ``last`` is true
for the last change of an answer.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.pipeline.changes.watch import Difference, Values, WatchedChange
    from headrace.pipeline.serving.errors import DatabaseUnreachable
    from headrace.pipeline.serving.queries.query import QueryService

_LOOK_S = 0.1


def watch(service: QueryService, sql: str, options: Namespace) -> None:
    """Prints until Ctrl-C."""
    from headrace.pipeline.changes.watch import Watch

    watched = Watch(
        service, sql, limit=options.limit, timeout_ms=options.timeout, wait=lambda: _wait(), on_away=_Away(service.name)
    )
    for difference in watched.differences():
        lines = json_lines(difference) if options.json else text_lines(difference)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


def _wait() -> bool:
    time.sleep(_LOOK_S)
    return True


class _Away:
    """Says once that the database does not answer."""

    def __init__(self, name: str) -> None:
        self._name, self._said = name, ""

    def __call__(self, error: DatabaseUnreachable) -> None:
        if str(error) != self._said:
            self._said = str(error)
            sys.stderr.write(f"waiting for {self._name}: {error}\n")


def text_lines(difference: Difference) -> Iterator[str]:
    from headrace.views.answers import as_of_text

    if difference.rows is not None:
        yield f"# {'  '.join(difference.columns)}"
        for row in difference.rows:
            yield f"+ {_cells(row)}"
    for change in difference.changes:
        yield _line(change)
    for as_of in difference.as_of:
        yield f"= {as_of_text(as_of)}"


def _line(change: WatchedChange) -> str:
    if change.before is not None and change.after is not None:
        return f"~ {_cells(change.before)} -> {_cells(change.after)}"
    return f"+ {_cells(change.after)}" if change.after is not None else f"- {_cells(change.before or ())}"


def _cells(row: Values) -> str:
    from headrace.pipeline.serving.queries.formats import plain_cell

    return "  ".join("NULL" if value is None else str(plain_cell(value)) for value in row)


def json_lines(difference: Difference) -> Iterator[str]:
    as_of = [asdict(each) for each in difference.as_of]
    if difference.rows is not None:
        rows = [list(row) for row in difference.rows]
        yield json.dumps({"event": "snapshot", "columns": difference.columns, "rows": rows, "as_of": as_of})
    for number, change in enumerate(difference.changes, 1):
        yield json.dumps(
            {
                "event": "change",
                "op": change.op,
                "before": _named(difference.columns, change.before),
                "after": _named(difference.columns, change.after),
                "as_of": as_of,
                "last": number == len(difference.changes),
            }
        )


def _named(columns: Sequence[str], row: Values | None) -> dict[str, object] | None:
    return None if row is None else dict(zip(columns, row, strict=True))
