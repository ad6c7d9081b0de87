"""Converts Protobuf messages to Spark's columns, and reads them with Google's Protobuf package.

The types of a message come from a file of descriptors, as ``protoc --include_imports --descriptor_set_out=FILE``
writes it. Fields map as in Spark's own reader::

    int32 sint32 sfixed32    INT          bool      BOOLEAN          repeated   ARRAY
    uint32 fixed32           BIGINT       string    STRING           map        MAP
    int64 sint64 sfixed64    BIGINT       bytes     BINARY           message    STRUCT
    uint64 fixed64           DECIMAL(20)  enum      STRING, its name
    float double             FLOAT DOUBLE google.protobuf.Timestamp  TIMESTAMP; Wrappers such as Int64Value: their value

A field that was not set is NULL if the message can tell that it was not set (``optional``, messages, proto2). All other
fields of proto3 have their default, 0 or an empty text, as Protobuf defines it. Protobuf finds fields by their numbers.
So a record of an older or newer schema can be read: fields that the descriptors do not have are left out.

A record that was written with a schema registry begins with the id of its schema and the position of its message in
the schema's file. The message at this position must be the message of the source.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from headrace.pipeline.decoding.registry import HEADER_BYTES, SchemaRegistry, schema_id_of
from headrace.pipeline.decoding.value_batches import Gatherer, column_array
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.project.toml_files import did_you_mean
from headrace.protocol.wire.varints import LARGEST_TAG, BadVarint, read_uvarint

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql.types import DataType, StructType

    Read = Callable[[Any], object]

_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_WRAPPERS = frozenset(f"google.protobuf.{kind}Value" for kind in _WRAPPED)
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 50
#: The numbers of types in descriptors, and the names of Spark's classes of types.
_SCALARS = {
    1: "DoubleType", 2: "FloatType", 3: "LongType", 5: "IntegerType", 7: "LongType", 8: "BooleanType",
    9: "StringType", 12: "BinaryType", 13: "LongType", 14: "StringType", 15: "IntegerType", 16: "LongType",
    17: "IntegerType", 18: "LongType",
}  # fmt: skip
_ENUM, _UNSIGNED_LONGS = 14, (4, 6)


class UnsuitableProtobuf(ValueError):
    """The descriptors or the message cannot be converted to columns."""


def protobuf_columns(decode: Decode) -> StructType:
    """
    :raises UnsuitableProtobuf: if the message cannot be converted to columns.
    """
    return _struct(message_of(decode), 0)


def message_of(decode: Decode) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(decode.descriptor))
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        found = pool.FindMessageTypeByName(decode.message)
    except KeyError:
        names = [f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type]
        hint = did_you_mean(decode.message, [name for name in names if not name.startswith("google.protobuf.")])
        raise UnsuitableProtobuf(f"the descriptor file has no message {decode.message}{hint}") from None
    except (DecodeError, TypeError, ValueError) as error:
        advice = "write it with protoc --include_imports --descriptor_set_out=FILE"
        raise UnsuitableProtobuf(f"the descriptor file cannot be read: {error}; {advice}") from None
    return found


# --------------------------------------------------------------------------------------------------------- columns


def _struct(message: Any, depth: int) -> StructType:
    from pyspark.sql.types import StructField, StructType

    if depth > _MAX_DEPTH:
        raise UnsuitableProtobuf(f"the message {message.full_name} contains itself, which no column type can")
    return StructType([StructField(field.name, _type(field, depth)) for field in message.fields])


def _type(field: Any, depth: int) -> DataType:
    from pyspark.sql.types import ArrayType, MapType

    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_single_type(key, depth), _single_type(value, depth))
    single = _single_type(field, depth)
    return ArrayType(single) if _is_repeated(field) else single


def _single_type(field: Any, depth: int) -> DataType:
    from pyspark.sql import types

    message = field.message_type
    if message is not None and message.full_name == _TIMESTAMP:
        return types.TimestampType()
    if message is not None and _is_wrapper(message):
        return _single_type(message.fields_by_name["value"], depth)
    if message is not None:
        return _struct(message, depth + 1)
    made: DataType = types.DecimalType(20, 0)
    return made if field.type in _UNSIGNED_LONGS else getattr(types, _SCALARS[field.type])()


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _is_wrapper(message: Any) -> bool:
    return message.full_name in _WRAPPERS


# --------------------------------------------------------------------------------------------------------- reading


def protobuf_reader(decode: Decode) -> Callable[[bytes], object]:
    """Returns a function from the value of a record to a dict.

    :raises RegistryUnavailable: (the function) if the record's schema is needed and the registry does not answer.
    """
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    message = message_of(decode)
    parse = message_factory.GetMessageClass(message).FromString
    read_fields = _reader_of(message)
    registry = SchemaRegistry(decode.registry, decode.registry_options) if decode.registry else None
    check = _type_check(message)

    def read(value: bytes) -> object:
        if decode.framing == "confluent":
            value = unframed(value, message, registry)
        try:
            made = parse(value)
        except DecodeError as error:
            raise ValueError(f"the value is not a {message.full_name}: {error}") from None
        check(made)
        return read_fields(made)

    return read


def _type_check(message: Any) -> Callable[[Any], None]:
    """Returns a function that refuses messages in which a field has another type than in the descriptors.

    Protobuf keeps such a field among the fields that it does not know, and the field looks as if it was not set. Only
    the kind of encoding is compared: a number and a text differ, int32 and int64 do not.
    """
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    names = {field.number: field.name for field in message.fields}
    messages = [
        (field.name, _is_repeated(field), _lazy_check(field.message_type))
        for field in message.fields
        if field.message_type is not None and not _is_map(field)
    ]

    def check(made: Any) -> None:
        for each in UnknownFieldSet(made):
            if each.field_number in names:
                raise ValueError(f"{names[each.field_number]}: the record has another type than the descriptors")
        for name, is_repeated, check_inside in messages:
            if is_repeated:
                for each in getattr(made, name):
                    check_inside(each)
            elif made.HasField(name):
                check_inside(getattr(made, name))

    return check


def _lazy_check(message: Any) -> Callable[[Any], None]:
    made: list[Callable[[Any], None]] = []

    def check(value: Any) -> None:
        if not made:
            made.append(_type_check(message))
        made[0](value)

    return check


def protobuf_gatherer(decode: Decode, columns: StructType) -> Gatherer:
    """Reads many values (``value_batches``)."""
    from google.protobuf import message_factory

    message = message_of(decode)
    made_class = message_factory.GetMessageClass(message)
    parse = made_class.FromString
    registry = SchemaRegistry(decode.registry, decode.registry_options) if decode.registry else None
    check = _type_check(message)

    def read(value: bytes) -> Any:
        made = parse(value if decode.framing != "confluent" else unframed(value, message, registry))
        check(made)
        return made

    gathered = {
        name: _gather(message.fields_by_name[name], column_array(columns[name].dataType)) for name in columns.names
    }
    return Gatherer(read, made_class(), gathered)


def _gather(field: Any, make: Callable[[list[object]], pa.Array]) -> Callable[[list[Any]], pa.Array]:
    name, convert, get = field.name, _value_reader(field), attrgetter(field.name)
    is_plain = field.message_type is None and field.type != _ENUM and not _is_repeated(field)
    if field.has_presence and is_plain:
        return lambda messages: make([get(each) if each.HasField(name) else None for each in messages])
    if field.has_presence:
        return lambda messages: make([convert(get(each)) if each.HasField(name) else None for each in messages])
    if is_plain:
        return lambda messages: make(list(map(get, messages)))
    return lambda messages: make([convert(get(each)) for each in messages])


def unframed(value: bytes, message: Any, registry: SchemaRegistry | None) -> bytes:
    schema_id = schema_id_of(value)
    if registry is not None and (kind := registry.schema(schema_id).kind) != "PROTOBUF":
        raise ValueError(f"the schema with the id {schema_id} is of type {kind}, not PROTOBUF")
    varints = _varints(value, HEADER_BYTES)
    count, at = next(varints)
    path = [0] if count == 0 else []
    for _ in range(count):
        index, at = next(varints)
        path.append(index)
    name = _name_at(message.file, path)
    if name != message.full_name:
        raise ValueError(f"the record is a {name}, not a {message.full_name}")
    return value[at:]


def _varints(value: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yields numbers in zigzag encoding, each with the position after it."""
    while True:
        try:
            number, at = read_uvarint(value, at, LARGEST_TAG)
        except (IndexError, BadVarint):
            raise ValueError("the value ends within the position of its message") from None
        yield (number >> 1) ^ -(number & 1), at


