"""Converts Avro schemas to Spark's column types, and reads Avro values with fastavro.

Types map as in Spark's own Avro reader: a union of null and one type becomes that type with NULL allowed; any other
field is NOT NULL. Enums and UUIDs become texts. Other unions have no column type and are refused.

With a schema registry, a record is written with the schema of its id and read with the schema of the source: Avro's
rules of resolution decide. A field that the writer did not have gets its default, or NULL if its type allows NULL.

fastavro resolves the names of types both for the columns and for the records, so the two always agree.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from headrace.pipeline.decoding.avro_times import CountedTime, check_same_times, counted_times, with_numbers
from headrace.pipeline.decoding.registry import HEADER_BYTES, MAX_SCHEMAS, SchemaRegistry, schema_id_of
from headrace.pipeline.decoding.value_batches import Gatherer, column_array
from headrace.pipeline.project.decode import Decode

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType


class UnsuitableAvro(ValueError):
    """The Avro schema cannot be converted to columns."""


def avro_columns(schema: str) -> StructType:
    """
    :raises UnsuitableAvro: if the schema cannot be converted to columns.
    """
    from pyspark.sql.types import StructType

    columns = _Types().of(parsed_avro(schema))
    if not isinstance(columns, StructType):
        raise UnsuitableAvro("the Avro schema is not a record")
    return columns


def parsed_avro(schema: str, references: Mapping[str, str] | None = None) -> Any:
    """The parsed schema, with full names everywhere.

    :param references: further schemas whose names the schema uses.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for each in (references or {}).values():
            fastavro.parse_schema(_unwrapped(json.loads(each)), named_schemas=named)
        return fastavro.parse_schema(_unwrapped(json.loads(schema)), named_schemas=named)
    except UnknownType as error:
        raise UnsuitableAvro(f"{str(error)!r} is not an Avro type") from error
    except (SchemaParseException, KeyError, TypeError) as error:
        raise UnsuitableAvro(f"not an Avro schema: {type(error).__name__}: {error}") from error


