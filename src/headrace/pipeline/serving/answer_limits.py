"""Fetches the rows of an answer up to a number of rows and of bytes: a short query can produce very large values."""

from __future__ import annotations

from collections.abc import Iterable

#: Bytes of an answer at most, because a reader gets it in one piece.
MAX_ANSWER_BYTES = 64 << 20
_BYTES_OF_PER_NUMBER = 8

Row = tuple[object, ...]


def fetch(cursor: Iterable[Row], limit: int) -> tuple[list[Row], bool]:
    """The first rows, and whether there are more."""
    rows: list[Row] = []
    size_bytes = 0
    for row in cursor:
        size_bytes += sum(map(_size_bytes, row))
        if len(rows) == limit or (rows and size_bytes > MAX_ANSWER_BYTES):
            return rows, True
        rows.append(row)
    return rows, False


def _size_bytes(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    return len(repr(value)) if isinstance(value, (dict, list)) else _BYTES_OF_PER_NUMBER
