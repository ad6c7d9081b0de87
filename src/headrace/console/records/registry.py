"""Decodes values that were written with a schema registry: Avro, Protobuf and JSON Schema.

Such a value begins with five bytes: a zero, and the id of its schema. The registry is the one of ``--registry``; no
address comes from a record. Schemas are kept, because the schema of an id never changes. If the registry does not
answer, it is not asked again for some seconds, so that a page of many records does not wait for each of them.

Everything here blocks: callers run it on a thread.
"""

from __future__ import annotations

import base64
import io
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any
from urllib.parse import quote

from headrace.pipeline.decoding.registry import (
    HEADER_BYTES,
    RegistryUnavailable,
    SchemaRegistry,
    UnknownSchema,
    schema_id_of,
)
from headrace.protocol.wire.varints import LARGEST_TAG, BadVarint, read_uvarint

_ASK_AGAIN_AFTER_SECONDS = 10.0
_MOST_SCHEMAS = 500
_MOST_REFERENCES = 100
_MOST_INDEXES = 50
_Read = Callable[[bytes], Any]


class NotDecoded(ValueError):
    """The value cannot be decoded with the registry; the message says why."""


class _Registry(SchemaRegistry):
    """The client of the pipeline's sources, which also asks for compiled Protobuf schemas."""

    def descriptors(self, schema_id: int) -> list[tuple[str, bytes]]:
        """The descriptors of a Protobuf schema by name, each after those it needs. The last one is the schema's own."""
        found: dict[str, bytes] = {}
        answer = self._serialized(f"/schemas/ids/{schema_id}")
        self._add_descriptors(answer, found)
        return [*found.items(), (f"headrace-console-{schema_id}.proto", base64.b64decode(answer["schema"]))]

    def _add_descriptors(self, answer: Mapping[str, Any], found: dict[str, bytes]) -> None:
        for each in answer.get("references") or ():
            if each["name"] in found:
                continue
            if len(found) >= _MOST_REFERENCES:
                raise UnknownSchema(f"a schema of the registry refers to more than {_MOST_REFERENCES} others")
            subject, version = quote(each["subject"], safe=""), int(each["version"])
            referred = self._serialized(f"/subjects/{subject}/versions/{version}")
            self._add_descriptors(referred, found)
            found[str(each["name"])] = base64.b64decode(referred["schema"])

    def _serialized(self, path: str) -> Mapping[str, Any]:
        answer = self._get(f"{path}?format=serialized")
        if answer is None:
            raise UnknownSchema(f"the registry has no {path}")
        return answer


class RecordSchemas:
    """The schemas of one console."""

    def __init__(self, url: str) -> None:
        self._registry = _Registry(url)
        self._readers: OrderedDict[int, tuple[str, _Read]] = OrderedDict()
        self._away_until = 0.0
        self._away = ""
        self._lock = Lock()

    def decode(self, data: bytes) -> tuple[str, Any]:
        """Returns the kind of the schema, and the document.

        :raises NotDecoded: if the registry does not answer, does not know the schema, or the bytes do not fit it.
        """
        schema_id = schema_id_of(data)
        with self._lock:
            kind, read = self._reader(schema_id)
        try:
            return kind, read(data)
        except ImportError as error:
            raise NotDecoded(f"{error.name} is missing: run pip install 'headrace[registry]'") from None
        except Exception as error:  # noqa: BLE001  fastavro and protobuf fail in many ways on bytes that do not fit
            raise NotDecoded(f"schema {schema_id} ({kind}): {type(error).__name__}: {str(error)[:200]}") from None

    def _reader(self, schema_id: int) -> tuple[str, _Read]:
        known = self._readers.get(schema_id)
        if known is not None:
            return known
        if time.monotonic() < self._away_until:
            raise NotDecoded(self._away)
        try:
            made = self._make(schema_id)
        except RegistryUnavailable as error:
            self._away_until, self._away = time.monotonic() + _ASK_AGAIN_AFTER_SECONDS, str(error)
            raise NotDecoded(str(error)) from None
        except ImportError as error:
            raise NotDecoded(f"{error.name} is missing: run pip install 'headrace[registry]'") from None
        except Exception as error:  # noqa: BLE001  a schema of somebody else's, in three languages
            raise NotDecoded(f"schema {schema_id}: {str(error)[:200]}") from None
        self._readers[schema_id] = made
        if len(self._readers) > _MOST_SCHEMAS:
            self._readers.popitem(last=False)
        return made

    def _make(self, schema_id: int) -> tuple[str, _Read]:
        schema = self._registry.schema(schema_id)
        if schema.kind == "AVRO":
            return "avro", _avro_reader(schema.text, schema.references)
        if schema.kind == "PROTOBUF":
            return "protobuf", _protobuf_reader(self._registry.descriptors(schema_id))
        return "json schema", lambda data: json.loads(data[HEADER_BYTES:])


def _avro_reader(text: str, references: Mapping[str, str]) -> _Read:
    from fastavro import schemaless_reader

    from headrace.pipeline.decoding.avro_columns import parsed_avro

    parsed = parsed_avro(text, references)

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        found = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
        return found

    return read


def _protobuf_reader(descriptors: list[tuple[str, bytes]]) -> _Read:
    from google.protobuf import json_format, message_factory  # type: ignore[import-untyped]

    file = _file_of(descriptors)

    def read(data: bytes) -> Any:
        path, at = _message_path(data)
        message = list(file.message_types_by_name.values())[path[0]]
        for index in path[1:]:
            message = message.nested_types[index]
        made = message_factory.GetMessageClass(message).FromString(data[at:])
        return json_format.MessageToDict(made, preserving_proto_field_name=True)

    return read


def _file_of(descriptors: list[tuple[str, bytes]]) -> Any:
    """The file of the last descriptor, in a pool that has all of them and Google's own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool, google = descriptor_pool.DescriptorPool(), _google_files()
    added: set[str] = set()
    name = ""
    for name, data in descriptors:
        made = descriptor_pb2.FileDescriptorProto.FromString(data)
        made.name = name
        for needed in made.dependency:
            if needed in google and needed not in added:
                pool.AddSerializedFile(google[needed])
                added.add(needed)
        pool.AddSerializedFile(made.SerializeToString())
        added.add(name)
    return pool.FindFileByName(name)


def _google_files() -> dict[str, bytes]:
    """The files that schemas import without a reference."""
    from google.protobuf import (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    return {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in modules}


def _message_path(data: bytes) -> tuple[list[int], int]:
    """The position of the message in its file, which follows the id, and where the message begins."""
    numbers: list[int] = []
    at, count = HEADER_BYTES, -1
    while count < 0 or len(numbers) < count:
        try:
            number, at = read_uvarint(data, at, LARGEST_TAG)
        except (IndexError, BadVarint):
            raise ValueError("the value ends within the position of its message") from None
        number = (number >> 1) ^ -(number & 1)
        if not 0 <= number <= _MOST_INDEXES:
            raise ValueError(f"the position of its message has the number {number}")
        if count < 0:
            count = number
        else:
            numbers.append(number)
    return numbers or [0], at
