"""Parses JSON and CSV values with Spark's readers, and refuses what these readers accept silently.

Spark's readers parse what they need and ignore the rest. ``from_json`` reads one document and ignores any text after
it, even a second document. ``from_csv`` accepts a quote that is not closed. So a mark is added at the end of each
value, and the reader has to find it where the value should end::

    {"user":"ann"}     ->  {"user":"ann","_headrace_end":true}       the last brace is the brace of the document
    {"a":1}{"a":2}     ->  {"a":1}{"a":2,"_headrace_end":true}       no mark in the document that is read
    ann;7              ->  ann;7;_headrace_end                       one column more
    ann;"7             ->  ann;"7;_headrace_end                      the mark is inside of the quotes

A parser of our own would be Python code that runs once per record. Here everything is a Spark expression, which can
also run in the driver without a job (``query.row_functions``). Reasons are computed for bad values only.

Three more checks: fields inside of a STRUCT that the schema declares NOT NULL; a TINYINT from 128 to 255, which Spark's
JSON reader wraps to a negative number; and a line break in a CSV value without quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from headrace.pipeline.decoding.json_schema_ids import problem_column
from headrace.pipeline.decoding.registry import HEADER_BYTES
from headrace.pipeline.project.decode import Decode

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

END, CORRUPT = "_headrace_end", "_headrace_corrupt"
_BREAKS = ("\r\n", "\n")
_EMPTY_OBJECT, _LAST_BRACE = r"^[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*\z", r"\}[ \t\r\n]*\z"

#: Reasons to which ``bad_positions`` adds a position.
NOT_UTF8 = "the value is not UTF-8"
NOT_JSON = "the value is not a JSON object"
MORE_THAN_JSON = "text follows the JSON document"
_NOT_FRAMED = "the value does not begin with Confluent's five bytes"


class Part(NamedTuple):
    """The part of a record that is decoded: its value or its key.

    :ivar column: the column of the log that has the bytes.
    :ivar kept: the column of a decoded record that has the same bytes.
    :ivar parsed: the column of what was parsed.
    """

    column: str
    kept: str
    parsed: str


VALUE_PART, KEY_PART = Part("value", "_value", "_parsed"), Part("key", "_key", "_parsed_key")


class Parsing(NamedTuple):
    """
    :ivar parsed: the parsed part of the record, a struct.
    :ivar fields: the columns, computed from the struct in ``Part.parsed``.
    :ivar error: NULL or the reason, computed from ``Part.parsed`` and ``Part.kept``.
    :ivar operation: the operation of a change in an envelope (``envelopes``).
    """

    parsed: Column
    fields: list[Column]
    error: Column
    operation: Column | None = None


class _Reader(NamedTuple):
    """One of Spark's readers, for values with a mark at the end.

    :ivar marked: adds the mark to a text.
    :ivar parse: parses a marked text by a schema, which gets a column for the mark and one for a value that is corrupt.
    :ivar found_end: whether what was parsed has the mark.
    """

    marked: Callable[[Column], Column]
    parse: Callable[[Column, StructType], Column]
    found_end: Callable[[Column], Column]


def text_columns(decode: Decode, columns: StructType, part: Part) -> Parsing:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ShortType

    if is_whole_document(decode, columns):
        return _document(decode, columns.names[0], part)
    reader = _json_reader(decode) if decode.format == "json" else _csv_reader(decode)
    own = _nullable(columns)
    wide = _nullable(columns, byte=ShortType()) if decode.format == "json" else own
    parsed = reader.parse(reader.marked(_text(decode, part.column)), wide)
    read = F.col(part.parsed)
    fields = [
        (read[name] if wide[name].dataType == own[name].dataType else read[name].try_cast(own[name].dataType)).alias(
            name
        )
        for name in columns.names
    ]
    return Parsing(parsed, fields, _error(decode, columns, reader, part))


def is_whole_document(decode: Decode, columns: StructType) -> bool:
    """Whether the only column is a VARIANT, which then is the whole JSON value and not one of its fields."""
    from pyspark.sql.types import VariantType

    return decode.format == "json" and [type(field.dataType) for field in columns] == [VariantType]


def _document(decode: Decode, name: str, part: Part) -> Parsing:
    """The whole value as a VARIANT.

    Spark's parser ignores text after the first document. So the value is parsed as the first of two elements of an
    array, and the second has to be the mark.
    """
    from pyspark.sql import functions as F  # noqa: N812

    kept, pair = _text(decode, part.kept), F.col(part.parsed)["pair"]
    mark, more = F.try_variant_get(pair, "$[1]", "string"), F.try_variant_get(pair, "$[2]", "variant")
    error = (
        F.when(F.col(part.kept).isNull(), F.lit("the record has no value"))
        .when(~_is_framed(decode, part.kept), F.lit(_NOT_FRAMED))
        .when(_id_problem(decode, part).isNotNull(), _id_problem(decode, part))
        .when(~F.is_valid_utf8(kept), F.lit(NOT_UTF8))
        .when(~F.coalesce((mark == END) & more.isNull(), F.lit(False)), F.lit("the value is not JSON"))
    )
    text = F.concat(F.lit("["), _text(decode, part.column), F.lit(f',"{END}"]'))
    document = F.try_variant_get(pair, "$[0]", "variant").alias(name)
    return Parsing(F.struct(F.try_parse_json(text).alias("pair")), [document], error)


def _text(decode: Decode, column: str) -> Column:
    """The text of a key or value. JSON names its fields, so the schema of its id is not needed to read it."""
    from pyspark.sql import functions as F  # noqa: N812

    if decode.framing != "confluent":
        return F.col(column).cast("string")
    return F.substring(F.col(column), F.lit(HEADER_BYTES + 1), F.octet_length(F.col(column))).cast("string")


def _is_framed(decode: Decode, column: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if decode.framing != "confluent":
        return F.lit(True)
    begins = F.substring(F.col(column), F.lit(1), F.lit(1)) == F.lit(b"\x00")
    return begins & (F.octet_length(F.col(column)) >= HEADER_BYTES)


def _id_problem(decode: Decode, part: Part) -> Column:
    """NULL, or why the id of the schema is wrong (``json_schema_ids``)."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(problem_column(part.column)) if decode.registry else F.lit(None).cast("string")


