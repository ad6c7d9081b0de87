"""Projections of Spark's applied to Arrow tables in the driver, without a Spark job.

To plan and run a Spark job for some hundred rows takes a hundred times as long as to compute them. So a query that is
nothing but projections, one over another, is prepared once: the same Catalyst expressions that a job would use,
optimized and compiled to the same kind of Java code (``UnsafeProjection``). After that only rows go to the JVM, as
Arrow, and come back as Arrow: one for each, in the same order.

None of this is a public interface of Spark, and not all of it is possible: Python that runs in processes of its own
needs a job. ``RowFunction.prepare`` says no then, and whoever asked runs one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from logging import getLogger
from typing import TYPE_CHECKING, Self

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.spark.catalyst import Catalyst, Java, chain, items, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = getLogger(__name__)
#: Arrow that is handed to the JVM at once: it travels as text.
_BYTES_AT_ONCE = 2 << 20


class RowFunction:
    """
    :ivar columns: those of the relation below the projections that are needed.
    """

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        self._spark = frame.sparkSession
        self._thread = threading.local()
        self._enter_session()
        catalyst = Catalyst(self._spark)
        jvm: Java = self._spark._jvm
        *projections, leaf = chain(frame._jdf.queryExecution().optimizedPlan())
        assert projections
        assert all(kind(each) == "Project" for each in projections), "there is more to it than projections"
        self._schema, self._types = schema, frame._jdf.schema()
        used = projections[-1].references()
        # A row without any column would be lost on the way.
        needed = [each for each in items(leaf.output()) if used.contains(each)] or items(leaf.output())[:1]
        self.columns = tuple(str(each.name()) for each in needed)
        inputs = [catalyst.sequence(needed), *(each.output() for each in reversed(projections[1:]))]
        make = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeProjection.create
        steps = zip(reversed(projections), inputs, strict=True)
        #: Each has a buffer of its own, so one thread at a time.
        self._steps = [make(each.projectList(), given) for each, given in steps]
        self._turn = threading.Lock()
        self._arrow: Java = getattr(getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$")

    @classmethod
    def prepare(cls, frame: DataFrame, schema: pa.Schema) -> Self | None:
        """None if it takes a job.

        :param frame: projections over a relation; what is in the relation does not matter.
        :param schema: of what comes out.
        """
        try:
            return cls(frame, schema)
        except unsupported() as error:
            logger.info("this runs as Spark jobs, which is slower: %s", str(error).partition("\n")[0])
            return None

    def __call__(self, rows: pa.Table) -> pa.Table:
        """
        :param rows: with ``columns``; others are left out.
        :raises PySparkException: whatever the query makes of them, as a job would.
        """
        with self._turn:
            self._enter_session()
            batches = [batch for each in _portions(rows.select(self.columns)) for batch in self._computed(each)]
        return pa.Table.from_batches(batches, self._schema)

    def _enter_session(self) -> None:
        """Some functions ask for settings when they first run. Each thread here has one in the JVM, which finds the
        session's only if it is told which session that is."""
        if not getattr(self._thread, "is_inside", False):
            sessions: Java = type(self._spark)._get_j_spark_session_class(self._spark._jvm)
            sessions.setActiveSession(self._spark._jsparkSession)
            self._thread.is_inside = True

    def _computed(self, rows: pa.Table) -> list[pa.RecordBatch]:
        source = self._arrow.fromIPCStream(_stream(rows))._1()
        made = source
        for step in self._steps:
            made = made.map(step)
        batches = self._arrow.toBatchIterator(made, self._types, len(rows), "UTC", True, False, None)
        try:
            found = []
            while batches.hasNext():
                found.append(pa.ipc.read_record_batch(pa.py_buffer(batches.next()), self._schema))
            return found
        finally:
            batches.close()
            source.close()


def unsupported() -> tuple[type[Exception], ...]:
    """What is raised where a version of Spark, or a query, lacks something that this counts on."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (Py4JError, PySparkException, AssertionError, TypeError, AttributeError, KeyError)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _portions(rows: pa.Table) -> Iterator[pa.Table]:
    """Of about so many bytes."""
    pieces = max(1, -(-rows.nbytes // _BYTES_AT_ONCE))
    count = max(1, -(-len(rows) // pieces))
    return (rows.slice(start, count) for start in range(0, len(rows), count))
