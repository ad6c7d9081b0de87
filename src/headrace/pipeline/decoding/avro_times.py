"""Reads the times of Avro records as numbers, and converts a whole column of them at once.

Avro stores a time as a number, and fastavro makes a Python object of each. For a column of many records it is faster to
leave the numbers and let Arrow say that they are times. This is done for fields at the top level of a record. Numbers
that no Python object could hold are refused here: then the records are decoded one by one, and have a reason.

With a schema registry, the schema of the record says what its numbers mean. Only if it means the same as the schema of
the source, the numbers can be used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pipeline.decoding.value_batches import Unconvertible

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_MILLIS = (-62_135_596_800_000, 253_402_300_799_999)
_DAYS = (-719_162, 2_932_896)
#: By logical type: the type of the number, its limits, the type of the time, and the type of the column (by Arrow's
#: names: commands that decode nothing do not load Arrow).
_TIMES = {
    "timestamp-micros": ("int64", _MICROS, ("us", "UTC"), ("us", "UTC")),
    "timestamp-millis": ("int64", _MILLIS, ("ms", "UTC"), ("us", "UTC")),
    "local-timestamp-micros": ("int64", _MICROS, ("us", None), ("us", None)),
    "local-timestamp-millis": ("int64", _MILLIS, ("ms", None), ("us", None)),
    "date": ("int32", _DAYS, None, None),
}


@dataclass(frozen=True)
class CountedTime:
    """A field of times that are read as numbers.

    :param names: the names that the field may have in a record's schema.
    """

    logical: str
    names: tuple[str, ...]

    def array(self, numbers: Sequence[object]) -> pa.Array:
        """
        :raises Unconvertible: if a number is out of range.
        """
        import pyarrow as pa
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        number, (least, most), time, column = _TIMES[self.logical]
        made = pa.array(numbers, number)
        found = pc.min_max(made).as_py()
        if found["min"] is not None and (found["min"] < least or found["max"] > most):
            raise Unconvertible
        types = [pa.date32() if each is None else pa.timestamp(*each) for each in (time, column)]
        return made.cast(types[0]).cast(types[1])


def counted_times(schema: str) -> dict[str, CountedTime]:
    """The fields at the top level of a record that are times."""
    return {
        str(field["name"]): CountedTime(logical, (str(field["name"]), *field.get("aliases", ())))
        for field in _fields(json.loads(schema))
        if (logical := _logical(field["type"]))
    }


def with_numbers(schema: str, counted: Mapping[str, CountedTime] | None) -> str:
    """The same schema, in which these fields are numbers."""
    if not counted:
        return schema
    names = {name for each in counted.values() for name in each.names}
    record = json.loads(schema)
    for field in _fields(record):
        if field["name"] in names:
            field["type"] = _number(field["type"])
    return json.dumps(record)


def check_same_times(schema: str, counted: Mapping[str, CountedTime] | None) -> None:
    """
    :raises Unconvertible: if a field has times of another kind in this schema, or no times.
    """
    fields = {str(field["name"]): field["type"] for field in _fields(json.loads(schema))} if counted else {}
    for each in (counted or {}).values():
        written = next((fields[name] for name in each.names if name in fields), None)
        if written is not None and _logical(written) != each.logical:
            raise Unconvertible


def _fields(record: Any) -> Iterator[dict[str, Any]]:
    while isinstance(record, dict) and isinstance(record.get("type"), dict):
        record = record["type"]
    yield from record.get("fields", ()) if isinstance(record, dict) else ()


def _logical(avro: Any) -> str:
    """The kind of times; empty if these are no times."""
    if isinstance(avro, list):
        others = [each for each in avro if each != "null"]
        return _logical(others[0]) if len(others) == 1 else ""
    if not isinstance(avro, dict):
        return ""
    logical = str(avro.get("logicalType", ""))
    expected = "int" if logical == "date" else "long"
    return logical if logical in _TIMES and avro.get("type") == expected else _logical(avro.get("type"))


def _number(avro: Any) -> Any:
    """The type without its logical type."""
    if isinstance(avro, list):
        return [_number(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {name: _number(each) if name == "type" else each for name, each in avro.items() if name != "logicalType"}
