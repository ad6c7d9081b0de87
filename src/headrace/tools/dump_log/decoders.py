"""The decoders of ``headrace dump-log``: keys and values as text, as numbers, or as records of internal topics.

A decoder takes a record and returns the ``key`` and ``payload`` to print; None is not printed. Decoders of single keys
and values have the names of Kafka's classes, with or without their package. Other Java classes cannot be loaded.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from headrace.protocol.errors import KafkaError
from headrace.protocol.internal_layouts import InternalTopic
from headrace.protocol.record_body import Record
from headrace.tools.dump_log.output import Json
from headrace.tools.shared.internal_json import UnknownType, read_internal

_INT32 = Struct(">i")
_INT64 = Struct(">q")
_DELETED = "<DELETE>"
#: The packages of Kafka's decoders, the present one and earlier ones.
_PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.")


class Decoded(NamedTuple):
    key: object
    payload: object


Decoder = Callable[[Record], Decoded]
Part = Callable[[bytes], object]


def by_class(key: Part, value: Part) -> Decoder:
    """Makes a decoder of two :data:`PARTS`: one for keys, one for values."""

    def decode(record: Record) -> Decoded:
        return Decoded(
            None if record.key is None else key(record.key), None if record.value is None else value(record.value)
        )

    return decode


def internal(topic: InternalTopic) -> Decoder:
    """Makes a decoder for an internal topic.

    It prints an error, in Kafka's words, in place of a key that it cannot read.
    """

    def decode(record: Record) -> Decoded:
        if record.key is None:
            return Decoded(f"Error at offset {record.offset}, skipping. The record has no key", None)
        try:
            read = read_internal(topic, record.key, record.value, reads_members=True)
        except UnknownType as error:
            return Decoded(f"{error} at offset {record.offset}, skipping.", None)
        except KafkaError as error:
            return Decoded(f"Error at offset {record.offset}, skipping. {error}", None)
        key = Json({"type": str(read.type.number), "data": read.key})
        if read.value is None:
            return Decoded(key, _DELETED)
        return Decoded(key, Json({"version": str(read.value_version), "data": read.value}))

    return decode


def _number(layout: Struct) -> Part:
    def read(data: bytes) -> object:
        return layout.unpack(data)[0] if len(data) == layout.size else f"not {layout.size} bytes: {data!r}"

    return read


def _as_is(data: bytes) -> object:
    return data


PARTS: dict[str, Part] = {
    "StringDecoder": _as_is,
    "DefaultDecoder": _as_is,
    "IntegerDecoder": _number(_INT32),
    "LongDecoder": _number(_INT64),
}


def part_named(name: str) -> Part:
    """An argparse type."""
    for package in _PACKAGES:
        name = name.removeprefix(package)
    if name not in PARTS:
        raise ArgumentTypeError(f"there is no decoder {name}; there are {', '.join(PARTS)}")
    return PARTS[name]
