"""Decodes Avro and Protobuf in Spark's Python workers: an Arrow array of values becomes an Arrow array of rows.

Each value is parsed by fastavro or by Google's package, both of which are compiled. What is slow in Python is all else
that happens once per value: converting fields, checking them, making a row, and pickling it. So the fields of a whole
batch are gathered by column, and Arrow converts and checks a column at once::

    values  ->  parsed, one by one  ->  a list per column  ->  an Arrow array per column  ->  an array of structs

This is an optimization only. What a record gives, and why it is bad, is decided by ``events.guarded``, one record
at a time. It is asked for every record that cannot be parsed here, and for a whole batch if a column of the batch
cannot be converted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipeline.decoding.registry import RegistryUnavailable

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType

    #: From key and value to the values of all columns and the reason why the record is bad.
    DecodeOne = Callable[[bytes | None, bytes | None], tuple[object, ...]]


class Unconvertible(Exception):
    """This batch has to be decoded one record at a time."""


class Gatherer(NamedTuple):
    """
    :ivar parse: parses one value. Whatever it raises, the record is decoded again by ``guarded``.
    :ivar empty: what is gathered from for a record that was not parsed.
    :ivar columns: by the name of a column, a function from all that was parsed to an array of the column. The function
        raises an error if a value does not fit.
    """

    parse: Callable[[bytes], Any]
    empty: Any
    columns: dict[str, Callable[[list[Any]], pa.Array]]


def batch_decoder(
    make_gatherer: Callable[[], Gatherer], decode_one: DecodeOne, columns: StructType, error: str
) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Returns the function that Spark runs, from keys and values to structs of the columns and the error."""
    gatherers: list[Gatherer] = []
    names = [*columns.names, error]

    def run(keys: pa.Array, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        if not gatherers:  # made in the worker, so that parsed schemas are not sent
            gatherers.append(make_gatherer())
        try:
            arrays = _gathered(gatherers[0], decode_one, columns, values)
        except (Unconvertible, pa.ArrowException, TypeError, ValueError, OverflowError):
            arrays = _one_by_one(decode_one, columns, keys, values)
        return pa.StructArray.from_arrays(arrays, names)

    return run


def _gathered(gatherer: Gatherer, decode_one: DecodeOne, columns: StructType, values: pa.Array) -> list[pa.Array]:
    """
    :raises Unconvertible: or any error of Arrow, if a column cannot be converted at once.
    """
    import pyarrow as pa

    parse, empty = gatherer.parse, gatherer.empty
    parsed: list[Any] = []
    reasons: dict[int, object] = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            parsed.append(parse(value))
        except RegistryUnavailable:
            raise
        except Exception:  # noqa: BLE001  whatever a parser raises, ``guarded`` has the reason
            *_, reason = decode_one(None, value)
            if reason is None:
                raise Unconvertible from None
            parsed.append(empty)
            reasons[at] = reason
    arrays = [gatherer.columns[field.name](parsed) for field in columns]
    if reasons:
        good = pa.array([None if at in reasons else at for at in range(len(parsed))], pa.int64())
        arrays = [array.take(good) for array in arrays]  # NULL for a bad record
    for field, array in zip(columns, arrays, strict=True):
        if not field.nullable and array.null_count > len(reasons):
            raise Unconvertible
    return [*arrays, pa.array([reasons.get(at) for at in range(len(parsed))], pa.string())]


def _one_by_one(decode_one: DecodeOne, columns: StructType, keys: pa.Array, values: pa.Array) -> list[pa.Array]:
    import pyarrow as pa

    rows = [decode_one(*each) for each in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
    arrays = [
        column_array(field.dataType, has_tuples=True)([row[at] for row in rows]) for at, field in enumerate(columns)
    ]
    return [*arrays, pa.array([row[-1] for row in rows], pa.string())]


def column_array(data_type: DataType, *, has_tuples: bool = False) -> Callable[[Sequence[object]], pa.Array]:
    """Returns a function from Python values to an array.

    :param has_tuples: whether structs are tuples, as ``column_values`` makes them, and not dicts.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    arrow, shape = to_arrow_type(data_type, timezone="UTC"), _shaped(data_type, has_tuples)
    if shape is None:
        return lambda values: pa.array(values, arrow)
    return lambda values: pa.array([None if value is None else shape(value) for value in values], arrow)


def _shaped(data_type: DataType, has_tuples: bool) -> Callable[[Any], object] | None:
    """Converts values to what Arrow accepts: maps to lists of pairs, structs to dicts. None if nothing is to do."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, MapType):
        of_value = _or_none(_shaped(data_type.valueType, has_tuples))
        return lambda value: [(key, of_value(each)) for key, each in value.items()]
    if isinstance(data_type, ArrayType):
        of_element = _shaped(data_type.elementType, has_tuples)
        return None if of_element is None else lambda value: [_or_none(of_element)(each) for each in value]
    if not isinstance(data_type, StructType):
        return None
    inside = {field.name: _shaped(field.dataType, has_tuples) for field in data_type}
    if has_tuples:
        named = [(name, _or_none(convert)) for name, convert in inside.items()]
        return lambda value: {name: convert(each) for (name, convert), each in zip(named, value, strict=True)}
    changed = {name: _or_none(convert) for name, convert in inside.items() if convert is not None}
    if not changed:
        return None
    return lambda value: {**value, **{name: convert(value.get(name)) for name, convert in changed.items()}}


def _or_none(convert: Callable[[Any], object] | None) -> Callable[[Any], object]:
    return lambda value: value if value is None or convert is None else convert(value)
