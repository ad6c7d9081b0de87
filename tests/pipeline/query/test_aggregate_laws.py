"""The laws of partial results, on queries and data made at random (``aggregate_cases``).

    final(merge(partials))  = Spark's answer over everything, for any split into pieces and any order of merging
    final(partial)          = final(merge([partial])): a partial row is a whole row of its key
    loaded(stored(partial)) = partial

A piece is computed as the batch layer does it, by a job, or as the speed layer does it, as one partial row per event.
``HEADRACE_SEEDS`` says how many times as many seeds are tried.
"""

from __future__ import annotations

import math
import os
from functools import reduce
from random import Random

import aggregate_cases as cases
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lambda_harness import quick as quick
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from headrace.pipeline.query.aggregates import Algebra, arrow_schema
from headrace.pipeline.query.plan import FUNCTIONS, HIDDEN, analyze

pytestmark = pytest.mark.timeout(600)
CASES_PER_QUERY = 16
SEEDS = range(math.ceil(len(cases.CASES) / CASES_PER_QUERY) * int(os.environ.get("HEADRACE_SEEDS", "1")))
PIECE = "_piece"


def _frame(spark, rows):
    schema = StructType.fromDDL(cases.SCHEMA)
    columns = arrow_schema(schema)
    table = pa.table([pa.array([row[at] for row in rows], each.type) for at, each in enumerate(columns)], columns.names)
    return spark.createDataFrame(table, schema).coalesce(1)


def _piece(algebra: Algebra, frame, *, is_by_row: bool):
    """Partial rows: of groups, or of single events."""
    return algebra.plan.rows(frame).select(*algebra.row_columns()) if is_by_row else algebra.partial(frame)


def _pieces(spark, algebra: Algebra, rows, chance: Random) -> list[pa.Table]:
    """Partial tables over a random split; all of them by one job."""
    count = chance.randrange(1, 6)
    owners = [chance.randrange(count) for _ in rows]
    frames = []
    for number in range(count):
        frame = _frame(spark, [row for row, owner in zip(rows, owners, strict=True) if owner == number])
        made = _piece(algebra, frame, is_by_row=chance.random() < 0.4)
        frames.append(made.withColumn(PIECE, F.lit(number)))
    found = reduce(lambda one, other: one.unionAll(other), frames).toArrow()
    return [found.filter(pc.equal(found[PIECE], number)).drop([PIECE]).cast(algebra.schema) for number in range(count)]


def _merged(algebra: Algebra, tables: list[pa.Table], chance: Random) -> pa.Table:
    """Merged two or three at a time, in any order; by way of a database at times."""
    tables = list(tables)
    while len(tables) > 1:
        chance.shuffle(tables)
        size = chance.choice((2, 2, 3))
        made = algebra.merge(tables[:size])
        tables = [algebra.loaded(algebra.stored(made)) if chance.random() < 0.5 else made, *tables[size:]]
    return algebra.merge(tables)


def _rows(table: pa.Table) -> list[list[object]]:
    """In an order that depends on the values alone; equal values have equal texts."""
    columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    return sorted((list(row) for row in zip(*columns, strict=True)), key=repr)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0  # 0.0 and -0.0 are one value of SQL
    return {name: _plain(part) for name, part in value.items()} if isinstance(value, dict) else value


def _assert_same(ours: pa.Table, sparks: pa.Table, about: str) -> None:
    assert ours.schema.types == sparks.schema.types, about
    left, right = _rows(ours), _rows(sparks)
    assert len(left) == len(right), about
    for one, other in zip(left, right, strict=True):
        wrong = {name: pair for name, *pair in zip(ours.schema.names, one, other, strict=True) if pair[0] != pair[1]}
        assert not wrong, f"{wrong} in {one}: {about}"


def test_every_function_that_is_accepted_has_cases():
    assert {case.function for case in cases.CASES} == set(FUNCTIONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_split_merged_in_any_order_is_sparks_answer(spark, seed):
    chance = Random(seed)
    start = seed * CASES_PER_QUERY % len(cases.CASES)  # the seeds together try every case
    query, expected = cases.queries(chance, (cases.CASES * 2)[start : start + CASES_PER_QUERY])
    about = f"seed {seed}: {query}"
    frame = _frame(spark, rows := cases.events(chance, chance.choice((0, 1, 7, 60, 60, 300))))
    spark.createDataFrame([], cases.SCHEMA).createOrReplaceTempView("events")
    algebra = Algebra(analyze(spark.sql(query)))
    pieces = _pieces(spark, algebra, rows, chance)
    final = algebra.final(_merged(algebra, pieces, chance)).drop([HIDDEN])
    frame.createOrReplaceTempView("events")
    _assert_same(final, spark.sql(expected).toArrow(), about)
    whole = algebra.collect(frame)
    _assert_same(algebra.final(whole), algebra.final(algebra.merge([whole])), f"one piece, not merged; {about}")
    _assert_same(algebra.loaded(algebra.stored(whole)), whole, f"stored and loaded; {about}")
