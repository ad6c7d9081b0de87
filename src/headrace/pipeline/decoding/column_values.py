"""Converts the Python values that a decoder returns into values of Spark's columns, or says why one does not fit.

Spark's own checks are not enough. Spark refuses an ``int`` for a DOUBLE column. Spark accepts ``bytes`` for a STRING
column and stores what Python prints for them. Spark also converts dates and times after the decoder has returned,
where an error ends the whole job. So each column gets a converter, made once per worker, that returns a value of the
exact type that Spark expects, or raises ``DoesNotFit`` with the path of the value.

Numbers widen as Spark's type promotion widens them::

    int       TINYINT, SMALLINT, INT, BIGINT within their ranges; FLOAT, DOUBLE; DECIMAL if all digits fit
    Decimal   DECIMAL if all digits fit; FLOAT, DOUBLE
    float     FLOAT, DOUBLE

A ``bool`` is not a number, and a number is not a ``bool``. A ``date`` is a TIMESTAMP at midnight. A ``datetime``
without a time zone is in UTC, the time zone of every session of views; TIMESTAMP_NTZ drops a time zone. Scalars and
arrays of numpy stand for the Python values that they hold. A text never becomes a number, nor a number a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType

Convert = Callable[[object], object]
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_MAX_SHOWN = 60


class DoesNotFit(ValueError):
    """A value that its column cannot hold.

    :ivar path: the path of the value: names of columns and fields, positions in arrays, keys of maps.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason, self.path = reason, path

    def inside(self, step: str) -> DoesNotFit:
        """The same error with one more step at the front of its path."""
        separator = "" if not self.path or self.path.startswith("[") else "."
        return DoesNotFit(self.reason, f"{step}{separator}{self.path}")


def row_converter(columns: StructType) -> Callable[[object], tuple[object, ...]]:
    """Returns a function from what a decoder returned to the columns' values, in their order.

    :raises DoesNotFit: (the function) if a value does not fit its column.
    :raises TypeError: (the function) if the decoder returned neither a mapping nor as many values as there are columns.
    """
    names = list(columns.names)
    fields = [(field.name, field.nullable, converter(field.dataType)) for field in columns]

    def convert(made: object) -> tuple[object, ...]:
        values = _values(made, names)
        row: list[object] = []
        for value, (name, nullable, convert_field) in zip(values, fields, strict=True):
            if value is None:
                if not nullable:
                    raise DoesNotFit("missing, but the schema says NOT NULL", name)
                row.append(None)
                continue
            try:
                row.append(convert_field(value))
            except DoesNotFit as error:
                raise error.inside(name) from None
        return tuple(row)

    return convert


def _values(made: object, names: Sequence[str]) -> Sequence[object]:
    if isinstance(made, Mapping):
        return [made.get(name) for name in names]
    if isinstance(made, (tuple, list)) and len(made) == len(names):
        # A Row or a named tuple may have the names of the columns in another order.
        own = getattr(made, "_fields", None) or getattr(made, "__fields__", None)
        if own is not None and list(own) != names and set(own) == set(names):
            return _values(dict(zip(own, made, strict=True)), names)
        return made
    what = "nothing" if made is None else type(made).__name__
    raise TypeError(f"the function returned {what}, not a mapping or {len(names)} values")


def converter(data_type: DataType) -> Convert:
    """Returns a function that converts a value that is not None.

    :raises DoesNotFit: (the function) if the value does not fit.
    """
    from pyspark.sql import types

    by_type: dict[type[DataType], Callable[..., Convert]] = {
        types.ByteType: _integers, types.ShortType: _integers, types.IntegerType: _integers, types.LongType: _integers,
        types.FloatType: _floats, types.DoubleType: _floats, types.DecimalType: _decimals,
        types.BooleanType: _booleans, types.StringType: _texts, types.BinaryType: _binaries,
        types.DateType: _dates, types.TimestampType: _timestamps, types.TimestampNTZType: _timestamps,
        types.ArrayType: _arrays, types.MapType: _maps, types.StructType: _structs,
    }  # fmt: skip
    return by_type.get(type(data_type), _checked_by_spark)(data_type)


# --------------------------------------------------------------------------------------------------- numbers and texts


def _integers(data_type: DataType) -> Convert:
    limit: int = 1 << (_INTEGER_BITS[data_type.simpleString()] - 1)

    def convert(value: object) -> object:
        number = value
        if type(number) is not int:
            number = _scalar(value)
            if not isinstance(number, int) or isinstance(number, bool):
                raise _unfit(data_type, value)
            number = int(number)
        if -limit <= number < limit:
            return number
        raise _unfit(data_type, value)

    return convert


def _floats(data_type: DataType) -> Convert:
    def convert(value: object) -> object:
        if type(value) is float:
            return value
        number = _scalar(value)
        if isinstance(number, bool) or not isinstance(number, (float, int, Decimal)):
            raise _unfit(data_type, value)
        try:
            return float(number)
        except (OverflowError, ValueError):  # too large, or a signaling NaN
            raise _unfit(data_type, value) from None

    return convert