def _nullable(columns: StructType, byte: DataType | None = None) -> StructType:
    """The same columns with NULL allowed at any depth, which is what Spark's readers return.

    :param byte: the type that is read for TINYINT. Jackson's getByteValue reads 128 to 255 as negative numbers.
    """
    from pyspark.sql.types import ArrayType, ByteType, MapType, StructField, StructType

    def loose(kind: DataType) -> DataType:
        if isinstance(kind, ArrayType):
            return ArrayType(loose(kind.elementType))
        if isinstance(kind, MapType):
            return MapType(kind.keyType, loose(kind.valueType))
        if isinstance(kind, StructType):
            return _nullable(kind, byte)
        return byte if byte is not None and isinstance(kind, ByteType) else kind

    return StructType([StructField(each.name, loose(each.dataType)) for each in columns.fields])


# ------------------------------------------------------------------------------------------------------------- readers


def _options(decode: Decode) -> dict[str, str]:
    return {**decode.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}


def _json_reader(decode: Decode) -> _Reader:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import BooleanType, StringType, StructType

    mark = f'"{END}":true}}'

    def marked(text: Column) -> Column:
        # Regular expressions are slow here. Most values end in a brace that follows no space.
        is_plain = text.endswith("}") & ~_ends_in(text, *(f"{each}}}" for each in "{ \t\r\n"))
        any_other = F.regexp_replace(F.regexp_replace(text, _EMPTY_OBJECT, f"{{{mark}"), _LAST_BRACE, f",{mark}")
        return F.when(is_plain, F.concat(_without_last(text, 1), F.lit(f",{mark}"))).otherwise(any_other)

    def parse(text: Column, columns: StructType) -> Column:
        wanted = StructType([*columns.fields]).add(END, BooleanType()).add(CORRUPT, StringType())
        return F.from_json(text, wanted, _options(decode))

    return _Reader(marked, parse, lambda read: read[END].isNotNull())


