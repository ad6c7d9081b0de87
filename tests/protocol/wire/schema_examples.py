"""Messages of every API and version that kio has, each as the dict that we encode and the entity that kio should read.

What a value is, is drawn from a seeded ``Random``: nulls, defaults that are left out of the dict, empty and short
arrays, the ends of each integer's range, tagged fields given or not.
"""

from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import ErrorCode, api_key_map, load_request_schema, load_response_schema
from headrace.protocol.kio import versions_of as kio_versions_of
from headrace.protocol.wire.schema_fields import FieldKind

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
_STRINGS = ("", "t", "orders.v2", "Zürich 中文 \U0001f30a", "x" * 127, "y" * 128, "z" * 300)
_BLOBS = (b"", b"\x00", bytes(range(256)), b"\xff" * 127)


def all_versions():
    return [(api, version) for api in Api for version in versions_of(api)]


def all_schemas():
    """All schemas of kio, whether ``Api`` names the API or not."""
    for api_key in sorted(api_key_map):
        for version in kio_versions_of(api_key):
            yield load_request_schema(api_key, version)
            yield load_response_schema(api_key, version)


def example(schema, random):
    """(our dict, kio's entity)"""
    given, entity_fields = {}, {}
    for field in fields(schema):
        kind = FieldKind(field)
        if field.default is not MISSING and random.random() < 0.3:
            entity_fields[field.name] = field.default
            continue  # left out of the dict
        ours, theirs = _value(field, kind, random)
        entity_fields[field.name] = theirs
        if theirs != field.default or kind.entity is None:  # we would write such an entity, and kio would not
            given[field.name] = ours
    return given, schema(**entity_fields)


def _value(field, kind, random):
    # A tagged field cannot be null on the wire: only an absent field whose default is null means that.
    is_nullable = kind.is_nullable and (kind.tag is None or field.default is None)
    if is_nullable and random.random() < 0.3:
        return -1 if kind.kafka_type == "datetime_i64" else None, None
    if kind.is_array:
        pairs = [_one(kind, random) for _ in range(random.choice((0, 1, 3)))]
        return [ours for ours, _ in pairs], tuple(theirs for _, theirs in pairs)
    return _one(kind, random)


def _one(kind, random):
    if kind.entity is not None:
        return example(kind.entity, random)
    match kind.kafka_type:
        case "string":
            same = random.choice(_STRINGS)
        case "bytes" | "records":
            same = random.choice(_BLOBS)
        case "bool":
            same = random.random() < 0.5
        case "float64":
            same = random.choice((0.0, -1.5, 1e300))
        case "uuid":
            same = UUID(int=random.randrange(1, 2**128))
        case "error_code":
            code = random.choice(list(ErrorCode))
            return int(code), code
        case "timedelta_i32" | "timedelta_i64":
            milliseconds = random.choice((0, 1, 30_000, 2**31 - 1))
            return milliseconds, timedelta(milliseconds=milliseconds)
        case "datetime_i64":
            milliseconds = random.choice((0, 1, 1_700_000_000_123))
            return milliseconds, datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)
        case name:
            bits = _INTEGER_BITS[name]
            low, high = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            same = random.choice((low, high, 0, 1))
    return same, same


def seeded(*seed):
    return Random(repr(seed))


def run(steps):
    """Runs a generator to its end; returns its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
