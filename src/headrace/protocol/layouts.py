"""Messages that kio has no schemas for, as tables: one for each message, for all its versions.

A table says from which version until which a field is there; of it :func:`schema_of` makes a dataclass for each
version, in kio's form, so that kio reads them and ``encoder.py`` writes them as if they were its own.

A field that a version does not have is still an attribute of that version's class, with its default: whoever reads
messages is written once for all versions. Times are integers in milliseconds, and a uuid of zeros is None.
"""

from collections.abc import Mapping
from dataclasses import MISSING, field, make_dataclass
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.kio import EntityType, ErrorCode

_LAST = 2**15 - 1
#: As the first version that is flexible: none is.
NEVER = _LAST + 1


class Struct(NamedTuple):
    """Fields under a name: what an array may hold, or a message as a whole."""

    name: str
    fields: "tuple[Layout, ...]"


class Layout(NamedTuple):
    """One field. A default is needed where a version lacks the field or where it has a tag."""

    name: str
    #: A type of kio's, or the fields of a struct.
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
    """The dataclass of one version, in the form of kio's generated ones."""
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
