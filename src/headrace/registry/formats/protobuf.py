"""Parses Protobuf schemas: ``.proto`` texts, and the base64 of descriptors, which Python's serializer sends.

The registry stores text, as Confluent's does. Descriptors are written as text (``proto_text.py``), and the text is
compiled again. If the result differs, for example because of an option that the registry does not know, the registry
stores the base64 as it came: Confluent's and Karapace's registries read both.

Two schemas are the same if their descriptors are, apart from the name of the file, comments, and names for JSON that
follow from the names of fields.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.registry.formats import protoc
from headrace.registry.formats.parsing import InvalidSchema, Parsed, Resolved
from headrace.registry.formats.proto_text import proto_text
from headrace.registry.schemas import PROTOBUF

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

_WELL_KNOWN = ("google/protobuf/", "google/type/")


class ProtobufContent:
    """
    :ivar file: the descriptor of the schema.
    :ivar dependencies: the descriptors of the schemas that it refers to.
    """

    def __init__(self, file: FileDescriptorProto, dependencies: list[FileDescriptorProto]) -> None:
        self.file = file
        self.dependencies = dependencies


def parse(resolved: Resolved) -> Parsed:
    """
    :raises InvalidSchema: if it is not a Protobuf schema.
    """
    dependencies: list[FileDescriptorProto] = []
    for name, dependency in resolved.dependencies:
        if dependency.kind != PROTOBUF:
            raise InvalidSchema(f"the reference {name} is not a Protobuf schema")
        if name == protoc.FILE_NAME:
            raise InvalidSchema(f"a reference cannot have the name {name}")
        if not any(each.name == name for each in dependencies):
            file = _file(dependency.text, tuple(each.SerializeToString() for each in dependencies))
            file.name = name
            dependencies.append(file)
    before = tuple(each.SerializeToString() for each in dependencies)
    text = resolved.schema.text
    file = _file(text, before)
    identity = _identity(file)
    stored = text.strip()
    if _descriptor_bytes(text) is not None:
        stored = _as_text(file, identity, before) or stored
    content = ProtobufContent(file, dependencies)
    return Parsed(PROTOBUF, stored, identity, lambda: _as_text(file, identity, before) or stored, content)


def serialized(parsed: Parsed) -> str:
    """The descriptor in base64."""
    return base64.b64encode(parsed.content.file.SerializeToString()).decode()


def _file(text: str, dependencies: tuple[bytes, ...]) -> FileDescriptorProto:
    """A new copy of the descriptor of a text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(_compiled(text, dependencies))


@lru_cache(maxsize=500)
def _compiled(text: str, dependencies: tuple[bytes, ...]) -> bytes:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    files = [FileDescriptorProto.FromString(each) for each in dependencies]
    data = _descriptor_bytes(text)
    if data is None:
        file = protoc.compile_text(text, files)
    else:
        file = FileDescriptorProto.FromString(data)
        _check(file, files)
    file.ClearField("source_code_info")
    file.name = protoc.FILE_NAME
    return bytes(file.SerializeToString(deterministic=True))


def _descriptor_bytes(text: str) -> bytes | None:
    """The bytes of a descriptor, if the text is one in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return data


def _check(file: FileDescriptorProto, dependencies: list[FileDescriptorProto]) -> None:
    """Checks a descriptor that no compiler has made."""
    from google.protobuf import descriptor_pool  # type: ignore[import-untyped]

    pool = descriptor_pool.DescriptorPool()
    known = {each.name: each for each in dependencies}
    try:
        for name in file.dependency:
            _add(pool, name, known)
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidSchema(f"it is not a Protobuf schema: {str(error)[:300]}") from None


def _add(pool: Any, name: str, known: dict[str, FileDescriptorProto]) -> None:
    from google.protobuf import descriptor_pool
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = known.pop(name, None)
    if file is None:
        if not name.startswith(_WELL_KNOWN):
            return  # added before, or missing: then the pool refuses the file that needs it
        _import_well_known(name)
        file = FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    for needed in file.dependency:
        _add(pool, needed, known)
    pool.Add(file)


def _import_well_known(name: str) -> None:
    """Loads the module that adds a well-known file to the default pool."""
    from importlib import import_module

    try:
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise InvalidSchema(f"the import {name} is unknown; register it, and refer to it") from None


def _identity(file: FileDescriptorProto) -> str:
    copy = type(file)()
    copy.CopyFrom(file)
    copy.name = ""
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    for message in _messages(copy.message_type):
        for field in (*message.field, *message.extension):
            field.ClearField("json_name")
    for extension in copy.extension:
        extension.ClearField("json_name")
    return base64.b64encode(copy.SerializeToString(deterministic=True)).decode()


def _messages(found: Any) -> list[Any]:
    return [each for message in found for each in (message, *_messages(message.nested_type))]


def _as_text(file: FileDescriptorProto, identity: str, dependencies: tuple[bytes, ...]) -> str | None:
    """The text of a descriptor; None if the text would not be the same schema."""
    text = proto_text(file)
    try:
        again = _file(text, dependencies)
    except InvalidSchema:
        return None
    return text if _identity(again) == identity else None
