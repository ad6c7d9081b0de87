"""Writes the descriptor of a Protobuf file as ``.proto`` text.

The text has everything that decides how messages are encoded, and the common options. It does not have custom options
and comments. To find out whether something is missing, compile the text, and compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_STRING, _GROUP, _MESSAGE, _BYTES, _ENUM = 9, 10, 11, 12, 14
_MAX_FIELD = 536_870_912
_MAX_ENUM = 2_147_483_647


def proto_text(file: Any) -> str:
    syntax = file.syntax or "proto2"
    lines = [f'syntax = "{syntax}";']
    if file.package:
        lines.append(f"package {file.package};")
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    if file.dependency:
        lines.append("")
    for at, name in enumerate(file.dependency):
        kind = "public " if at in public else "weak " if at in weak else ""
        lines.append(f"import {kind}{_quoted(name)};")
    options = list(_options(file.options))
    if options:
        lines += ["", *(f"option {each};" for each in options)]
    for message in file.message_type:
        lines += ["", *_message(message, syntax)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    lines += _extensions(file.extension, syntax)
    for service in file.service:
        lines += ["", *_service(service)]
    return "\n".join(lines) + "\n"


def _message(message: Any, syntax: str) -> Iterator[str]:
    yield f"message {message.name} {{"
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    yield from _indented(f"option {each};" for each in _options(message.options, leave_out=("map_entry",)))
    oneofs: dict[int, list[Any]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneofs.setdefault(field.oneof_index, []).append(field)
    written: set[int] = set()
    for field in message.field:
        index = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
        if index is None:
            yield f"  {_field(field, syntax, maps)}"
        elif index not in written:
            written.add(index)
            yield f"  oneof {message.oneof_decl[index].name} {{"
            yield from (f"    {_field(each, syntax, maps, is_in_oneof=True)}" for each in oneofs[index])
            yield "  }"
    yield from _indented(_reserved(message, _MAX_FIELD))
    yield from _indented(
        f"extensions {each.start} to {_end(each.end, _MAX_FIELD)};" for each in message.extension_range
    )
    for nested in message.nested_type:
        if nested.name not in maps:
            yield from _indented(_message(nested, syntax))
    for enum in message.enum_type:
        yield from _indented(_enum(enum))
    yield from _indented(_extensions(message.extension, syntax))
    yield "}"


def _field(field: Any, syntax: str, maps: dict[str, Any], *, is_in_oneof: bool = False) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type == _MESSAGE else None
    if entry is not None:
        kind, label = f"map<{_type(entry.field[0])}, {_type(entry.field[1])}>", ""
    else:
        kind = _type(field)
        label = "" if is_in_oneof else _label(field, syntax)
    options = list(_options(field.options))
    if field.HasField("default_value"):
        options.insert(0, f"default = {_default(field)}")
    if field.HasField("json_name") and field.json_name != _json_name(field.name):
        options.append(f"json_name = {_quoted(field.json_name)}")
    suffix = f" [{', '.join(options)}]" if options else ""
    return f"{label}{kind} {field.name} = {field.number}{suffix};"


def _label(field: Any, syntax: str) -> str:
    if field.label == _REPEATED:
        return "repeated "
    if field.label == _REQUIRED:
        return "required "
    return "optional " if syntax == "proto2" or field.proto3_optional else ""


def _type(field: Any) -> str:
    return str(field.type_name) if field.type in (_MESSAGE, _ENUM, _GROUP) else _TYPES[field.type]


def _default(field: Any) -> str:
    if field.type == _STRING:
        return _quoted(field.default_value)
    return f'"{field.default_value}"' if field.type == _BYTES else str(field.default_value)


def _enum(enum: Any) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from _indented(f"option {each};" for each in _options(enum.options))
    for value in enum.value:
        options = list(_options(value.options))
        suffix = f" [{', '.join(options)}]" if options else ""
        yield f"  {value.name} = {value.number}{suffix};"
    # The last number of a range of an enum is part of it. In messages it is not.
    yield from _indented(_reserved(enum, _MAX_ENUM, is_enum=True))
    yield "}"


def _reserved(thing: Any, last: int, *, is_enum: bool = False) -> Iterator[str]:
    for each in thing.reserved_range:
        end = ("max" if each.end == last else str(each.end)) if is_enum else _end(each.end, last)
        yield f"reserved {each.start};" if end == str(each.start) else f"reserved {each.start} to {end};"
    if thing.reserved_name:
        yield f"reserved {', '.join(_quoted(name) for name in thing.reserved_name)};"


def _end(end: int, last: int) -> str:
    return "max" if end >= last else str(end - 1)


def _extensions(extensions: Iterable[Any], syntax: str) -> list[str]:
    lines: list[str] = []
    for field in extensions:
        lines += ["", f"extend {field.extendee} {{", f"  {_field(field, syntax, {})}", "}"]
    return lines


def _service(service: Any) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        given = ("stream " if method.client_streaming else "") + method.input_type
        returned = ("stream " if method.server_streaming else "") + method.output_type
        yield f"  rpc {method.name} ({given}) returns ({returned});"
    yield "}"


def _options(options: Any, leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    for descriptor, value in options.ListFields():
        if descriptor.is_extension or descriptor.message_type is not None or descriptor.name in leave_out:
            continue
        if descriptor.enum_type is not None:
            yield f"{descriptor.name} = {descriptor.enum_type.values_by_number[value].name}"
        elif isinstance(value, bool):
            yield f"{descriptor.name} = {str(value).lower()}"
        elif isinstance(value, str):
            yield f"{descriptor.name} = {_quoted(value)}"


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" if line else line for line in lines)
