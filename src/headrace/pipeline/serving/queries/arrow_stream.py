"""Writes an answer as an Arrow IPC stream. The metadata of the schema has ``headrace.as_of``, as JSON.

PostgreSQL knows the types of the columns. The types of SQLite come with the values. If a later batch needs another
type, what was written is written once more with that type: a reader gets one schema, and it holds every value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.serving.queries.arrow_values import ArrowRows, as_type, common_type
from headrace.pipeline.serving.queries.spool import Spool, SpoolFile

if TYPE_CHECKING:
    from headrace.views.answers import AsOf

AS_OF = b"headrace.as_of"
_WRITE_BYTES = 1 << 20


def as_of_metadata(as_of: Sequence[AsOf]) -> dict[bytes, bytes]:
    return {AS_OF: json.dumps([asdict(each) for each in as_of]).encode()}


def write_stream(
    rows: ArrowRows,
    spool: Spool,
    metadata: Mapping[bytes, bytes],
    *,
    limit: int | None = None,
    compression: str | None = None,
) -> tuple[SpoolFile, bool]:
    """Writes rows into a file, up to a number of rows. Returns the file, and whether there are more rows.

    :param compression: None, ``lz4`` or ``zstd``.
    """
    left = limit
    fields = [pa.field(name, kind) for name, kind in zip(rows.names, rows.types, strict=True)]
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with ExitStack() as stack:
        stream = _Stream(spool, pa.schema(fields, metadata), options, {*range(len(fields))})
        stack.callback(lambda: stream.file.close())
        has_more = False
        with closing(rows.batches) as batches:
            for batch in batches:
                stream = stream.fitting(batch)
                has_more = left is not None and batch.num_rows > left
                stream.write(batch.slice(0, left) if has_more else batch)
                if has_more:
                    break
                left = None if left is None else left - batch.num_rows
        file = stream.finish()
        stack.pop_all()
    return file, has_more


class _UnclosedFile:
    """The file as Arrow gets it. Arrow closes the files that it gets; this one is needed afterwards."""

    closed = False

    def __init__(self, file: SpoolFile) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        # Arrow writes its buffer even after an error, when nobody needs the file any more.
        return len(data) if self._file.closed else self._file.write(data)

    def read(self, count: int = -1) -> bytes:
        return self._file.read(count) or b""

    def flush(self) -> None:
        """Has nothing to do: the file has no buffer."""

    def close(self) -> None:
        self.closed = True


class _Stream:
    """One stream in one file, with one schema.

    :param guesses: columns that had no value yet. Their types are those that the database has declared.
    """

    def __init__(self, spool: Spool, schema: pa.Schema, options: pa.ipc.IpcWriteOptions, guesses: set[int]) -> None:
        self._spool, self._schema, self._options, self._guesses = spool, schema, options, guesses
        self.file = spool.new_file()
        self._has_rows = False
        self._sink = pa.output_stream(pa.PythonFile(_UnclosedFile(self.file), "w"), buffer_size=_WRITE_BYTES)
        self._writer = pa.ipc.new_stream(self._sink, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._has_rows = True
            self._writer.write_batch(_with_types(batch, self._schema))

    def finish(self) -> SpoolFile:
        self._writer.close()
        self._sink.flush()
        return self.file

    def fitting(self, batch: pa.RecordBatch) -> _Stream:
        """This stream, or one with the same rows whose types also hold the values of the batch."""
        known = {number for number, column in enumerate(batch.columns) if column.null_count < len(column)}
        types = [
            each.type if number not in known
            else batch.schema.field(number).type if number in self._guesses
            else common_type(each.type, batch.schema.field(number).type)
            for number, each in enumerate(self._schema)
        ]  # fmt: skip
        self._guesses -= known
        if types == self._schema.types:
            return self
        fields = [field.with_type(kind) for field, kind in zip(self._schema, types, strict=True)]
        self.finish()
        wider = _Stream(self._spool, pa.schema(fields, self._schema.metadata), self._options, self._guesses)
        try:
            if self._has_rows:
                self.file.seek(0)
                for written in pa.ipc.open_stream(pa.PythonFile(_UnclosedFile(self.file), "r")):
                    wider.write(written)
        except BaseException:
            wider.file.close()
            raise
        self.file.close()
        return wider


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [as_type(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
