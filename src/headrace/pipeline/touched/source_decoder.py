"""Decodes the records of a micro-batch into the rows of a source: in the driver, or by a Spark job.

JSON, CSV and raw records are decoded in the driver without a job (``query.row_functions``). Avro, Protobuf and Python
need Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.events import ERROR
from headrace.pipeline.decoding.json_schema_ids import DriverCheck
from headrace.pipeline.decoding.source_rows import decode_source
from headrace.pipeline.query.aggregates import arrow_schema
from headrace.pipeline.query.row_functions import RowFunction
from headrace.pipeline.query.row_partials import bad_records
from headrace.pipeline.spark.source.range_reader import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.pipeline.project.source_definition import SourceDefinition

#: The formats that need no Spark job.
IN_DRIVER = ("json", "csv", "raw")


class Decoded(NamedTuple):
    """
    :ivar rows: the good rows.
    :ivar bad: the records that do not decode, with the reason, for ``DeadLetters.send``.
    """

    rows: pa.Table
    bad: pa.Table


class SourceDecoder:
    """:param columns: the columns of the rows. A column of type VARIANT is returned as a text with its JSON."""

    def __init__(self, spark: SparkSession, source: SourceDefinition, columns: Sequence[str]) -> None:
        self._spark, self._source, self._columns = spark, source, list(columns)
        self._ids = DriverCheck(source.decode)

    def decode(self, records: pa.Table) -> Decoded:
        """
        :param records: records of the source's topics, as ``format("headrace")`` has them.
        :raises RegistryUnavailable: if ids of schemas have to be looked up and the registry does not answer.
        """
        in_driver = self._in_driver
        made = self._by_job(records) if in_driver is None else in_driver(self._ids.add_problems(records))
        errors = made.column(ERROR)
        return Decoded(made.filter(pc.is_null(errors)).select(self._columns), bad_records(records, errors))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        whole = arrow_schema(self._selected(self._empty).schema)
        return pa.schema([whole.field(name) for name in self._columns])

    @cached_property
    def _in_driver(self) -> RowFunction | None:
        if self._source.decode.format not in IN_DRIVER or self._source.decode.key is not None:
            return None
        empty = self._spark.createDataFrame([], self._ids.schema(self._empty.schema))
        top = self._selected(empty, is_optimized=False)
        return RowFunction.prepare(top, arrow_schema(top.schema))

    def _by_job(self, records: pa.Table) -> pa.Table:
        raw = self._spark.createDataFrame(records.select(COLUMNS)).coalesce(1)
        made = self._selected(raw)
        return made.toArrow().cast(arrow_schema(made.schema))

    @cached_property
    def _empty(self) -> DataFrame:
        from headrace.pipeline.spark.source.data_source import spark_schema

        return self._spark.createDataFrame([], spark_schema(include_headers=False))

    def _selected(self, raw: DataFrame, *, is_optimized: bool = True) -> DataFrame:
        decoded = decode_source(self._source, raw, is_optimized=is_optimized)
        return decoded.select(*sent_columns(decoded, self._columns), ERROR)


def sent_columns(frame: DataFrame, names: Sequence[str]) -> list[Column]:
    """These columns of a frame, with variants as texts (``small_jobs.sent``)."""
    from pyspark.sql import functions as F  # noqa: N812

    variants = {field.name for field in frame.schema if field.dataType.typeName() == "variant"}
    quoted = {name: F.col(f"`{name.replace('`', '``')}`") for name in names}
    return [(F.to_json(quoted[name]) if name in variants else quoted[name]).alias(name) for name in names]
