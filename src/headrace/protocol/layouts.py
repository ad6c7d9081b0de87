"""Turns tables of fields into schema classes, for messages that kio has no schema for.

There is one table per message, for all its versions. A table says in which versions each field exists.
:func:`schema_of` makes a dataclass for each version, in the form of kio's own classes. So kio can read such messages,
and ``wire/encoder.py`` can write them.

A field that a version does not have is still an attribute of that version's class, with its default. So code that reads
messages is written once for all versions. Times are integers in milliseconds, and a uuid of zeros is None.
"""

from collections.abc import Mapping
from dataclasses import MISSING, field, make_dataclass
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.kio import EntityType, ErrorCode

_LAST = 2**15 - 1
#: For ``flexible_since``: no version is flexible.
NEVER = _LAST + 1


class Struct(NamedTuple):
    """A name and its fields: a whole message, or the elements of an array."""

    name: str
    fields: "tuple[Layout, ...]"


class Layout(NamedTuple):
    """One field. It needs a default if a version lacks the field, or if the field has a tag."""

    name: str
    #: The name of a type of kio, or a struct.
    kind: str | Struct
    is_array: bool = False
    is_nullable: bool = False
    since: int = 0
    until: int = _LAST
    tag: int | None = None
    default: object = MISSING


_PYTHON_TYPES: Mapping[str, Any] = {
    "bool": bool,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "string": str,
    "bytes": bytes,
    "uuid": UUID | None,
    "error_code": ErrorCode,
}


@cache
def schema_of(
    struct: Struct,
    version: int,
    *,
    is_flexible: bool,
    type_: EntityType = EntityType.data,
    header: type | None = None,
) -> type:
    """The dataclass of one version, in the form of the classes that kio generates."""
    constants: dict[str, object] = {
        "__type__": type_,
        "__version__": version,
        "__flexible__": is_flexible,
    }
    if header is not None:
        constants["__header_schema__"] = header
    members: list[tuple[str, Any, Any]] = []
    for layout in struct.fields:
        if layout.since <= version <= layout.until:
            members.append((layout.name, *_declared(layout, version, is_flexible=is_flexible)))
        else:
            assert layout.default is not MISSING, f"{struct.name}.{layout.name} needs a default"
            constants[layout.name] = layout.default
    return make_dataclass(struct.name, members, namespace=constants, frozen=True, slots=True, kw_only=True)


def _declared(layout: Layout, version: int, *, is_flexible: bool) -> tuple[object, object]:
    """A field's annotation and its ``dataclasses.field``."""
    metadata: dict[str, object] = {}
    declared: Any
    if isinstance(layout.kind, Struct):
        declared = schema_of(layout.kind, version, is_flexible=is_flexible)
    else:
        declared = _PYTHON_TYPES[layout.kind]
        metadata["kafka_type"] = layout.kind
    if layout.tag is not None:
        metadata["tag"] = layout.tag
    if layout.is_array:
        declared = tuple[declared, ...]
    if layout.is_nullable:
        declared = declared | None
    return declared, field(metadata=metadata, default=layout.default)
