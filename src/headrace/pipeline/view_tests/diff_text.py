"""Writes a difference for people: one line per row, in columns, with a mark at the values that differ.

::

        country  total
    -   FR       3              missing: expected, but not in the view
    +   US       1              unexpected: in the view
    ~   DE       5 -> 7         changed: expected -> found
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from headrace.pipeline.view_tests.cells import Cell, Row
from headrace.pipeline.view_tests.comparing import Difference

#: A difference of more rows than this is cut.
MAX_ROWS = 20
_MAX_CELL = 60


def shown(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    text = cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    if text == "" or text != text.strip() or any(ord(letter) < 32 for letter in text):
        text = json.dumps(cell, ensure_ascii=False)
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3]}..."


def diff_lines(difference: Difference, names: Sequence[str]) -> list[str]:
    """
    :param names: the columns of the rows.
    """
    if difference.order is not None:
        return [f"the rows are right, but their order differs from row {difference.order + 1} on"]
    rows = list(_marked(difference))
    cut = rows[:MAX_ROWS]
    table = [("", *names), *((mark, *cells) for mark, cells in cut)]
    widths = [max(len(row[at]) for row in table) for at in range(len(names) + 1)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    if len(rows) > len(cut):
        lines.append(f"and {len(rows) - len(cut)} more rows that differ")
    return lines


def summary(difference: Difference) -> str:
    """``1 row missing, 2 rows changed``."""
    if difference.order is not None:
        return "another order"
    counts = {
        "missing": len(difference.missing),
        "unexpected": len(difference.unexpected),
        "changed": len(difference.changed),
    }
    return ", ".join(f"{count} {'row' if count == 1 else 'rows'} {what}" for what, count in counts.items() if count)


def _marked(difference: Difference) -> Iterator[tuple[str, list[str]]]:
    for each in difference.changed:
        cells = [
            f"{shown(one)} -> {shown(other)}" if at in each.columns else shown(one)
            for at, (one, other) in enumerate(zip(each.expected, each.found, strict=True))
        ]
        yield "~", cells
    yield from (("-", _cells(row)) for row in difference.missing)
    yield from (("+", _cells(row)) for row in difference.unexpected)


def _cells(row: Row) -> list[str]:
    return [shown(cell) for cell in row]