def _name_at(file: Any, path: list[int]) -> str:
    """The message at a position: of the messages of the file, then of the messages inside of that message."""
    found, messages = "", list(file.message_types_by_name.values())
    for index in path:
        if not 0 <= index < len(messages):
            return f"message at the position {path}, which the descriptor file does not have"
        found, messages = messages[index].full_name, list(messages[index].nested_types)
    return found


def _reader_of(message: Any) -> Read:
    fields = [(field.name, bool(field.has_presence), _value_reader(field)) for field in message.fields]

    def read(made: Any) -> object:
        return {
            name: None if has_presence and not made.HasField(name) else convert(getattr(made, name))
            for name, has_presence, convert in fields
        }

    return read


def _value_reader(field: Any) -> Read:
    if _is_map(field):
        convert = _single_reader(field.message_type.fields_by_name["value"])
        return lambda value: {key: convert(each) for key, each in value.items()}
    convert = _single_reader(field)
    return (lambda value: [convert(each) for each in value]) if _is_repeated(field) else convert


def _single_reader(field: Any) -> Read:
    message = field.message_type
    if message is not None and message.full_name == _TIMESTAMP:
        return lambda value: _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if message is not None and _is_wrapper(message):
        return lambda value: value.value
    if message is not None:
        return _lazily(message)
    if field.type == _ENUM:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda value: names.get(value, str(value))
    return lambda value: value


def _lazily(message: Any) -> Read:
    made: list[Read] = []

    def read(value: Any) -> object:
        if not made:
            made.append(_reader_of(message))
        return made[0](value)

    return read
