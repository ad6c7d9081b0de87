"""Lists pairs of Avro schemas with what the rules of schema resolution say about them.

A case: its name, the earlier schema, the new schema, whether the new one reads data of the earlier one (backward), and
whether the earlier one reads data of the new one (forward). Fields are short for a record R with these fields.
"""

from __future__ import annotations

from typing import Any


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


_X = field("x", "int")
_LIST = record(field("next", ["null", "R"], default=None))

CASES: list[tuple[str, Any, Any, bool, bool]] = [
    ("the same", record(_X), record(_X), True, True),
    ("field with default added", record(_X), record(_X, field("y", "int", default=1)), True, True),
    ("field without default added", record(_X), record(_X, field("y", "int")), False, True),
    ("field with default removed", record(_X, field("y", "int", default=1)), record(_X), True, True),
    ("field without default removed", record(_X, field("y", "int")), record(_X), True, False),
    ("null default counts", record(_X), record(_X, field("y", ["null", "int"], default=None)), True, True),
    ("field renamed", record(_X), record(field("z", "int")), False, False),
    ("field renamed with an alias", record(_X), record(field("z", "int", aliases=["x"])), True, False),
    ("fields in another order", record(_X, field("y", "int")), record(field("y", "int"), _X), True, True),
    ("record renamed", record(_X), record(_X, name="S"), False, False),
    ("record renamed with an alias", record(_X), record(_X, name="S", aliases=["R"]), True, False),
    ("another namespace", record(_X), record(_X, namespace="other"), True, True),
    ("documentation", record(_X), record(_X, doc="about R"), True, True),
    ("int to long", "int", "long", True, False),
    ("int to float", "int", "float", True, False),
    ("int to double", "int", "double", True, False),
    ("long to float", "long", "float", True, False),
    ("long to double", "long", "double", True, False),
    ("float to double", "float", "double", True, False),
    ("long to int", "long", "int", False, True),
    ("double to float", "double", "float", False, True),
    ("string to bytes", "string", "bytes", True, True),
    ("int to string", "int", "string", False, False),
    ("boolean to int", "boolean", "int", False, False),
    ("null to int", "null", "int", False, False),
    ("promoted field", record(_X), record(field("x", "long")), True, False),
    ("a logical type", "long", {"type": "long", "logicalType": "timestamp-millis"}, True, True),
    ("symbol added", enum("A"), enum("A", "B"), True, False),
    ("symbol removed", enum("A", "B"), enum("A"), False, True),
    ("symbol removed, with a default", enum("A", "B"), enum("A", default="A"), True, True),
    ("symbols in another order", enum("A", "B"), enum("B", "A"), True, True),
    ("enum to string", enum("A"), "string", False, False),
    ("fixed of the same size", fixed(4), fixed(4), True, True),
    ("fixed of another size", fixed(4), fixed(8), False, False),
    ("fixed of another name", fixed(4), fixed(4, "G"), False, False),
    ("fixed to bytes", fixed(4), "bytes", False, False),
    ("array of promoted", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True, False),
    ("array of others", {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, False, False),
    ("array to map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, False, False),
    ("map of promoted", {"type": "map", "values": "float"}, {"type": "map", "values": "double"}, True, False),
    ("type to union", "int", ["null", "int"], True, False),
    ("union to type", ["null", "int"], "int", False, True),
    ("union of one", "int", ["int"], True, True),
    ("branch added", ["null", "int"], ["null", "int", "string"], True, False),
    ("branch removed", ["null", "int", "string"], ["null", "int"], False, True),
    ("branches in another order", ["null", "int"], ["int", "null"], True, True),
    ("branch promoted", ["null", "int"], ["null", "long"], True, False),
    ("branch promoted to another", ["int", "string"], ["long", "bytes"], True, False),
    ("nullable field", record(_X), record(field("x", ["null", "int"])), True, False),
    ("recursive", _LIST, _LIST, True, True),
    ("recursive with a field added", _LIST,
     record(field("next", ["null", "R"], default=None), field("v", "int", default=0)), True, True),
    ("recursive with a bad field added", _LIST,
     record(field("next", ["null", "R"], default=None), field("v", "int")), False, True),
    ("nested record", record(field("n", record(_X, name="N"))),
     record(field("n", record(field("x", "string"), name="N"))), False, False),
    ("nested record in a union", record(field("n", ["null", record(_X, name="N")])),
     record(field("n", ["null", record(_X, field("y", "int"), name="N")])), False, True),
    ("type used twice by name", record(field("a", enum("A")), field("b", "E")),
     record(field("a", enum("A", "B")), field("b", "E")), True, False),
    ("record to map", record(_X), {"type": "map", "values": "int"}, False, False),
]  # fmt: skip
