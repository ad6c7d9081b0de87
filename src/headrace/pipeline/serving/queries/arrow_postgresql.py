"""Reads the answer of PostgreSQL as Arrow, without a Python object per value.

PostgreSQL sends the rows by ``COPY (statement) TO STDOUT (FORMAT csv)``, and Arrow parses blocks of them in C++. The
types of the columns are those of the statement's description. CSV tells NULL (nothing) from the empty text (``""``).

The statement is text of a user inside of another statement. PostgreSQL has accepted the same text as the query of a
cursor before (``query_postgresql``), so it is one whole query: it cannot close the parenthesis of COPY.

==================================  ============================================
PostgreSQL                          Arrow
==================================  ============================================
boolean                             bool
smallint, integer, bigint           int16, int32, int64
real, double precision              float, double
numeric(p, s), p up to 76           decimal128(p, s), decimal256(p, s)
numeric without a scale             double: sums and averages of integers
text, varchar, json, jsonb, ...     string
bytea                               binary
date, time                          date32, time64[us]
timestamp, timestamptz              timestamp[us], timestamp[us, UTC]
arrays and all other types          string: as in CSV, arrays as JSON
==================================  ============================================

The PostgreSQL driver of ADBC does the same in C++. It would need a connection of its own, and a snapshot exported to
it.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn

from headrace.pipeline.serving.errors import ONE_STATEMENT, NotReadOnly, QueryError
from headrace.pipeline.serving.queries.arrow_values import ArrowRows
from headrace.pipeline.serving.queries.formats import plain_cell

_BLOCK_BYTES = 8 << 20
#: How long to wait for bytes before the time of the query is checked again.
_WAIT_S = 0.5
#: How long PostgreSQL has to react to a cancellation.
_CANCEL_S = 10.0
#: By the name of a type in PostgreSQL's catalog.
_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "numeric": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_MOST_DIGITS_128, _MOST_DIGITS_256 = 38, 76
_Convert = Callable[[pa.Array], pa.Array]


def arrow_rows(
    connection: psycopg.Connection, sql: str, columns: list[psycopg.Column], check_time: Callable[[], None]
) -> ArrowRows:
    """The rows of a statement that PostgreSQL has accepted as a query.

    :raises QueryError: if a value has no place in Arrow, such as a time of infinity; while batches are read.
    """
    if not columns:
        raise QueryError("the answer has no columns: name one after SELECT")
    names = [each.name for each in columns]
    types = [_arrow_type(connection, each) for each in columns]
    found = {number: _conversion(connection, each, types[number]) for number, each in enumerate(columns)}
    converts = {number: convert for number, convert in found.items() if convert is not None}

    def batches() -> Generator[pa.RecordBatch, None, None]:
        with closing(_copied(connection, sql, check_time)) as blocks:
            for block in blocks:
                yield from _parsed(block, names, types, converts)

    return ArrowRows(names, types, batches())


# ----------------------------------------------------------------------------------------------------------- types


def _arrow_type(connection: psycopg.Connection, column: psycopg.Column) -> pa.DataType:
    known = connection.adapters.types.get(column.type_code)
    if known is None or known.array_oid == column.type_code:
        return pa.string()
    if known.name == "numeric" and column.precision is not None and column.scale is not None:
        if 0 <= column.scale <= column.precision <= _MOST_DIGITS_128:
            return pa.decimal128(column.precision, column.scale)
        is_wide = 0 <= column.scale <= column.precision <= _MOST_DIGITS_256
        return pa.decimal256(column.precision, column.scale) if is_wide else pa.string()
    return _TYPES.get(known.name, pa.string())


def _conversion(connection: psycopg.Connection, column: psycopg.Column, kind: pa.DataType) -> _Convert | None:
    """How the texts of a column become its values; None if Arrow's parser knows it."""
    known = connection.adapters.types.get(column.type_code)
    is_array = known is not None and known.array_oid == column.type_code
    if pa.types.is_decimal256(kind):
        return partial(pc.cast, target_type=kind)
    if known is not None and not is_array and known.name in _TYPES:
        return _bytes_of_hex if known.name == "bytea" else None
    loader = Transformer(connection).get_loader(column.type_code, Format.TEXT)
    return partial(_loaded, loader.load)