def _unwrapped(avro: Any) -> Any:
    """The same type without ``{"type": ...}`` around a complete type, which fastavro does not accept."""
    if isinstance(avro, list):
        return [_unwrapped(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    if isinstance(avro.get("type"), (list, dict)):
        return _unwrapped(avro["type"])
    inner = {name: _unwrapped(avro[name]) for name in ("items", "values") if name in avro}
    if "fields" in avro:
        inner["fields"] = [{**each, "type": _unwrapped(each["type"])} for each in avro["fields"]]
    return avro | inner


class _Types:
    """Converts types. Keeps named types, because later fields may refer to them."""

    def __init__(self) -> None:
        self._named: dict[str, DataType] = {}

    def of(self, avro: object) -> DataType:
        from pyspark.sql.types import ArrayType, MapType

        if isinstance(avro, str):
            return self._simple(avro)
        if isinstance(avro, list):
            return self.field(avro)[0]
        if not isinstance(avro, Mapping):
            raise UnsuitableAvro(f"{avro!r} is not an Avro type")
        kind = avro.get("type")
        if kind == "record":
            return self._record(avro)
        if kind == "array":
            element, nullable = self.field(avro["items"])
            return ArrayType(element, nullable)
        if kind == "map":
            element, nullable = self.field(avro["values"])
            return MapType(self._simple("string"), element, nullable)
        if kind in ("enum", "fixed"):
            made = self._logical(avro) or self._simple("string" if kind == "enum" else "bytes")
            self._named[str(avro["name"])] = made
            return made
        return self._logical(avro) or self.of(kind)

    def field(self, avro: object) -> tuple[DataType, bool]:
        """The type, and whether it may be NULL."""
        if not isinstance(avro, list):
            return self.of(avro), False
        others = [each for each in avro if each != "null"]
        if len(others) != 1:
            raise UnsuitableAvro(
                f"a union of {json.dumps(others)} has no column type; only a union of null and one type has"
            )
        return self.of(others[0]), len(others) < len(avro)

    def _record(self, avro: Mapping[str, object]) -> DataType:
        from pyspark.sql.types import StructField, StructType

        fields = []
        for each in cast("Sequence[Mapping[str, object]]", avro["fields"]):
            type_, nullable = self.field(each["type"])
            fields.append(StructField(str(each["name"]), type_, nullable))
        made = StructType(fields)
        self._named[str(avro["name"])] = made
        return made

    def _logical(self, avro: Mapping[str, object]) -> DataType | None:
        from pyspark.sql import types

        logical = str(avro.get("logicalType", ""))
        if logical == "decimal":
            return types.DecimalType(int(str(avro["precision"])), int(str(avro.get("scale", 0))))
        made = {"date": types.DateType,
                "timestamp-millis": types.TimestampType, "timestamp-micros": types.TimestampType,
                "local-timestamp-millis": types.TimestampNTZType, "local-timestamp-micros": types.TimestampNTZType,
                "uuid": types.StringType}.get(logical)  # fmt: skip
        if made is None and logical.startswith("time"):
            raise UnsuitableAvro(f"the logical type {logical} has no column type")
        return made() if made else None

    def _simple(self, name: str) -> DataType:
        from pyspark.sql import types

        made = {"boolean": types.BooleanType, "int": types.IntegerType, "long": types.LongType,
                "float": types.FloatType, "double": types.DoubleType, "bytes": types.BinaryType,
                "string": types.StringType}.get(name)  # fmt: skip
        if made:
            return made()
        if name not in self._named:
            raise UnsuitableAvro(f"{name!r} is not an Avro type")
        return self._named[name]


def avro_reader(decode: Decode, counted: Mapping[str, CountedTime] | None = None) -> Callable[[bytes], Any]:
    """Returns a function from the value of a record to a dict.

    :param counted: the fields whose times stay numbers (``avro_times``).
    :raises RegistryUnavailable: (the function) if the record's schema is needed and the registry does not answer.
    """
    own = parsed_avro(with_numbers(decode.schema, counted))
    if decode.registry:
        return _by_registry(SchemaRegistry(decode.registry, decode.registry_options), _with_nulls(own), counted)
    skipped = HEADER_BYTES if decode.framing == "confluent" else 0
    read_value = _value_reader(own, None, skipped)

    def read(value: bytes) -> Any:
        if skipped:
            schema_id_of(value)  # raises an error if the value does not begin with an id
        return read_value(value)

    return read


def _by_registry(
    registry: SchemaRegistry, reader: Any, counted: Mapping[str, CountedTime] | None
) -> Callable[[bytes], Any]:
    readers: dict[int, Callable[[bytes], Any]] = {}

    def read(value: bytes) -> Any:
        schema_id = schema_id_of(value)
        read_value = readers.get(schema_id)
        if read_value is None:
            found = registry.schema(schema_id)
            if found.kind != "AVRO":
                raise ValueError(f"the schema with the id {schema_id} is of type {found.kind}, not AVRO")
            check_same_times(found.text, counted)
            writer = parsed_avro(with_numbers(found.text, counted), found.references)
            if len(readers) >= MAX_SCHEMAS:
                readers.clear()
            read_value = readers[schema_id] = _value_reader(writer, reader, HEADER_BYTES)
        return read_value(value)

    return read


def _value_reader(writer: Any, reader: Any, skipped: int) -> Callable[[bytes], Any]:
    import fastavro

    read_record, open_bytes = fastavro.schemaless_reader, io.BytesIO
    has_uuids = "'uuid'" in repr((writer, reader))

    def read(value: bytes) -> Any:
        stream = open_bytes(value)
        stream.seek(skipped)
        row = read_record(stream, writer, reader)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes follow the Avro record")
        return _plain(row) if has_uuids else row

    return read


def avro_gatherer(decode: Decode, columns: StructType) -> Gatherer:
    """Reads many values (``value_batches``). Times at the top level stay numbers, which Arrow converts at once."""
    counted = {name: time for name, time in counted_times(decode.schema).items() if name in columns.names}

    def gather(name: str, make: Callable[[list[Any]], pa.Array]) -> Callable[[list[Any]], pa.Array]:
        return lambda rows: make([row.get(name) for row in rows])

    made = {
        field.name: gather(
            field.name, counted[field.name].array if field.name in counted else column_array(field.dataType)
        )
        for field in columns
    }
    return Gatherer(avro_reader(decode, counted), {}, made)


def _with_nulls(avro: Any) -> Any:
    """The same schema, where each field that may be NULL has a default, so that older records may lack the field."""
    if isinstance(avro, list):
        return [_with_nulls(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    made = {name: _with_nulls(avro[name]) for name in ("items", "values") if name in avro}
    if "fields" in avro:
        made["fields"] = [_field_with_null(each) for each in avro["fields"]]
    return {**avro, **made}


def _field_with_null(each: dict[str, Any]) -> dict[str, Any]:
    may_be_null = isinstance(each["type"], list) and "null" in each["type"]
    default = {"default": None} if may_be_null and "default" not in each else {}
    return {**each, "type": _with_nulls(each["type"]), **default}


def _plain(value: object) -> object:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
