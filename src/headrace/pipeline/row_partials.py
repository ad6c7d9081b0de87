"""Partial results over a few records, by Spark's own code in the driver, without a Spark job.

A micro-batch of the speed layer has some hundred records. To plan and run a Spark job for them takes a hundred times as
long as to compute them. So what a job would do to each record is prepared once: the records are decoded and the lower
part of the query applied by the same Catalyst expressions that a job would use, compiled to the same kind of Java code
(``UnsafeProjection``), as one projection behind another. Per micro-batch only the records go to the JVM, as Arrow, and
come back as partial rows of one event each (``Algebra.row_columns``), which Arrow merges here::

    records -> decoded -> projections of the query -> key columns, partial columns, _keep, _error -> merged

Nothing may be dropped on the way, as a projection gives a row for each row. A filter becomes the column ``_keep``, and
what follows it is not computed for rows that are not kept: the query may have left them out because it cannot be.
Bad records are those with an ``_error``; rows are in the order of the records, so each is found again by its place.

Not every query can be prepared: generators (explode), ROLLUP, and Python that runs in processes of its own need a job
(``speed_layer`` has it). ``RowPartials.prepare`` then says no, as it does if some version of Spark lacks what is used.

One record in a micro-batch of 200 costs 0.03 ms, the micro-batch itself 3 ms; a job takes 80 and more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.catalyst import Java, chain, items, kind
from headrace.pipeline.decoding import ERROR, decode_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.pipeline.aggregates import Algebra
    from headrace.pipeline.catalyst import Catalyst
    from headrace.pipeline.definition import ViewDefinition

logger = getLogger(__name__)
KEEP = "_keep"
#: Arrow that is handed to the JVM at once: it travels as text.
_BYTES_AT_ONCE = 2 << 20


class Partials(NamedTuple):
    """
    :ivar rows: partial rows, one a key.
    :ivar bad: of each record why it is bad; None for those that are not.
    """

    rows: pa.Table
    bad: pa.ChunkedArray


class RowPartials:
    def __init__(self, catalyst: Catalyst, algebra: Algebra, top: DataFrame) -> None:
        """Of a frame that is nothing but projections over records; ``prepare`` makes one."""
        from headrace.pipeline.aggregates import arrow_schema

        jvm: Java = catalyst.spark._jvm
        self._algebra = algebra
        self._types, self._schema = top._jdf.schema(), arrow_schema(top.schema)
        *projections, leaf = chain(top._jdf.queryExecution().optimizedPlan())
        assert projections
        assert all(kind(each) == "Project" for each in projections), "only projections can be computed row by row"
        used = projections[-1].references()
        columns = [each for each in items(leaf.output()) if used.contains(each)]
        inputs = [catalyst.sequence(columns), *(each.output() for each in reversed(projections[1:]))]
        make = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeProjection.create
        #: Each has a buffer of its own, so one thread at a time.
        self._steps = [
            make(each.projectList(), given) for each, given in zip(reversed(projections), inputs, strict=True)
        ]
        self._turn = threading.Lock()
        self._converters: Java = getattr(
            getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$"
        )
        #: What of a record is needed.
        self.columns = tuple(str(each.name()) for each in columns)

    @classmethod
    def prepare(cls, spark: SparkSession, definition: ViewDefinition, algebra: Algebra) -> Self | None:
        """None if the view needs Spark jobs."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from headrace.pipeline.source import spark_schema

        if definition.decode.format not in ("json", "csv", "raw") or not _is_row_wise(algebra):
            return None
        try:
            raw = spark.createDataFrame([], spark_schema(include_headers=False))
            decoded = decode_frame(definition.decode, raw, is_optimized=False)
            made = cls(algebra.plan.catalyst, algebra, _top(algebra, decoded))
            made.compute(_no_records(made.columns))
        except (Py4JError, PySparkException, AssertionError, TypeError, AttributeError) as error:
            logger.warning("micro-batches of %s run as Spark jobs, which is slower: %s", definition.name, error)
            return None
        return made

    def compute(self, records: pa.Table) -> Partials:
        """
        :param records: with at least ``columns``, as ``format("headrace")`` has them.
        :raises PySparkException: whatever the query makes of them, as a job would.
        """
        with self._turn:
            computed = [self._computed(each) for each in _portions(records.select(self.columns))]
        rows = pa.Table.from_batches([batch for batches in computed for batch in batches], self._schema)
        kept = rows.filter(rows.column(KEEP)).select(self._algebra.schema.names)
        return Partials(self._algebra.merge([kept]), rows.column(ERROR))

    def _computed(self, records: pa.Table) -> list[pa.RecordBatch]:
        source = self._converters.fromIPCStream(_stream(records))._1()
        rows = source
        for step in self._steps:
            rows = rows.map(step)
        batches = self._converters.toBatchIterator(rows, self._types, max(1, len(records)), "UTC", True, False, None)
        try:
            found = []
            while batches.hasNext():
                found.append(pa.ipc.read_record_batch(pa.py_buffer(batches.next()), self._schema))
            return found
        finally:
            batches.close()
            source.close()