def _decimals(data_type: DecimalType) -> Convert:
    exponent = Decimal(1).scaleb(-data_type.scale)
    exactly = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])

    def convert(value: object) -> object:
        number = _scalar(value)
        if isinstance(number, int) and not isinstance(number, bool):
            number = Decimal(int(number))
        if not isinstance(number, Decimal) or not number.is_finite():
            raise _unfit(data_type, value)
        try:
            return exactly.quantize(number, exponent)
        except (Inexact, InvalidOperation):
            raise _unfit(data_type, value) from None

    return convert


def _booleans(data_type: DataType) -> Convert:
    def convert(value: object) -> object:
        flag = _scalar(value)
        if not isinstance(flag, bool):
            raise _unfit(data_type, value)
        return flag

    return convert


def _texts(data_type: DataType) -> Convert:
    def convert(value: object) -> object:
        if not isinstance(value, str):
            raise _unfit(data_type, value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise DoesNotFit(f"STRING cannot hold half of a surrogate pair, at position {error.start}") from None
        return value if type(value) is str else str.__str__(value)

    return convert


def _binaries(data_type: DataType) -> Convert:
    def convert(value: object) -> object:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _unfit(data_type, value)
        return bytes(value)

    return convert


# ----------------------------------------------------------------------------------------------------------------- time


def _dates(data_type: DataType) -> Convert:
    def convert(value: object) -> object:
        day = _scalar(value)
        if not isinstance(day, date):
            raise _unfit(data_type, value)
        return _accepted(data_type, day)

    return convert


def _timestamps(data_type: DataType) -> Convert:
    is_instant = data_type.simpleString() == "timestamp"

    def convert(value: object) -> object:
        moment = _scalar(value)
        if isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime.combine(moment, time())
        if not isinstance(moment, datetime):
            raise _unfit(data_type, value)
        if is_instant == (moment.tzinfo is None):
            moment = moment.replace(tzinfo=UTC if is_instant else None)
        return _accepted(data_type, moment)

    return convert


def _accepted(data_type: DataType, value: object) -> object:
    """Returns the value if Spark can convert it. Spark converts it again later, where an error would end the job."""
    try:
        data_type.toInternal(value)
    except (ValueError, OverflowError, OSError) as error:
        raise DoesNotFit(f"{_name(data_type)} cannot hold {_shown(value)}: {error}") from None
    return value


# ----------------------------------------------------------------------------------------------------- values of values


def _arrays(data_type: ArrayType) -> Convert:
    element, may_be_null = converter(data_type.elementType), data_type.containsNull

    def convert(value: object) -> object:
        items = value if isinstance(value, (list, tuple)) else getattr(value, "tolist", lambda: None)()
        if not isinstance(items, (list, tuple)):
            raise _unfit(data_type, value)
        made = []
        for at, item in enumerate(items):
            try:
                made.append(_item(item, element, may_be_null))
            except DoesNotFit as error:
                raise error.inside(f"[{at}]") from None
        return made

    return convert


def _maps(data_type: MapType) -> Convert:
    key, value_, may_be_null = (
        converter(data_type.keyType),
        converter(data_type.valueType),
        data_type.valueContainsNull,
    )

    def convert(value: object) -> object:
        if not isinstance(value, Mapping):
            raise _unfit(data_type, value)
        made = {}
        for name, item in value.items():
            try:
                made[_item(name, key, False)] = _item(item, value_, may_be_null)
            except DoesNotFit as error:
                raise error.inside(f"[{_shown(name)}]") from None
        return made

    return convert


def _item(value: object, convert: Convert, may_be_null: bool) -> object:
    if value is not None:
        return convert(value)
    if not may_be_null:
        raise DoesNotFit("missing, but the schema says NOT NULL")
    return None


def _structs(data_type: StructType) -> Convert:
    convert_row = row_converter(data_type)

    def convert(value: object) -> object:
        try:
            return convert_row(value)
        except TypeError:
            raise _unfit(data_type, value) from None

    return convert


def _checked_by_spark(data_type: DataType) -> Convert:
    """For types that are rare in records, such as intervals: accepts whatever Spark and Arrow accept."""
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import _make_type_verifier

    verify = _make_type_verifier(data_type)
    arrow = to_arrow_type(data_type, timezone="UTC")

    def convert(value: object) -> object:
        try:
            verify(value)
            pa.array([value], arrow)
        except (TypeError, ValueError, pa.ArrowException):
            raise _unfit(data_type, value) from None
        return _accepted(data_type, value) if data_type.needConversion() else value

    return convert


# ------------------------------------------------------------------------------------------------------------- messages


def _scalar(value: object) -> object:
    """The Python value of a numpy scalar; any other value unchanged."""
    if getattr(value, "shape", None) != ():
        return value
    return value.item()  # type: ignore[attr-defined]


def _unfit(data_type: DataType, value: object) -> DoesNotFit:
    return DoesNotFit(f"{_name(data_type)} cannot hold {_shown(value)} ({type(value).__name__})")


def _name(data_type: DataType) -> str:
    return data_type.simpleString().upper()


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"  # Python raises if it has to print a very large integer
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
