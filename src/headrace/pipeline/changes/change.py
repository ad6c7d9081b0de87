"""Makes changes of rows from what a comparison has found: inserts, updates and deletes. No I/O.

With a key, a row that went and a row that came with the same key are one update. Without a key, the row itself is its
key, and equal rows are counted: a change then says for how many copies of the row it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.pipeline.changes.row_values import Row, row_text
from headrace.pipeline.serving.errors import DuplicateKey

INSERT, UPDATE, DELETE = "insert", "update", "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """
    :param key: the key columns of the row; None if no columns are known to identify a row.
    :param copies: how many equal rows came or went; more than one only without a key.
    """

    op: str
    key: Row | None
    before: Row | None
    after: Row | None
    copies: int = 1


def changes_of(
    removed: Iterable[tuple[Row, int]], added: Iterable[tuple[Row, int]], key: Sequence[str] | None
) -> list[Change]:
    """The changes, in the order of their keys.

    :param removed: the rows that went, and how many copies of each.
    :param key: the columns that identify a row; None if there are none.
    :raises DuplicateKey: if two rows have the same key.
    """
    if key is None:
        gone = [Change(DELETE, None, row, None, copies) for row, copies in removed]
        return gone + [Change(INSERT, None, None, row, copies) for row, copies in added]
    before, after = _by_key(removed, key), _by_key(added, key)
    found = []
    for text in sorted(before.keys() | after.keys()):
        old, new = before.get(text), after.get(text)
        op = UPDATE if old is not None and new is not None else INSERT if new is not None else DELETE
        row = new if new is not None else old
        assert row is not None
        found.append(Change(op, key_of_row(row, key), old, new))
    return found


def key_of_row(row: Row, key: Sequence[str]) -> dict[str, object]:
    return {name: row[name] for name in key}


def _by_key(rows: Iterable[tuple[Row, int]], key: Sequence[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row, copies in rows:
        text = row_text(key_of_row(row, key))
        if text in found or copies != 1:
            raise DuplicateKey(
                f"two rows have the same key ({', '.join(key) or 'one row for everything'}): {text}. A key must "
                "identify a row: correct key in the view's file or the query"
            )
        found[text] = row
    return found
