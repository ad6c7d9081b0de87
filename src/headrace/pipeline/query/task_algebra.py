"""The steps of an algebra that need no Java: Spark's tasks run them on Arrow tables, in parallel.

``Algebra`` refers to objects of the driver's Java process, so it cannot be sent to tasks. A :class:`TaskAlgebra` can. A
task of a batch gets partial rows, merges them with the stored rows of the same keys, and returns for each row

    the columns _k and _f    the values from which Spark computes the output columns (``AggregatePlan.outputs``)
    the columns _s...        the partial columns as they are stored, and the key of the row

Spark computes the output columns from them and passes the columns _s on (:func:`with_outputs`).

A query with approx_count_distinct has no TaskAlgebra: its estimates need a class of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.query.aggregates import Algebra, averages, viewed
from headrace.pipeline.query.combining import Combination, combine
from headrace.pipeline.serving.columns import plain_strings
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.spark.catalyst import items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORED = "_s"
KEY = f"{_STORED}_key"


@dataclass(frozen=True)
class TaskAlgebra:
    """
    :param schema: the columns of partial tables; ``stored_schema``: the same columns as they are stored.
    :param values: for each function, its column _f and the partial columns that it is computed from.
    """

    schema: pa.Schema
    stored_schema: pa.Schema
    values_schema: pa.Schema
    key_columns: tuple[str, ...]
    combinations: tuple[Combination, ...]
    values: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, algebra: Algebra) -> TaskAlgebra | None:
        """None if the query needs the driver's Java process."""
        parts = algebra.parts
        if any(part.function.how == "approx_count_distinct" for part in parts):
            return None
        return cls(
            schema=algebra.schema,
            stored_schema=algebra.stored_schema,
            values_schema=algebra.values_schema,
            key_columns=tuple(algebra.key_columns),
            combinations=tuple(each for part in parts for each in part.combinations),
            values=tuple(
                (part.function.column, tuple(part.columns) if part.function.how == "avg" else tuple(part.columns)[:1])
                for part in parts
            ),
        )

    @property
    def result_schema(self) -> pa.Schema:
        stored = [pa.field(f"{_STORED}{field.name}", field.type) for field in self.stored_schema]
        return pa.schema([*self.values_schema, *stored, pa.field(KEY, pa.string())])

    def fit(self, partials: pa.Table) -> pa.Table:
        """Partial rows, one per key, with keys that PostgreSQL returns unchanged."""
        rows = partials.select(self.schema.names).cast(self.schema)
        for name in self.key_columns:
            at = rows.schema.get_field_index(name)
            if pa.types.is_string(rows.schema.field(at).type):
                rows = rows.set_column(at, name, pc.replace_substring(plain_strings(rows.column(at)), "\x00", "\ufffd"))
        is_fit = pc.count_distinct(self.keys(rows)).as_py() == len(rows)
        return rows if is_fit else self.merge([rows])

    def keys(self, rows: pa.Table) -> pa.StringArray:
        return canonical_keys(rows, self.key_columns)

    def merge(self, tables: Sequence[pa.Table]) -> pa.Table:
        rows = pa.concat_tables([self.schema.empty_table(), *tables])
        return combine(rows.combine_chunks(), self.key_columns, self.combinations)

    def loaded(self, stored: pa.Table) -> pa.Table:
        """Rows that were stored, as partial rows."""
        columns = [
            viewed(stored.column(field.name), None if field.type == was.type else field.type)
            for field, was in zip(self.schema, self.stored_schema, strict=True)
        ]
        return pa.table(columns, schema=self.schema)

    def result(self, merged: pa.Table) -> pa.Table:
        """The columns of ``result_schema``."""
        keys = [merged.column(name) for name in self.key_columns]
        values = [self._value(merged, name, *columns) for name, columns in self.values]
        stored = [
            viewed(
                merged.column(field.name), None if field.type == merged.schema.field(field.name).type else field.type
            )
            for field in self.stored_schema
        ]
        return pa.table([*keys, *values, *stored, self.keys(merged)], schema=self.result_schema)

    def _value(self, merged: pa.Table, name: str, column: str, *others: str) -> pa.ChunkedArray:
        kind = self.values_schema.field(name).type
        return (
            averages(merged.column(column), merged.column(*others), kind)
            if others
            else merged.column(column).cast(kind)
        )

    def stored_columns(self, rows: pa.Table, output: pa.Schema) -> pa.Table:
        """Rows of :func:`with_outputs` as rows of a batch table, with ``_key``."""
        stored = [rows.column(f"{_STORED}{field.name}") for field in self.stored_schema]
        columns = [*(rows.column(field.name) for field in output), *stored, rows.column(KEY)]
        return pa.table(columns, names=[*output.names, *self.stored_schema.names, "_key"])


def with_outputs(algebra: Algebra, results: DataFrame) -> DataFrame:
    """The output columns of the query, computed from the columns _k and _f; and the columns _s.

    :param results: a frame with the columns of ``TaskAlgebra.result_schema``.
    """
    catalyst, (*projections, leaf) = algebra.plan.catalyst, algebra.plan.above
    plan = results._jdf.queryExecution().analyzed()
    offered = {str(each.name()): each for each in items(plan.output())}
    carried = [each for name, each in offered.items() if name.startswith(_STORED)]
    named = [catalyst.alias(offered[str(each.name())], each) for each in items(leaf.output())]
    built = catalyst.project([*named, *carried], plan)
    for node in reversed(projections):
        built = catalyst.project([*items(node.projectList()), *carried], built)
    return catalyst.frame(built)