def _csv_reader(decode: Decode) -> _Reader:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructType

    separator = _separator(decode)

    def marked(text: Column) -> Column:
        return F.concat(_line(text), F.lit(separator + END))

    def parse(text: Column, columns: StructType) -> Column:
        wanted = StructType([*columns.fields]).add(END, StringType()).add(CORRUPT, StringType())
        return F.from_csv(text, F.lit(_ddl(wanted)), _options(decode))

    return _Reader(marked, parse, lambda read: read[END] == END)


def _separator(decode: Decode) -> str:
    """The separator itself: an option may have ``\\t`` as two characters."""
    from pyspark import SparkContext

    options = {name.lower(): value for name, value in decode.options.items()}
    # Spark's session is active in one thread only, and views have their own threads.
    jvm = SparkContext._jvm
    assert jvm is not None, "there is a session"
    expressions = jvm.org.apache.spark.sql.catalyst.csv.CSVExprUtils
    return str(expressions.toDelimiterStr(options.get("sep", options.get("delimiter", ","))))


def _ddl(columns: StructType) -> str:
    """The schema as text, because from_csv accepts no StructType."""
    return ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in columns)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _line(text: Column) -> Column:
    """The text without the line break at its end."""
    from pyspark.sql import functions as F  # noqa: N812

    crlf, lf = (F.when(text.endswith(each), _without_last(text, len(each))) for each in _BREAKS)
    return F.coalesce(crlf, lf, text)


