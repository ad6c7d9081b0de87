"""Every query shape, maintained by touched keys over random changes, equals Spark's batch answer at every cut."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from lambda_harness import quick as quick
from query_shapes import EVENTS, RECORD, SCHEMAS, SHAPES, TABLES, Rows, Shape

from headrace.pipeline.query.tables import named_tables
from headrace.pipeline.serving.database import Database
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.cutting import cut
from headrace.pipeline.touched.engine import Engine, LeafChange
from headrace.pipeline.touched.operators import whole_plan
from headrace.pipeline.touched.placeholders import placeholders
from headrace.pipeline.touched.small_jobs import Variant
from headrace.pipeline.touched.state_table import StateTable

_SEEDS = (1,)
_CUTS = 3


@pytest.fixture(scope="module")
def schemas(spark):
    return {name: spark.createDataFrame([], f"{ddl}, {RECORD}").schema for name, ddl in SCHEMAS.items()}


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_equals_the_batch_answer_at_every_cut(spark, schemas, sqlite_url, shape, seed):
    made = Maintained(spark, schemas, shape, Database(sqlite_url))
    rows = Rows(seed)
    for at in range(_CUTS):
        made.change(rows, 1 if at == 2 else 8)
        assert made.shown() == made.expected(), f"after cut {at}"
    made.close()


class Maintained:
    """A query over random sources, with its states in a database and its rows in memory."""

    def __init__(self, spark, schemas, shape: Shape, database: Database) -> None:
        self.spark, self.schemas, self.shape, self.database = spark, schemas, shape, database
        self.tables = {name: [] for name in schemas}
        self.arrow = {name: _arrow_schema(schema) for name, schema in schemas.items()}
        stand_ins = placeholders(spark, schemas)
        self.engine = Engine(cut(self._query(stand_ins.frames), stand_ins.sources))
        self.states = {
            each.number: StateTable(f"s{each.number}", self.engine.jobs.codec(each)) for each in self.engine.tree.inputs
        }
        jobs, tree = self.engine.jobs, self.engine.tree
        leaves = {leaf: jobs.nothing(leaf.output) for leaf in tree.leaves}
        with database.begin() as connection:
            for target in tree.inputs:
                self.states[target.number].create(connection)
                # A total has a row even if there are no rows.
                first = jobs.run(target, [Variant(1, whole_plan(jobs.catalyst, target, leaves))])
                self.states[target.number].add(connection, first)
        self.root: Counter = self._answer()

    def close(self) -> None:
        self.database.close()

    def _query(self, frames):
        if callable(self.shape.query):
            names = self.shape.query.__code__.co_varnames[: self.shape.query.__code__.co_argcount]
            return self.shape.query(*(frames[name] for name in names))
        with named_tables(self.spark, frames):
            return self.spark.sql(self.shape.query)

    # -------------------------------------------------------------------------------------------------- the sources

    def change(self, rows: Rows, count: int) -> None:
        added: dict[str, list] = {name: [] for name in self.tables}
        removed: dict[str, list] = {name: [] for name in self.tables}
        for at in range(count):
            for name in EVENTS:
                added[name].append(rows.draw(name))
            for name in TABLES:
                if at % 3 == 0:
                    self._update_table(name, rows.draw(name), added[name], removed[name])
        changes = {}
        for name in self.tables:
            self.tables[name] += [row for row in added[name] if row not in self.tables[name] or name not in TABLES]
            changes[name] = LeafChange(self._change(name, added[name]), self._change(name, removed[name]))
        with self.database.read() as connection:
            found = self.engine.changes(changes, lambda target, keys: self.states[target.number].read(connection, keys))
        with self.database.begin() as connection:
            for number, bag in found.states.items():
                self.states[number].add(connection, bag)
        self._apply(found.rows)

    def _update_table(self, name: str, row: tuple, added: list, removed: list) -> None:
        """A row with a key that is there replaces it; one in four removes it only."""
        for old in [each for each in self.tables[name] if each[0] == row[0]]:
            self.tables[name].remove(old)
            removed.append(old)
        for old in [each for each in added if each[0] == row[0]]:
            added.remove(old)
        if row[-3] % 4:
            added.append(row)

    def _frame(self, name: str, rows: pa.Table):
        """The rows as a frame; texts that stand for variants are parsed."""
        from pyspark.sql import functions as F  # noqa: N812

        frame = self.spark.createDataFrame(rows).coalesce(1)
        variants = [field.name for field in self.schemas[name] if field.dataType.typeName() == "variant"]
        return frame.select(*(F.parse_json(each).alias(each) if each in variants else each for each in frame.columns))

    def _arrow(self, name: str, rows: list) -> pa.Table:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.arrow[name])
        arrays = [pa.array(list(each), field.type) for each, field in zip(columns, self.arrow[name], strict=True)]
        return pa.table(arrays, schema=self.arrow[name])

    def _change(self, name: str, rows: list):
        return self._arrow(name, rows) if rows else None

    # ------------------------------------------------------------------------------------------------------- answers

    def _apply(self, change: Bag) -> None:
        names = [name for name in change.rows.column_names if name != "_n"]
        for row, count in zip(_values(change.rows.select(names)), change.counts, strict=True):
            self.root[row] += count
        assert all(count >= 0 for count in self.root.values()), "a row was removed that was not there"

    def shown(self) -> list:
        return _sorted(self.root)

    def expected(self) -> list:
        return _sorted(self._answer())

    def _answer(self) -> Counter:
        """Spark's answer over the rows in the order of the log, which collect_list and first follow."""
        tables = {name: sorted(rows, key=_position) for name, rows in self.tables.items()}
        frame = self._query({name: self._frame(name, self._arrow(name, rows)) for name, rows in tables.items()})
        return Counter(_values(frame.toArrow()))


def _arrow_schema(schema) -> pa.Schema:
    """The Arrow schema of drawn rows: a variant is a text."""
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType

    kinds = [StringType() if each.dataType.typeName() == "variant" else each.dataType for each in schema]
    return pa.schema(
        [(each.name, to_arrow_type(kind, timezone="UTC")) for each, kind in zip(schema, kinds, strict=True)]
    )


def _position(row: tuple) -> tuple:
    topic, partition, offset, timestamp, _ = row[-5:]
    return timestamp, topic, partition, offset


def _values(rows: pa.Table) -> list[tuple]:
    columns = [[_value(each) for each in column.to_pylist()] for column in rows.columns]
    return list(zip(*columns, strict=True))


def _value(value):
    """A value that can be compared and sorted. Doubles are rounded: their sums depend on the order."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    return repr(value)


def _sorted(rows: Counter) -> list:
    return sorted((repr(row), count) for row, count in rows.items() if count)