def _loaded(load: Callable[[bytes], object], texts: pa.Array) -> pa.Array:
    """Values of a type that Arrow does not have, as CSV shows them. These are the only ones that become objects."""
    values = texts.cast(pa.binary()).to_pylist()
    return pa.array([None if value is None else str(plain_cell(load(value))) for value in values], pa.string())


def _bytes_of_hex(texts: pa.Array) -> pa.Array:
    r"""The bytes that texts such as ``\x01ff`` stand for."""
    digits = pc.binary_slice(texts.cast(pa.binary()), 2)
    lengths = pc.fill_null(pc.binary_length(digits), 0).to_numpy(zero_copy_only=False) // 2
    data = bytes.fromhex(b"".join(digits.drop_null().to_pylist()).decode("ascii"))
    offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    made = pa.Array.from_buffers(pa.binary(), len(digits), [None, offsets.buffers()[1], pa.py_buffer(data)])
    return pc.if_else(texts.is_valid(), made, pa.scalar(None, pa.binary()))


# --------------------------------------------------------------------------------------------------------- parsing


def _parsed(
    block: bytes, names: list[str], types: list[pa.DataType], converts: dict[int, _Convert]
) -> Iterator[pa.RecordBatch]:
    # Two columns of an answer may have the same name. The parser gets numbers.
    numbers = [str(number) for number in range(len(names))]
    read = {number: pa.string() if int(number) in converts else kind
            for number, kind in zip(numbers, types, strict=True)}  # fmt: skip
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(column_names=numbers, block_size=len(block) + 1),
            pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            pa_csv.ConvertOptions(
                column_types=read,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
            ),
        )
    except pa.ArrowInvalid as error:
        raise QueryError(f"a value of the answer has no place in Arrow: {error}; cast it to text") from None
    for batch in table.to_batches():
        arrays = [converts[number](each) if number in converts else each for number, each in enumerate(batch.columns)]
        yield pa.RecordBatch.from_arrays(arrays, names)


# ---------------------------------------------------------------------------------------------------------- copying


def _copied(connection: psycopg.Connection, sql: str, check_time: Callable[[], None]) -> Generator[bytes, None, None]:
    """The rows as CSV, in blocks of whole rows. If the generator is closed early, the copying is cancelled."""
    pgconn = connection.pgconn
    text = sql.rstrip(" \t\r\n;")
    pgconn.send_query_params(f"COPY (\n{text}\n) TO STDOUT (FORMAT csv)".encode(), None)
    with selectors.DefaultSelector() as selector:
        selector.register(pgconn.socket, selectors.EVENT_READ)

        def wait() -> None:
            check_time()
            if selector.select(_WAIT_S):
                pgconn.consume_input()

        try:
            _check(pgconn, wait, ExecStatus.COPY_OUT)
            rows: list[bytes] = []
            size_bytes = 0
            while (found := pgconn.get_copy_data(1))[0] >= 0:
                count, data = found
                if count == 0:
                    wait()
                    continue
                rows.append(bytes(data))
                size_bytes += count
                if size_bytes >= _BLOCK_BYTES:
                    yield b"".join(rows)
                    rows, size_bytes = [], 0
            _check(pgconn, wait, ExecStatus.COMMAND_OK)
            if rows:
                yield b"".join(rows)
        finally:
            _end(connection)


def _check(pgconn: PGconn, wait: Callable[[], None], expected: ExecStatus) -> None:
    while pgconn.is_busy():
        wait()
    result = pgconn.get_result()
    assert result is not None, "COPY has a result"
    if result.status == expected:
        return
    error = psycopg.errors.error_from_result(result)
    if isinstance(error, psycopg.errors.SyntaxError):  # the cursor has accepted the text: only ';' makes a difference
        raise NotReadOnly(ONE_STATEMENT)
    raise error


def _end(connection: psycopg.Connection) -> None:
    """Lets the connection be used again. One that does not react to the cancellation is closed."""
    pgconn = connection.pgconn
    if pgconn.transaction_status != TransactionStatus.ACTIVE:
        return
    try:
        connection.cancel_safe(timeout=_CANCEL_S)
        pgconn.nonblocking = 0
        while (result := pgconn.get_result()) is not None:
            while result.status == ExecStatus.COPY_OUT and pgconn.get_copy_data(0)[0] >= 0:
                pass
    except psycopg.Error:
        pgconn.finish()
