"""Describes the fields of kio's schema classes, for the code that is generated from them."""

from dataclasses import Field, is_dataclass
from struct import Struct
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

#: How ``struct`` packs each of Kafka's types that has a fixed width.
FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
UUID_BYTES = 16


class FieldKind:
    """The kind of a field of a schema class: primitive or entity, alone or in an array, nullable or not."""

    def __init__(self, field: Field[Any]) -> None:
        declared: Any = field.type
        self.is_nullable = False
        if get_origin(declared) is UnionType:
            self.is_nullable = True
            (declared,) = (arg for arg in get_args(declared) if arg is not NoneType)
        self.is_array = get_origin(declared) is tuple
        if self.is_array:
            declared = get_args(declared)[0]
        self.entity: type | None = declared if is_dataclass(declared) and isinstance(declared, type) else None
        self.kafka_type: str = field.metadata.get("kafka_type", "")
        self.tag: int | None = field.metadata.get("tag")

    @property
    def is_fixed_width(self) -> bool:
        return not self.is_array and self.entity is None and self.kafka_type in FIXED_FORMATS

    @property
    def element_bytes(self) -> int | None:
        """How many bytes the field, or an element of its array, takes; None for entities and variable lengths."""
        if self.entity is not None:
            return None
        if self.kafka_type == "uuid":
            return UUID_BYTES
        format_ = FIXED_FORMATS.get(self.kafka_type)
        return None if format_ is None else Struct(">" + format_).size