def _without_last(text: Column, count: int) -> Column:
    """Cuts by bytes, which is faster than by characters."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.substring(text.cast("binary"), F.lit(1), F.octet_length(text) - count).cast("string")


def _ends_in(text: Column, *ends: str) -> Column:
    return reduce(lambda one, other: one | other, (text.endswith(each) for each in ends))


# ------------------------------------------------------------------------------------------------------------- reasons


def _error(decode: Decode, columns: StructType, reader: _Reader, part: Part) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    text, read = _text(decode, part.kept), F.col(part.parsed)
    is_json = decode.format == "json"
    error = (
        F.when(F.col(part.kept).isNull(), F.lit("the record has no value"))
        .when(~_is_framed(decode, part.kept), F.lit(_NOT_FRAMED))
        .when(_id_problem(decode, part).isNotNull(), _id_problem(decode, part))
        .when(~F.is_valid_utf8(text), F.lit(NOT_UTF8))
        .when((F.trim(text) == "") | text.isin(*_BREAKS) | read.isNull(), F.lit("the value is empty"))
        .when(read[CORRUPT].isNotNull(), _misfit(decode, columns, reader, text, read))
    )
    if is_json:
        error = error.when(~reader.found_end(read), F.lit(MORE_THAN_JSON))
    else:
        error = error.when(~reader.found_end(read), F.lit("the value has a quote that is not closed"))
        error = error.when(_is_broken(decode, text), F.lit("the value has a line break outside of quotes"))
    for is_wrong, reason in _checks(columns, ""):
        error = error.when(is_wrong(read), F.lit(reason))
    return error


def _is_broken(decode: Decode, text: Column) -> Column:
    quote = {name.lower(): value for name, value in decode.options.items()}.get("quote", '"')
    has_break = text.contains("\n") & _line(text).contains("\n")  # the second test is slow, and few texts need it
    return has_break & ~text.contains(quote) if quote else has_break


Check = tuple[Callable[["Column"], "Column"], str]


def _checks(columns: StructType, path: str) -> Iterator[Check]:
    """Conditions under which a struct that is not NULL is bad, each with its reason."""
    for field in columns:
        path_to = f"{path}{field.name}"
        checks = list(_value_checks(field.dataType, path_to))
        if not field.nullable:
            checks.insert(0, (lambda each: each.isNull(), f"{path_to}: missing, but the schema says NOT NULL"))
        yield from (_lifted(check, _of_field(field.name)) for check in checks)


def _of_field(name: str) -> Callable[[Column, Callable[[Column], Column]], Column]:
    return lambda struct, is_wrong: is_wrong(struct[name])


def _value_checks(data_type: DataType, name: str) -> Iterator[Check]:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, ByteType, MapType, StructType

    if isinstance(data_type, ByteType):
        yield lambda each: ~each.between(-128, 127), f"{name}: the value does not fit TINYINT"
    elif isinstance(data_type, StructType):
        yield from (
            _lifted(check, lambda each, wrong: each.isNotNull() & wrong(each))
            for check in _checks(data_type, f"{name}.")
        )
    elif isinstance(data_type, ArrayType):
        yield from (_lifted(check, F.exists) for check in _value_checks(data_type.elementType, f"{name}[]"))
    elif isinstance(data_type, MapType):
        inside = _value_checks(data_type.valueType, f"{name}[]")
        yield from (_lifted(check, lambda each, wrong: F.exists(F.map_values(each), wrong)) for check in inside)


def _lifted(check: Check, lift: Callable[[Column, Callable[[Column], Column]], Column]) -> Check:
    """Turns the check of a part into a check of the whole."""
    is_wrong, reason = check
    return lambda each: lift(each, is_wrong), reason


def _misfit(decode: Decode, columns: StructType, reader: _Reader, text: Column, read: Column) -> Column:
    """The reason why a value is corrupt: it is no JSON or CSV, or some columns do not have the type of the schema.

    Spark says neither. It sets columns that it cannot convert to NULL. So the value is parsed again with texts only: a
    column that has a text now and was NULL before is wrong.
    """
    from pyspark.sql import functions as F  # noqa: N812

    is_json = decode.format == "json"
    other = NOT_JSON if is_json else f"the value is not CSV of {len(columns)} columns"
    plain = reader.parse(reader.marked(text), _texts_only(columns))
    unknown = F.lit(f"the value is not {decode.format.upper()} that fits the schema")

    def reason(texts: Column) -> Column:
        wrong = _wrong_columns(columns, read, texts, "", reader if is_json else None)
        return F.when(texts[CORRUPT].isNotNull(), F.lit(other)).otherwise(
            F.coalesce(F.nullif(wrong, F.lit("")), unknown)
        )

    return _once(plain, reason)


def _wrong_columns(columns: StructType, read: Column, texts: Column, path: str, reader: _Reader | None) -> Column:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    def inside(field: StructField) -> Column:
        kind = field.dataType
        if reader is None or not isinstance(kind, StructType):
            return F.lit(None).cast("string")
        plain = reader.parse(reader.marked(texts[field.name]), _texts_only(kind))
        own, further = read[field.name], f"{path}{field.name}."
        wrong = _once(plain, lambda parts: _wrong_columns(kind, own, parts, further, reader))
        return F.when(own.isNotNull(), F.nullif(wrong, F.lit("")))

    found: list[Column] = []
    for field in columns:
        reason = F.lit(f"{path}{field.name}: the value does not fit {field.dataType.simpleString().upper()}")
        found += [F.when(texts[field.name].isNotNull() & read[field.name].isNull(), reason), inside(field)]
    return F.concat_ws("; ", *found)


def _texts_only(columns: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField(each.name, StringType()) for each in columns.fields])


def _once(value: Column, use: Callable[[Column], Column]) -> Column:
    """``use(value)``, where the value is computed once, however often ``use`` refers to it."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.transform(F.array(value), use)[0]
