"""Records of several topics as a DataFrame, and the rows of a source over them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.pipeline.decoding.events import ERROR, good_rows
from headrace.pipeline.decoding.source_rows import current_rows, decode_source, source_schema
from headrace.pipeline.spark.source.data_source import spark_schema

AT = datetime(2026, 11, 17, 8, 0, tzinfo=UTC)


class Log:
    """Records, each with the next offset of its partition and a timestamp one second after that of the last record."""

    def __init__(self, spark) -> None:
        self._spark, self._rows = spark, []

    def add(self, topic, key, value, *, partition=0, seconds=None):
        offset = sum((row[2], row[3]) == (topic, partition) for row in self._rows)
        at = AT + timedelta(seconds=len(self._rows) if seconds is None else seconds)
        self._rows.append((key, value, topic, partition, offset, at, 0))
        return self

    def frame(self):
        return self._spark.createDataFrame(self._rows, spark_schema(include_headers=False))


def rows_of(source, log) -> list[tuple]:
    """The current rows, without the columns of the record, in order."""
    names = [name for name in source_schema(source).names if not name.startswith("_")]
    current = current_rows(source, good_rows(decode_source(source, log.frame())))
    assert current.columns == source_schema(source).names
    return sorted((tuple(row) for row in current.select(*names).collect()), key=str)


def errors_of(source, log) -> list[str]:
    """What is wrong with each record of the first partition, by offset."""
    return [row[ERROR] for row in decode_source(source, log.frame()).orderBy("_offset").collect()]
