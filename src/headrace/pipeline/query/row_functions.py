"""Applies Spark's projections to Arrow tables in the driver, without a Spark job.

For a few hundred rows, planning and running a Spark job takes a hundred times as long as computing them. So a query
that consists of projections only is prepared once: with the same Catalyst expressions that a job would use, optimized
and compiled to the same kind of Java code (``UnsafeProjection``). After that only rows are sent to the JVM, as Arrow,
and come back as Arrow: one row per row, in the same order.

None of this is a public interface of Spark. Not every query can be prepared: Python code that runs in Spark's worker
processes needs a job. ``RowFunction.prepare`` returns None then, and the caller runs a job.
"""

from __future__ import annotations

import threading
from base64 import b64decode
from collections.abc import Iterator
from logging import getLogger
from typing import TYPE_CHECKING, Self

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.spark.catalyst import Catalyst, JavaObject, chain, items, kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = getLogger(__name__)
#: Bytes of Arrow that are sent to the JVM at a time: py4j encodes them as text.
_MAX_CALL_BYTES = 2 << 20


class RowFunction:
    """
    :ivar columns: the columns of the relation below the projections that are needed.
    """

    def __init__(self, frame: DataFrame, schema: pa.Schema) -> None:
        receive_bytes_fast()
        self._spark = frame.sparkSession
        self._thread = threading.local()
        self._enter_session()
        catalyst = Catalyst(self._spark)
        jvm: JavaObject = self._spark._jvm
        *projections, leaf = chain(frame._jdf.queryExecution().optimizedPlan())
        assert projections
        assert all(kind(each) == "Project" for each in projections), "the query has other operators than projections"
        self._schema, self._types = schema, frame._jdf.schema()
        used = projections[-1].references()
        # A row without columns would be lost, so at least one column is sent.
        needed = [each for each in items(leaf.output()) if used.contains(each)] or items(leaf.output())[:1]
        self.columns = tuple(str(each.name()) for each in needed)
        inputs = [catalyst.sequence(needed), *(each.output() for each in reversed(projections[1:]))]
        make = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeProjection.create
        steps = zip(reversed(projections), inputs, strict=True)
        #: Each has its own buffer, so only one thread at a time may use them.
        self._steps = [make(each.projectList(), given) for each, given in steps]
        self._lock = threading.Lock()
        self._arrow: JavaObject = getattr(
            getattr(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$"
        )

    @classmethod
    def prepare(cls, frame: DataFrame, schema: pa.Schema) -> Self | None:
        """None if the query needs a Spark job.

        :param frame: projections over a relation. The rows of the relation are not used.
        :param schema: the columns of the result.
        """
        try:
            return cls(frame, schema)
        except unsupported() as error:
            logger.info(
                "a query runs as Spark jobs, which is slower, because it cannot run in the driver: %s",
                str(error).partition("\n")[0],
            )
            return None

    def __call__(self, rows: pa.Table) -> pa.Table:
        """
        :param rows: a table with ``columns``. Other columns are ignored.
        :raises PySparkException: what the query raises for these rows, as in a job.
        """
        with self._lock:
            self._enter_session()
            batches = [batch for each in _portions(rows.select(self.columns)) for batch in self._computed(each)]
        return pa.Table.from_batches(batches, self._schema)

    def _enter_session(self) -> None:
        """Makes the session active in the JVM thread of this thread: some functions read its settings when they run."""
        if not getattr(self._thread, "is_inside", False):
            sessions: JavaObject = type(self._spark)._get_j_spark_session_class(self._spark._jvm)
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


def receive_bytes_fast() -> None:
    """Makes py4j decode the bytes that the JVM returns at once.

    py4j's own converter, which also works in Python 2, calls a function per byte: that took most of a micro-batch.
    """
    from py4j.protocol import BYTES_TYPE, register_output_converter  # type: ignore[import-untyped]

    register_output_converter(BYTES_TYPE, lambda encoded, _client: b64decode(encoded))


def unsupported() -> tuple[type[Exception], ...]:
    """The exceptions that are raised if Spark or a query lacks something that this module needs."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (Py4JError, PySparkException, AssertionError, TypeError, AttributeError, KeyError)


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _portions(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in portions of about ``_MAX_CALL_BYTES``."""
    pieces = max(1, -(-rows.nbytes // _MAX_CALL_BYTES))
    count = max(1, -(-len(rows) // pieces))
    return (rows.slice(start, count) for start in range(0, len(rows), count))
