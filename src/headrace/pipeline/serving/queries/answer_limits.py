"""Fetches the rows of an answer up to a number of rows and of bytes: a short query can produce very large values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Protocol

#: Bytes of an answer at most, because a reader gets it in one piece.
MAX_ANSWER_BYTES = 64 << 20
_BYTES_OF_PER_NUMBER = 8
#: A block of a large answer has about this many bytes. The first block shows how large the rows are.
_BLOCK_BYTES = 4 << 20
#: More rows at a time cost the garbage collector more than they save.
_FIRST_ROWS, _MOST_ROWS = 100, 4_000

Row = tuple[object, ...]


class Rows(Protocol):
    """A cursor of a driver."""

    def fetchmany(self, size: int = 1) -> list[Row]: ...
    def __iter__(self) -> Iterator[Row]: ...


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


def blocks(rows: Rows) -> Iterator[list[Row]]:
    """All rows, in blocks of bounded size."""
    count = _FIRST_ROWS
    while block := rows.fetchmany(count):
        size_bytes = sum(map(_size_bytes, chain.from_iterable(block[:_FIRST_ROWS])))
        yield block
        row_bytes = max(1, size_bytes // len(block[:_FIRST_ROWS]))
        count = max(1, min(_BLOCK_BYTES // row_bytes, 4 * count, _MOST_ROWS))


def _size_bytes(value: object) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    return len(repr(value)) if isinstance(value, (dict, list)) else _BYTES_OF_PER_NUMBER
