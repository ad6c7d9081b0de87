"""Compares Protobuf schemas by what Protobuf's guide calls safe changes of a message type.

A message is found by its name, a field by its number. These changes break readers:

- the package changes: the full names of all messages change with it
- a message is removed
- a field gets a type with another encoding. Interchangeable are int32, uint32, int64, uint64 and bool; sint32 and
  sint64; string and bytes; fixed32 and sfixed32; fixed64 and sfixed64; and enums with the first group
- a field of a message type gets another message
- a field of numbers changes between one value and several
- a required field is added or removed
- a field of a oneof is removed, or two fields that were independent move into a oneof

Everything else is compatible: fields and messages that are added, fields that are removed or renamed, enums.
"""

from __future__ import annotations

from typing import Any

from headrace.registry.formats.protobuf import ProtobufContent

_GROUPS = (
    frozenset({3, 4, 5, 8, 13, 14}),  # int64 uint64 int32 bool uint32 enum
    frozenset({17, 18}),  # sint32 sint64
    frozenset({9, 12}),  # string bytes
    frozenset({7, 15}),  # fixed32 sfixed32
    frozenset({6, 16}),  # fixed64 sfixed64
)
_MESSAGES = (10, 11)
_TEXTS = (9, 12)
_REQUIRED, _REPEATED = 2, 3


def problems(reader: ProtobufContent, writer: ProtobufContent) -> list[str]:
    return _Comparison(reader, writer).compare()


class _Comparison:
    """Compares the messages of two schemas. A pair of messages is compared once, so recursive messages end."""

    def __init__(self, reader: ProtobufContent, writer: ProtobufContent) -> None:
        self._reader, self._writer = _messages(reader), _messages(writer)
        self._writer_main = _names(writer.file.message_type, "")
        self._packages = reader.file.package, writer.file.package
        self._compared: set[tuple[str, str]] = set()
        self._found: list[str] = []

    def compare(self) -> list[str]:
        package, before = self._packages
        if package != before:
            return [f"the package changes from {before or 'none'} to {package or 'none'}"]
        for name in self._writer_main:
            full_name = f"{_prefix(package)}.{name}"
            if full_name in self._reader:
                self._message(full_name, full_name)
            elif not self._writer[full_name].options.map_entry:
                self._found.append(f"the message {name} was removed")
        return self._found

    def _message(self, reader_name: str, writer_name: str) -> None:
        if (reader_name, writer_name) in self._compared:
            return
        self._compared.add((reader_name, writer_name))
        reader, writer = self._reader.get(reader_name), self._writer.get(writer_name)
        if reader is None or writer is None:
            return  # a type of Google's, which does not change
        name = reader_name.lstrip(".")
        fields, written = _fields(reader), _fields(writer)
        for number, field in fields.items():
            if number in written:
                self._field(name, field, written[number])
            elif field.label == _REQUIRED:
                self._found.append(f"the required field {name}.{field.name} ({number}) was added")
        for number, field in written.items():
            if number in fields:
                continue
            if field.label == _REQUIRED:
                self._found.append(f"the required field {name}.{field.name} ({number}) was removed")
            elif _oneof(field) is not None:
                self._found.append(f"the field {name}.{field.name} ({number}) of a oneof was removed")
        self._oneofs(name, reader, writer)

    def _field(self, message: str, reader: Any, writer: Any) -> None:
        place = f"the field {message}.{reader.name} ({reader.number})"
        if reader.type in _MESSAGES and writer.type in _MESSAGES:
            if reader.type_name != writer.type_name:
                self._found.append(
                    f"{place} is of type {reader.type_name.lstrip('.')}, and was {writer.type_name.lstrip('.')}"
                )
            else:
                self._message(reader.type_name, writer.type_name)
        elif reader.type != writer.type and not any({reader.type, writer.type} <= group for group in _GROUPS):
            self._found.append(f"{place} has a type with another encoding")
        if (reader.label == _REPEATED) != (writer.label == _REPEATED) and reader.type not in (*_TEXTS, *_MESSAGES):
            self._found.append(f"{place} changes between one value and several")
        if (reader.label == _REQUIRED) != (writer.label == _REQUIRED):
            self._found.append(f"{place} changes between required and optional")

    def _oneofs(self, name: str, reader: Any, writer: Any) -> None:
        written = _fields(writer)
        for index, oneof in enumerate(reader.oneof_decl):
            members = [field for field in reader.field if _oneof(field) == index]
            before = [written[field.number] for field in members if field.number in written]
            independent = [field for field in before if _oneof(field) is None]
            groups = {writer.oneof_decl[field.oneof_index].name for field in before if _oneof(field) is not None}
            if len(independent) + len(groups) > 1:
                self._found.append(f"several fields of {name} moved into the oneof {oneof.name}")


def _prefix(package: str) -> str:
    return f".{package}" if package else ""


def _names(messages: Any, prefix: str) -> list[str]:
    found: list[str] = []
    for message in messages:
        found.append(prefix + message.name)
        found += _names(message.nested_type, f"{prefix}{message.name}.")
    return found


def _messages(content: ProtobufContent) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in (content.file, *content.dependencies):
        _collect(file.message_type, _prefix(file.package), found)
    return found


def _collect(messages: Any, prefix: str, found: dict[str, Any]) -> None:
    for message in messages:
        found[f"{prefix}.{message.name}"] = message
        _collect(message.nested_type, f"{prefix}.{message.name}", found)


def _fields(message: Any) -> dict[int, Any]:
    return {field.number: field for field in message.field}


def _oneof(field: Any) -> int | None:
    """The oneof of a field. The oneof that the compiler makes for an optional field of proto3 is none."""
    return int(field.oneof_index) if field.HasField("oneof_index") and not field.proto3_optional else None
