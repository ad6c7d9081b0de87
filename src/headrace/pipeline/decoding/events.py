"""Decodes records into events: bytes become typed columns. A record that does not decode is marked, never lost.

    raw        key, value, topic, partition, offset, timestamp (``spark.source``)
    decoded    the columns of the schema, _topic, _partition, _offset, _timestamp, _key, and _value, _error
    events     the rows without an _error; without _value and _error      (``good_rows``)
    bad        the other rows: their position, their bytes, the reason    (``bad_rows``)

``_error`` is NULL or the reason. JSON and CSV are parsed by Spark's readers, with the checks of ``text_columns``. A
record without a value (a tombstone) is bad in all formats but ``raw`` and ``python``, whose function may use the key.

A Python function gets the value, or key and value if it takes two arguments. It returns a mapping by column name, or
the values in order. If it raises, or if a value does not fit its column (``column_values``), that record is bad. One
record must not stop a view.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.pipeline.decoding.avro_columns import avro_columns, avro_gatherer, avro_reader
from headrace.pipeline.decoding.column_values import DoesNotFit, row_converter
from headrace.pipeline.decoding.envelopes import OPERATION, enveloped, row_columns
from headrace.pipeline.decoding.json_schema_ids import checked_columns, problem_column, with_problems
from headrace.pipeline.decoding.protobuf_columns import protobuf_columns, protobuf_gatherer, protobuf_reader
from headrace.pipeline.decoding.registry import RegistryUnavailable
from headrace.pipeline.decoding.text_columns import CORRUPT, END, KEY_PART, VALUE_PART, Parsing, Part, text_columns
from headrace.pipeline.decoding.value_batches import batch_decoder
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.spark.arrow_functions import arrow_function
from headrace.pipeline.spark.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

ERROR, VALUE, HEADERS = "_error", "_value", "_headers"
#: The columns of an event that come from the record, and the columns of the source that they come from.
RECORD_COLUMNS = {
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_key": "key",
}
_RECORD_COLUMNS_DDL = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP, _key BINARY"
#: Further names that no schema may have; the last one is that of ``source_rows``.
_OTHER_COLUMNS = (ERROR, VALUE, HEADERS, OPERATION, CORRUPT, END, "_removed")
_MAX_REASON = 300


class UnsuitableDecode(ValueError):
    """The table [decode] of a view cannot work, whatever the records are."""


def columns_of(decode: Decode) -> StructType:
    """The columns of the value and of the key. Needs an active Spark session.

    :raises UnsuitableDecode: if a schema cannot be used.
    """
    from pyspark.sql.types import StructType

    columns = _columns_of_part(decode, "decode")
    if decode.key is None:
        return columns
    of_key = _columns_of_part(decode.key, "decode.key")
    names = {name.lower() for name in columns.names}
    if twice := [name for name in of_key.names if name.lower() in names]:
        raise UnsuitableDecode(f"decode.key.schema: the value has a column {twice[0]} too; give one another name")
    return StructType([*columns, *of_key])


def _columns_of_part(decode: Decode, table: str) -> StructType:
    """The columns of a schema.

    :raises UnsuitableDecode: if the schema cannot be used.
    """
    from pyspark.errors import PySparkException

    if decode.format == "raw":
        return _columns("value BINARY")
    try:
        columns = _declared(decode)
    except (PySparkException, ValueError) as error:
        reason = explain(error) if isinstance(error, PySparkException) else str(error).strip().splitlines()[0]
        raise UnsuitableDecode(f"{table}.schema cannot be read: {reason}") from error
    taken = [name for name in columns.names if name.lower() in {*RECORD_COLUMNS, *_OTHER_COLUMNS}]
    if taken:
        raise UnsuitableDecode(
            f"{table}.schema: every event already has a column {taken[0]}; give this column another name"
        )
    lowered = [name.lower() for name in columns.names]
    twice = [name for name in columns.names if lowered.count(name.lower()) > 1]
    if twice:
        raise UnsuitableDecode(f"{table}.schema has the column {twice[0]} twice")
    return columns


def _declared(decode: Decode) -> StructType:
    if decode.format not in ("avro", "protobuf"):
        return _columns(decode.schema)
    columns = avro_columns(decode.schema) if decode.format == "avro" else protobuf_columns(decode)
    return row_columns(columns) if decode.envelope else columns


def _columns(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(ddl)
    if not isinstance(columns, StructType):
        raise UnsuitableDecode("decode.schema must be a list of columns, such as 'user STRING, ms BIGINT'")
    return columns


def event_schema(decode: Decode) -> StructType:
    """The columns that a query can use."""
    from pyspark.sql.types import StructField, StructType

    columns = [StructField(field.name, field.dataType) for field in columns_of(decode)]
    return StructType([*columns, *_columns(_RECORD_COLUMNS_DDL).fields])


def decode_frame(decode: Decode, raw: DataFrame, *, is_optimized: bool = True) -> DataFrame:
    """All rows, with ``_error`` for bad ones. Works for batches and streams.

    :param is_optimized: False to use projections only, for callers that compute them row by row.
    """
    from pyspark.sql import functions as F  # noqa: N812

    columns_of(decode)  # raises an error if the schemas do not fit together
    raw = with_problems(decode, raw)
    problems = [problem_column(column) for column in checked_columns(decode)]
    place = [F.col(source).alias(name) for name, source in RECORD_COLUMNS.items()]
    headers = [F.col("headers").alias(HEADERS)] if "headers" in raw.columns else []
    value = F.col("value").alias(VALUE)
    if not can_be_bad(decode):
        return raw.select("value", *place, *headers, value, F.lit(None).cast("string").alias(ERROR))
    parts = [(VALUE_PART, decode)] if decode.key is None else [(VALUE_PART, decode), (KEY_PART, decode.key)]
    parsings = [(part, _parsing(each, part)) for part, each in parts]
    made = [parsing.parsed.alias(part.parsed) for part, parsing in parsings]
    if is_optimized:
        # Parsed once and used several times: Spark copies the parsing into every filter, but not past an explode.
        once = made[0] if len(made) == 1 else F.struct(*made)
        step = raw.select(F.explode(F.array(once)).alias(VALUE_PART.parsed), *place, *headers, value, *problems)
        if len(made) > 1:
            both = F.col(VALUE_PART.parsed)
            step = step.select(*(both[part.parsed].alias(part.parsed) for part, _ in parsings), *_others(step))
    else:
        step = raw.select(*made, *place, *headers, value, *problems)
    fields = [field for _, parsing in parsings for field in parsing.fields]
    if (operation := parsings[0][1].operation) is not None:
        fields.append(operation.alias(OPERATION))
    error = F.coalesce(*(parsing.error for _, parsing in parsings))
    return step.select(*fields, *RECORD_COLUMNS, *(HEADERS for _ in headers), VALUE, error.alias(ERROR))


def can_be_bad(decode: Decode) -> bool:
    """Whether a record can fail to decode."""
    return decode.format != "raw" or decode.key is not None


def _others(step: DataFrame) -> list[str]:
    return [name for name in step.columns if name != VALUE_PART.parsed]


def _parsing(decode: Decode, part: Part) -> Parsing:
    from pyspark.sql import functions as F  # noqa: N812

    if decode.format == "raw":
        bytes_ = F.struct(F.col(part.column).alias("value"))
        return Parsing(bytes_, [F.col(part.parsed)["value"].alias("value")], F.lit(None).cast("string"))
    make = text_columns if decode.format in ("json", "csv") else _python_columns
    columns = _columns_of_part(decode, "decode")
    made = enveloped(make, decode, columns, part) if decode.envelope else make(decode, columns, part)
    if part is VALUE_PART:
        return made
    of_key = F.replace(made.error, F.lit("the value"), F.lit("the key"))
    return made._replace(error=F.when(F.col(part.kept).isNull(), F.lit("the record has no key")).otherwise(of_key))


def record_counters() -> list[Column]:
    """Count all records, and those that do not decode."""
    from pyspark.sql import functions as F  # noqa: N812

    return [F.count("*").alias("events"), F.count(ERROR).alias("bad")]


def good_rows(decoded: DataFrame) -> DataFrame:
    """The events that a query reads."""
    from pyspark.sql import functions as F  # noqa: N812

    return decoded.where(F.col(ERROR).isNull()).drop(ERROR, VALUE, HEADERS)


def bad_rows(decoded: DataFrame) -> DataFrame:
    """The bad rows: their position, their bytes and the reason."""
    from pyspark.sql import functions as F  # noqa: N812

    headers = [HEADERS] if HEADERS in decoded.columns else []
    return decoded.where(F.col(ERROR).isNotNull()).select(*RECORD_COLUMNS, *headers, VALUE, ERROR)


# ----------------------------------------------------------------------------------------- Avro, Protobuf and Python


def load_function(source: FileText) -> Callable[..., object]:
    """Loads a function from the text of a Python file. Spark sends it to its workers by value.

    The modules that the file imports must be installed on the machines of the workers.
    """
    from pyspark import cloudpickle

    name = f"headrace_project_{hashlib.sha256(f'{source.file}:{source.text}'.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.__file__ = source.file
        sys.modules[name] = module  # dataclasses search the module of a class there
        try:
            exec(compile(source.text, source.file, "exec"), module.__dict__)  # the project's owner wrote it
        except BaseException:
            del sys.modules[name]
            raise
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    found: object = getattr(sys.modules[name], source.function, None)
    if not callable(found):
        raise UnsuitableDecode(f"{source.file} has no function {source.function!r}")
    return found


def _python_columns(decode: Decode, columns: StructType, part: Part) -> Parsing:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    nullable = [StructField(field.name, field.dataType) for field in columns]
    result = StructType([*nullable, StructField(ERROR, StringType())])
    parse: Callable[..., Column]
    if decode.format == "python":
        parse = F.udf(guarded(_own_function(decode), columns), result)
    else:
        gatherer = avro_gatherer if decode.format == "avro" else protobuf_gatherer
        one_by_one = guarded(reading_function(decode), columns)
        parse = arrow_function(batch_decoder(partial(gatherer, decode, columns), one_by_one, columns, ERROR), result)
    read_part = F.col(part.parsed)
    fields = [read_part.getField(field.name).alias(field.name) for field in columns]
    return Parsing(parse(F.col("key"), F.col(part.column)), fields, read_part.getField(ERROR))


def reading_function(decode: Decode) -> Callable[[bytes | None, bytes | None], object]:
    """Reads Avro or Protobuf."""
    make = avro_reader if decode.format == "avro" else protobuf_reader
    readers: list[Callable[[bytes], object]] = []

    def read(_key: bytes | None, value: bytes | None) -> object:
        if value is None:
            raise ValueError("the record has no value")
        if not readers:  # made in the worker, so that the parsed schema is not sent
            readers.append(make(decode))
        return readers[0](value)

    return read


def _own_function(decode: Decode) -> Callable[[bytes | None, bytes | None], object]:
    assert decode.function is not None, "view_file.py checks it"
    function = load_function(decode.function)
    if len(inspect.signature(function).parameters) == 1:
        return lambda _key, value: function(value)
    return function


def guarded(
    read: Callable[[bytes | None, bytes | None], object], columns: StructType
) -> Callable[[bytes | None, bytes | None], tuple[object, ...]]:
    """Returns the function that Spark runs. It returns a row that Spark accepts, or a row with only ``_error``."""
    nothing = (None,) * len(columns)
    converters: list[Callable[[object], tuple[object, ...]]] = []

    def run(key: bytes | None, value: bytes | None) -> tuple[object, ...]:
        if not converters:  # made in the worker, so that the converter is not sent
            converters.append(row_converter(columns))
        try:
            made = read(None if key is None else bytes(key), None if value is None else bytes(value))
            return (*converters[0](made), None)
        except RegistryUnavailable:  # the record may be good: the task fails, and is tried again
            raise
        except DoesNotFit as error:
            return (*nothing, _reason(str(error)))
        except Exception as error:  # noqa: BLE001  whatever a user's function raises, only this record is bad
            return (*nothing, _reason(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__))

    run.__annotations__ = {}  # Spark would use the annotations as its own type hints
    return run


def _reason(text: str) -> str:
    return text[:_MAX_REASON].encode(errors="replace").decode()
