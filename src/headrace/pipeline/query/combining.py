"""Combines partial results, on Arrow tables in this process. A Spark job would take 60 ms or more.

Rows with equal keys form a group. Keys are equal if their canonical texts (``serving.keys``) are: NULL equals NULL, and
NaN equals NaN. How the rows of a group are combined depends on the column:

============  ==============================================================================
SUM           the sum; NULL if all are NULL. An overflow of integers or decimals raises, as in Spark
MIN, MAX      the smallest or largest value that is not NULL; NaN is larger than all numbers
FIRST, LAST   all columns of the one row that is first or last by some of them
UNION         the union of sketches (``distinct_sketch``)
============  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.query.distinct_sketch import union
from headrace.pipeline.serving.keys import canonical_keys

_LARGEST = 2**63 - 1
_ALL_NULL_IS_NULL = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


class Rule(Enum):
    SUM = auto()
    MIN = auto()
    MAX = auto()
    FIRST = auto()
    LAST = auto()
    UNION = auto()


@dataclass(frozen=True)
class Combination:
    """How some columns are combined.

    :param columns: one column; for FIRST and LAST all columns of the chosen row.
    :param by: the columns that order the rows for FIRST and LAST. A row whose first one is NULL does not count.
    """

    rule: Rule
    columns: tuple[str, ...]
    by: tuple[str, ...] = ()


class Groups:
    """Assigns each row to the group of its key."""

    def __init__(self, table: pa.Table, key_columns: Sequence[str]) -> None:
        encoded = canonical_keys(table, key_columns).dictionary_encode()
        self.of_row: npt.NDArray[np.int64] = encoded.indices.to_numpy().astype(np.int64)
        self.count = len(encoded.dictionary)
        # The values of a dictionary are in the order in which they occur, so this is the first row of each group.
        _, self.first_rows = np.unique(self.of_row, return_index=True)


def combine(table: pa.Table, key_columns: Sequence[str], combinations: Sequence[Combination]) -> pa.Table:
    """One row per group, with the columns and types of the table."""
    groups = Groups(table, key_columns)
    firsts = pa.array(groups.first_rows)
    merged = {name: table.column(name).take(firsts) for name in key_columns}
    for combination in combinations:
        merged |= _combined(table, groups, combination)
    return pa.table([merged[field.name].cast(field.type) for field in table.schema], schema=table.schema)


def _combined(table: pa.Table, groups: Groups, combination: Combination) -> dict[str, pa.ChunkedArray]:
    rule, name = combination.rule, combination.columns[0]
    if rule in (Rule.FIRST, Rule.LAST):
        return _chosen(table, groups, combination)
    column = table.column(name)
    if rule is Rule.UNION:
        return {name: union(column, groups.of_row, groups.count)}
    if rule is Rule.SUM:
        return {name: _sums(column, groups)}
    if pa.types.is_floating(column.type):  # Arrow's min and max skip NaN
        by = Combination(Rule.FIRST if rule is Rule.MIN else Rule.LAST, (name,), (name,))
        return _chosen(table, groups, by)
    return {name: _aggregated(column, groups, "min" if rule is Rule.MIN else "max")}


def _sums(column: pa.ChunkedArray, groups: Groups) -> pa.ChunkedArray:
    """Arrow's sums wrap around when they overflow, so sums that may overflow are computed in a wider type."""
    if pa.types.is_decimal(column.type):
        exact = _aggregated(column.cast(pa.decimal256(76, column.type.scale)), groups, "sum")
    elif pa.types.is_integer(column.type) and _may_overflow(column):
        exact = _aggregated(column.cast(pa.decimal128(38, 0)), groups, "sum")
    else:
        return _aggregated(column, groups, "sum")
    try:
        return exact.cast(column.type)
    except pa.ArrowInvalid as error:
        raise overflow("a sum", column.type) from error


def _may_overflow(column: pa.ChunkedArray) -> bool:
    largest = pc.max(pc.abs(column.cast(pa.float64(), safe=False))).as_py() or 0.0
    return bool(largest * len(column) >= _LARGEST)


def overflow(what: str, kind: pa.DataType) -> Exception:
    """The exception that Spark raises for an overflow. ``version.failures`` classifies it."""
    from pyspark.errors import ArithmeticException

    hint = "use a wider type in the query, as in sum(CAST(x AS DECIMAL(38, 0)))"
    return ArithmeticException(f"[ARITHMETIC_OVERFLOW] {what} is too large for the type {kind}: {hint}")


def _aggregated(column: pa.ChunkedArray, groups: Groups, function: str) -> pa.ChunkedArray:
    rows = pa.table({"group": groups.of_row, "value": column})
    found = rows.group_by("group", use_threads=False).aggregate([("value", function, _ALL_NULL_IS_NULL)])
    return found.sort_by("group").column(f"value_{function}")


def _chosen(table: pa.Table, groups: Groups, combination: Combination) -> dict[str, pa.ChunkedArray]:
    rows = table.select(sorted({*combination.columns, *combination.by}))
    rows = rows.append_column("group", pa.array(groups.of_row))
    counting = rows.filter(pc.is_valid(rows.column(combination.by[0])))
    order = [("group", "ascending"), *((name, "ascending") for name in combination.by)]
    counting = counting.take(pc.sort_indices(counting, sort_keys=order))
    owners = counting.column("group").to_numpy()
    if combination.rule is Rule.FIRST:
        places = np.searchsorted(owners, np.arange(groups.count), side="left")
    else:
        places = np.searchsorted(owners, np.arange(groups.count), side="right") - 1
    inside = np.clip(places, 0, max(len(owners) - 1, 0))
    found = (owners[inside] == np.arange(groups.count)) if len(owners) else np.zeros(groups.count, dtype=bool)
    indices = pa.array(inside, mask=~found)
    return {name: counting.column(name).take(indices) for name in combination.columns}
