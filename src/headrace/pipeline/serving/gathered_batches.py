"""Gathers small record batches, which Spark gives to a task, into tables of a useful size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]


def gathered(batches: Iterable[pa.RecordBatch], rows_per_table: int, bytes_per_table: int) -> Iterator[pa.Table]:
    """The same rows in their order. A table ends with the batch that reaches one of the two numbers."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= rows_per_table or size_bytes >= bytes_per_table:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
