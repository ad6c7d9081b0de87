"""Encodes messages from plain dicts, by functions compiled from kio's schemas.

kio decodes natively, but encodes with one closure per field: about 10 µs per nested entity, and only from its own
dataclasses, with every field given. A handler answers with a dict that is written once for all versions of an API. So
for each schema class this module generates the source of one Python function. The function packs each run of
fixed-width fields by a single ``struct`` call, takes the fields that the version has, and ignores the rest of the dict:
1 to 2 µs per entity.

A value in the dict is one of these:

- times and durations are integers in milliseconds; error codes are integers; a uuid is a ``UUID``, or None for zero;
- an element of an array is a dict, or ``bytes`` that were encoded before (see :func:`nested_encoder`);
- records are ``bytes``, None, or anything with ``fileno`` and a length. The last kind is not copied: only its place in
  the output is noted, so that the connection can send the file itself.

A field that the dict lacks has the default of its schema. Error codes and throttle times default to 0, nullable fields
to null. Any other missing field is a fault of our code, and raises KeyError.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from typing import Any, Protocol
from uuid import UUID

from headrace.protocol.wire.schema_fields import FIXED_FORMATS, UUID_BYTES, FieldKind
from headrace.protocol.wire.varints import put_uvarint

Message = Mapping[str, Any]


class Sendable(Protocol):
    """Bytes that stay in a file until they are sent."""

    @property
    def position(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def __len__(self) -> int: ...


#: A Sendable, and its position in the output.
Placed = tuple[int, Sendable]
Encode = Callable[[bytearray, Message, list[Placed]], None]

_ZERO_UUID = bytes(UUID_BYTES)
_EPOCH = datetime.fromtimestamp(0, UTC)
_INT16 = Struct(">h")
_INT32 = Struct(">i")


def put_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    put_uvarint(out, len(data) + 1)
    out += data


def put_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = value.encode()
    out += _INT16.pack(len(data))
    out += data


def put_compact_bytes(out: bytearray, value: bytes | Sendable | None, placed: list[Placed]) -> None:
    if value is None:
        out.append(0)
        return
    put_uvarint(out, len(value) + 1)
    _put_or_place(out, value, placed)


def put_bytes(out: bytearray, value: bytes | Sendable | None, placed: list[Placed]) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += _INT32.pack(len(value))
    _put_or_place(out, value, placed)


def _put_or_place(out: bytearray, value: bytes | Sendable, placed: list[Placed]) -> None:
    if isinstance(value, (bytes, bytearray, memoryview)):
        out += value
    else:
        placed.append((len(out), value))


def put_compact_length(out: bytearray, items: Sequence[object] | None) -> None:
    put_uvarint(out, 0 if items is None else len(items) + 1)


def put_length(out: bytearray, items: Sequence[object] | None) -> None:
    out += _INT32.pack(-1 if items is None else len(items))


def put_uuid(out: bytearray, value: UUID | None) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def put_tags(out: bytearray, tags: Sequence[tuple[int, bytearray]]) -> None:
    put_uvarint(out, len(tags))
    for tag, data in tags:
        put_uvarint(out, tag)
        put_uvarint(out, len(data))
        out += data


@cache
def encoder_of(schema: type) -> Encode:
    """The compiled function that encodes messages of a kio schema class."""
    source = _Source(schema)
    namespace: dict[str, Any] = source.namespace
    exec(source.text(), namespace)
    encode: Encode = namespace["encode"]
    return encode


@cache
def nested_encoder(schema: type, *path: str) -> Encode:
    """The encoder of an entity inside a message. ``path`` names the array fields that lead to the entity."""
    for name in path:
        kinds = {field.name: FieldKind(field) for field in fields(schema)}
        entity = kinds[name].entity
        assert entity is not None, f"{schema.__name__}.{name} holds no entities"
        schema = entity
    return encoder_of(schema)


def _default(field: Field[Any], kind: FieldKind) -> Any:
    """The value of a field that the dict lacks, or MISSING if the dict must have the field."""
    if field.default is not MISSING:
        default = field.default
    elif kind.is_nullable:
        default = None
    elif kind.kafka_type in ("error_code", "timedelta_i32"):
        return 0
    else:
        return MISSING
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if isinstance(default, datetime):
        return (default - _EPOCH) // timedelta(milliseconds=1)
    if kind.kafka_type == "datetime_i64":
        return -1  # null is written as -1
    if isinstance(default, int) and not isinstance(default, bool):
        return int(default)  # kio's integers are subclasses of int with another repr
    assert default is None or isinstance(default, bool | float | str | bytes | tuple), default
    return default


class _Source:
    """Writes the source of one encode function. ``namespace`` holds the names that the source uses."""

    def __init__(self, schema: type) -> None:
        self._schema = schema
        self._flexible: bool = schema.__flexible__  # type: ignore[attr-defined]
        self._lines: list[str] = []
        self._format = ""
        self._arguments: list[str] = []
        self.namespace: dict[str, Any] = {
            name: globals()[name]
            for name in (
                "put_uvarint", "put_compact_string", "put_string", "put_compact_bytes", "put_bytes",
                "put_compact_length", "put_length", "put_uuid", "put_tags",
            )
        }  # fmt: skip
        self.namespace["pack_length"] = _INT32.pack

    def text(self) -> str:
        tagged: list[Field[Any]] = []
        for field in fields(self._schema):
            kind = FieldKind(field)
            if kind.tag is not None:
                tagged.append(field)
            elif kind.is_fixed_width:
                self._format += FIXED_FORMATS[kind.kafka_type]
                self._arguments.append(self._value(field, kind))
            else:
                self._flush_fixed()
                self._field(kind, self._value(field, kind), target="out")
        if tagged:
            self._flush_fixed()
            self._tags(tagged)
        elif self._flexible:
            self._format += "B"
            self._arguments.append("0")
        self._flush_fixed()
        body = "\n".join(f"    {line}" for line in self._lines) or "    pass"
        return f"def encode(out, e, placed):\n    get = e.get\n{body}\n"

    def _flush_fixed(self) -> None:
        if not self._arguments:
            return
        packer = f"pack{len(self.namespace)}"
        self.namespace[packer] = Struct(">" + self._format).pack
        self._lines.append(f"out += {packer}({', '.join(self._arguments)})")
        self._format, self._arguments = "", []

    def _value(self, field: Field[Any], kind: FieldKind) -> str:
        """The expression that reads a field's value from the dict ``e``."""
        default = _default(field, kind)
        if default is MISSING:
            return f"e[{field.name!r}]"
        return f"get({field.name!r}, {default!r})" if default is not None else f"get({field.name!r})"

    def _field(self, kind: FieldKind, value: str, *, target: str) -> None:
        if kind.is_array:
            self._lines.append(f"items = {value}")
            self._lines.extend(self._length(kind, target))
            self._lines.append("for item in items or ():" if kind.is_nullable else "for item in items:")
            self._lines.extend(f"    {line}" for line in self._element(kind, "item", target))
        elif kind.entity is not None:
            self._lines.append(f"item = {value}")
            if kind.is_nullable:
                self._lines.append(f"{target} += b'\\xff' if item is None else b'\\x01'")
                self._lines.append("if item is not None:")
                self._lines.extend(f"    {line}" for line in self._element(kind, "item", target))
            else:
                self._lines.extend(self._element(kind, "item", target))
        else:
            self._lines.extend(self._element(kind, value, target))

    def _length(self, kind: FieldKind, target: str) -> list[str]:
        """Writes an array's length. The common case, a short array that is not null, takes no call."""
        if kind.is_nullable:
            return [f"{'put_compact_length' if self._flexible else 'put_length'}({target}, items)"]
        if not self._flexible:
            return [f"{target} += pack_length(len(items))"]
        return [
            "count = len(items) + 1",
            f"if count < 0x80: {target}.append(count)",
            f"else: put_uvarint({target}, count)",
        ]

    def _element(self, kind: FieldKind, value: str, target: str) -> list[str]:
        if kind.entity is not None:
            name = f"encode_{kind.entity.__name__}"
            self.namespace[name] = encoder_of(kind.entity)
            return [
                f"if {value}.__class__ is bytes: {target} += {value}",
                f"else: {name}({target}, {value}, placed)",
            ]
        if kind.kafka_type in FIXED_FORMATS:
            packer = f"pack_{kind.kafka_type}"
            self.namespace[packer] = Struct(">" + FIXED_FORMATS[kind.kafka_type]).pack
            return [f"{target} += {packer}({value})"]
        if kind.kafka_type == "string":
            return [f"{'put_compact_string' if self._flexible else 'put_string'}({target}, {value})"]
        if kind.kafka_type in ("bytes", "records"):
            return [f"{'put_compact_bytes' if self._flexible else 'put_bytes'}({target}, {value}, placed)"]
        if kind.kafka_type == "uuid":
            return [f"put_uuid({target}, {value})"]
        raise NotImplementedError(f"{self._schema.__name__} has a field of type {kind.kafka_type!r}")

    def _tags(self, tagged: list[Field[Any]]) -> None:
        """Writes the tagged fields that the dict has with another value than the default."""
        assert self._flexible
        self._lines.append("tags = None")
        for field in sorted(tagged, key=lambda field: field.metadata["tag"]):
            kind = FieldKind(field)
            value = f"e[{field.name!r}]"
            default = None if kind.entity and not kind.is_array else _default(field, kind)
            if default == ():
                self._lines.append(f"if get({field.name!r}):")
            else:
                self._lines.append(f"if {field.name!r} in e and {value} != {default!r}:")
            inner = _Source(self._schema)
            inner.namespace = self.namespace
            inner._lines = ["tag_data = bytearray()"]
            inner._field(kind, value, target="tag_data")
            self._lines.extend(f"    {line}" for line in inner._lines)
            self._lines.append("    tags = tags or []")
            self._lines.append(f"    tags.append(({field.metadata['tag']}, tag_data))")
        self._lines.append("if tags is None: out.append(0)")
        self._lines.append("else: put_tags(out, tags)")
