"""The formatters of ``headrace console-consumer``: Kafka's formatters, by short names or by the names of their classes.

===================  ================================================================================================
``default``          the value; properties add time, partition, offset, epoch, headers and key before the value
``logging``          the same as a log line
``no-op``            nothing, for a count only
``offsets``          committed offsets of ``__consumer_offsets``, as JSON; other records are skipped
``group-metadata``   classic groups of ``__consumer_offsets``, as JSON
``transaction-log``  transactional ids of ``__transaction_state``, as JSON
``json``             the whole record as JSON; ``--json`` uses this formatter
===================  ================================================================================================

A formatter takes a record and returns the bytes of its lines. Keys and values that are not text are printed as their
bytes. Kafka's tool prints the JSON of internal records without line ends; our command prints one line per record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from struct import Struct
from uuid import UUID

from headrace.client.types import ConsumedRecord, TimestampType
from headrace.protocol.internal_layouts import InternalTopic, RecordType
from headrace.tools.dump_log.output import json_value
from headrace.tools.shared.internal_json import UnknownType, read_internal

Formatter = Callable[[ConsumedRecord], bytes]
Part = Callable[[bytes], bytes]

_TIME_NAMES = {TimestampType.create_time: "CreateTime", TimestampType.log_append_time: "LogAppendTime"}
_DEFAULTS = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}
#: Kafka's help names header.deserializer, but Kafka's code reads headers.deserializer.
_ALIASES = {"header.deserializer": "headers.deserializer"}


# ---------------------------------------------------------------------------------------------------- deserializers


def _number(layout: Struct, show: Callable[[object], str] = str) -> Part:
    def read(data: bytes) -> bytes:
        if len(data) != layout.size:
            raise ValueError(f"Size of data received by the deserializer is not {layout.size} but {len(data)}")
        return show(layout.unpack(data)[0]).encode()

    return read


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"no boolean: {data!r}")
    return b"true" if data == b"\1" else b"false"


def _uuid(data: bytes) -> bytes:
    return str(UUID(data.decode())).encode()


def _void(data: bytes) -> bytes:
    raise ValueError(f"data should be null for a void deserializer, not {data!r}")


def _as_is(data: bytes) -> bytes:
    return data


DESERIALIZERS: dict[str, Part] = {
    "String": _as_is,
    "ByteArray": _as_is,
    "Bytes": _as_is,
    "ByteBuffer": _as_is,
    "Short": _number(Struct(">h")),
    "Integer": _number(Struct(">i")),
    "Long": _number(Struct(">q")),
    "Float": _number(Struct(">f")),
    "Double": _number(Struct(">d")),
    "Boolean": _boolean,
    "UUID": _uuid,
    "Void": _void,
}


#: Deserializers whose results have a JSON type of their own.
_JSON_VALUES = frozenset({"Short", "Integer", "Long", "Float", "Double", "Boolean"})


def deserializer_named(name: str) -> Part:
    """
    :raises ValueError: if there is no such deserializer.
    """
    short = _short(name)
    if not name:
        return _as_is
    if short not in DESERIALIZERS:
        raise ValueError(f"there is no deserializer {name}; there are {', '.join(DESERIALIZERS)}")
    return DESERIALIZERS[short]


def _short(name: str) -> str:
    return name.rpartition(".")[2].removesuffix("Deserializer")


def _json_reader(name: str) -> Callable[[bytes | None], object]:
    """Returns the JSON value of a part: numbers and booleans as such, all else as text."""
    read = deserializer_named(name)

    def value(data: bytes | None) -> object:
        text = None if data is None else read(data)
        if text is None or _short(name) not in _JSON_VALUES:
            return json_value(text)
        try:
            return json.loads(text)
        except ValueError:  # JSON has no nan and no inf.
            return json_value(text)

    return value


# ------------------------------------------------------------------------------------------------------- formatters


def default_formatter(properties: Mapping[str, str]) -> Formatter:
    """
    :raises ValueError: if a property does not exist.
    """
    given = _without_aliases(properties)
    unknown = sorted(
        name for name in given if name not in _DEFAULTS and not name.startswith(("key.", "value.", "headers."))
    )
    if unknown:
        raise ValueError(f"there is no formatter property {unknown[0]}; there are {', '.join(_DEFAULTS)}")
    found = _DEFAULTS | given
    shown = [part for name, part in _parts(found) if found[name].strip().lower() == "true"]
    between, end = found["key.separator"].encode(), found["line.separator"].encode()

    def show(record: ConsumedRecord) -> bytes:
        return between.join([part(record) for part in shown]) + end

    return show


def _without_aliases(properties: Mapping[str, str]) -> dict[str, str]:
    return {_ALIASES.get(name, name): value for name, value in properties.items()}


def _parts(properties: Mapping[str, str]) -> list[tuple[str, Formatter]]:
    """The parts that may be printed, in order, each with the property that enables it."""
    null = properties["null.literal"].encode()
    read_key, read_value, read_header = (
        deserializer_named(properties[f"{name}.deserializer"]) for name in ("key", "value", "headers")
    )
    header_end = properties["headers.separator"].encode()

    def headers(record: ConsumedRecord) -> bytes:
        return header_end.join(
            name.encode("utf-8", "surrogateescape") + b":" + (null if content is None else read_header(content))
            for name, content in record.headers
        ) or b"NO_HEADERS"  # fmt: skip

    return [
        ("print.timestamp", _timestamp),
        ("print.partition", lambda record: b"Partition:%d" % record.partition),
        ("print.offset", lambda record: b"Offset:%d" % record.offset),
        ("print.epoch", _epoch),
        ("print.headers", headers),
        ("print.key", lambda record: null if record.key is None else read_key(record.key)),
        ("print.value", lambda record: null if record.value is None else read_value(record.value)),
    ]  # fmt: skip


def _timestamp(record: ConsumedRecord) -> bytes:
    if record.timestamp_ms < 0:
        return b"NO_TIMESTAMP"
    return f"{_TIME_NAMES[record.timestamp_type]}:{record.timestamp_ms}".encode()


def _epoch(record: ConsumedRecord) -> bytes:
    return b"Epoch:%d" % record.leader_epoch if record.leader_epoch >= 0 else b"Epoch:NOT_PRESENT"


def logging_formatter(_: Mapping[str, str]) -> Formatter:
    def show(record: ConsumedRecord) -> bytes:
        key, value = (b"null" if part is None else part for part in (record.key, record.value))
        time = b"" if record.timestamp_ms < 0 else _timestamp(record) + b", "
        return time + b"key:" + key + b", value:" + value + b"\n"

    return show


def no_op_formatter(_: Mapping[str, str]) -> Formatter:
    return lambda _: b""


def json_formatter(properties: Mapping[str, str]) -> Formatter:
    """Prints the whole record. It uses the properties for deserializers only.

    :raises ValueError: if there is no such deserializer.
    """
    given = _without_aliases(properties)
    key, value, header = (_json_reader(given.get(f"{name}.deserializer", "")) for name in ("key", "value", "headers"))

    def show(record: ConsumedRecord) -> bytes:
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestampType": _TIME_NAMES[record.timestamp_type],
            "leaderEpoch": record.leader_epoch,
            "headers": [[json_value(name), header(content)] for name, content in record.headers],
            "key": key(record.key),
            "value": value(record.value),
        }
        return f"{json.dumps(fields)}\n".encode()

    return show


def _internal_formatter(topic: InternalTopic, *types: RecordType) -> Callable[[Mapping[str, str]], Formatter]:
    def show(record: ConsumedRecord) -> bytes:
        if record.key is None:
            return b""
        try:
            read = read_internal(topic, record.key, record.value)
        except UnknownType:
            return b""
        if read.type not in types:
            return b""
        value = None if read.value is None else {"version": read.value_version, "data": read.value}
        shown = {"key": {"type": read.type.number, "data": read.key}, "value": value}
        return f"{json.dumps(shown, separators=(',', ':'), ensure_ascii=False)}\n".encode()

    return lambda _: show


FORMATTERS: dict[str, Callable[[Mapping[str, str]], Formatter]] = {
    "default": default_formatter,
    "logging": logging_formatter,
    "no-op": no_op_formatter,
    "json": json_formatter,
    "offsets": _internal_formatter(
        InternalTopic.CONSUMER_OFFSETS, RecordType.OFFSET_COMMIT, RecordType.LEGACY_OFFSET_COMMIT
    ),
    "group-metadata": _internal_formatter(InternalTopic.CONSUMER_OFFSETS, RecordType.GROUP_METADATA),
    "transaction-log": _internal_formatter(InternalTopic.TRANSACTION_STATE, RecordType.TRANSACTION),
}
#: The names of Kafka's classes, in every package that ever had them.
_CLASSES = {
    "DefaultMessageFormatter": "default",
    "LoggingMessageFormatter": "logging",
    "NoOpMessageFormatter": "no-op",
    "OffsetsMessageFormatter": "offsets",
    "GroupMetadataMessageFormatter": "group-metadata",
    "TransactionLogMessageFormatter": "transaction-log",
}


def formatter_named(name: str, properties: Mapping[str, str]) -> Formatter:
    """
    :raises ValueError: if there is no such formatter, or if the formatter does not know a property.
    """
    short = name.replace("$", ".").rpartition(".")[2]
    make = FORMATTERS.get(_CLASSES.get(short, name))
    if make is None:
        raise ValueError(f"there is no formatter {name}; there are {', '.join(FORMATTERS)}")
    return make(properties)