def _is_row_wise(algebra: Algebra) -> bool:
    plan = algebra.plan
    top = plan.below[0]
    return (
        all(kind(each) in ("Project", "Filter") for each in plan.below[:-1])
        and not plan.catalyst.contains(top, "PYTHON_UDF")
        and not plan.catalyst.contains(top, "GENERATOR")
    )


def _top(algebra: Algebra, decoded: DataFrame) -> DataFrame:
    """Key and partial columns, ``_keep`` and ``_error`` of decoded records, by projections only."""
    from pyspark.sql import functions as F  # noqa: N812

    catalyst = algebra.plan.catalyst
    *nodes, leaf = algebra.plan.below
    frame = decoded.withColumn(KEEP, F.col(ERROR).isNull())
    plan = catalyst.analyzed(frame)
    offered = {str(each.name()): each for each in items(plan.output())}
    carried = [offered[KEEP], offered[ERROR]]
    events = [catalyst.alias(offered[str(each.name())], each) for each in items(leaf.output())]
    plan = catalyst.project([*events, *carried], plan)
    for node in reversed(nodes):
        step = _projected if kind(node) == "Project" else _filtered
        plan, carried = step(catalyst, node, plan, carried)
    keep = catalyst.column(carried[0])
    columns = [
        F.when(keep, each).alias(name) for name, each in zip(algebra.schema.names, algebra.row_columns(), strict=True)
    ]
    error = catalyst.column(carried[1])
    return catalyst.frame(catalyst.select(plan, [*columns, keep.alias(KEEP), error.alias(ERROR)]))


def _projected(catalyst: Catalyst, node: Java, plan: Java, carried: list[Java]) -> tuple[Java, list[Java]]:
    outputs = [_if_kept(catalyst, carried[0], each) for each in items(node.projectList())]
    return catalyst.project([*outputs, *carried], plan), carried


def _if_kept(catalyst: Catalyst, keep: Java, output: Java) -> Java:
    if kind(output) != "Alias" or kind(output.child()) in ("AttributeReference", "Literal"):
        return output
    return catalyst.with_children(output, [catalyst.only_if(keep, output.child())])


def _filtered(catalyst: Catalyst, node: Java, plan: Java, carried: list[Java]) -> tuple[Java, list[Java]]:
    from pyspark.sql import functions as F  # noqa: N812

    keep, error = carried
    holds = F.coalesce(catalyst.column(node.condition()), F.lit(False))
    narrower = F.when(catalyst.column(keep), holds).otherwise(F.lit(False)).alias(KEEP)
    others: list[Column] = [catalyst.column(each) for each in items(plan.output()) if not each.semanticEquals(keep)]
    made = catalyst.select(plan, [*others, narrower])
    return made, [items(made.output())[-1], error]


def _stream(records: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_table(records)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _portions(records: pa.Table) -> Iterator[pa.Table]:
    """Of about so many bytes."""
    pieces = max(1, -(-records.nbytes // _BYTES_AT_ONCE))
    rows = max(1, -(-len(records) // pieces))
    return (records.slice(start, rows) for start in range(0, len(records), rows))


def _no_records(columns: Sequence[str]) -> pa.Table:
    from headrace.pipeline.reader import spark_arrow_schema

    return spark_arrow_schema(tuple(columns)).empty_table()


def bad_records(records: pa.Table, bad: pa.ChunkedArray) -> pa.Table:
    """Those that do not decode, with the reason: what ``DeadLetters.send`` takes."""
    is_bad = pc.is_valid(bad)
    return records.filter(is_bad).append_column("reason", bad.filter(is_bad))
