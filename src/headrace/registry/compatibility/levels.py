"""Applies a compatibility level: which earlier versions a new schema is compared with, and in which direction.

==================== ============================================== =========================
BACKWARD             the new schema reads data of the last version  BACKWARD_TRANSITIVE: of all
FORWARD              the last version reads data of the new schema  FORWARD_TRANSITIVE: all do
FULL                 both                                           FULL_TRANSITIVE: both, all
NONE                 nothing is compared
==================== ============================================== =========================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.registry.compatibility import avro, json_schema, protobuf
from headrace.registry.formats.parsing import Parsed
from headrace.registry.schemas import AVRO, JSON, PROTOBUF

LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MAX_PROBLEMS = 20
_PROBLEMS: dict[str, Callable[[Any, Any], list[str]]] = {
    AVRO: avro.problems,
    JSON: json_schema.problems,
    PROTOBUF: protobuf.problems,
}


def is_transitive(level: str) -> bool:
    return level.endswith("_TRANSITIVE")


def problems(level: str, new: Parsed, earlier: Sequence[Parsed]) -> list[str]:
    """Why a schema does not fit to earlier versions; empty if it does.

    :param earlier: the versions in order. Only the last one counts if the level is not transitive.
    """
    if level == "NONE":
        return []
    compared = list(earlier) if is_transitive(level) else list(earlier[-1:])
    found: list[str] = []
    for old in reversed(compared):
        if old.kind != new.kind:
            found.append(f"the type of the schema changes from {old.kind} to {new.kind}")
            continue
        if level.startswith(("BACKWARD", "FULL")):
            found += reading_problems(reader=new, writer=old, who="the new schema")
        if level.startswith(("FORWARD", "FULL")):
            found += reading_problems(reader=old, writer=new, who="an earlier schema")
    return list(dict.fromkeys(found))[:MAX_PROBLEMS]


def reading_problems(reader: Parsed, writer: Parsed, who: str) -> list[str]:
    other = "an earlier schema" if who == "the new schema" else "the new schema"
    found = _PROBLEMS[reader.kind](reader.content, writer.content)
    return [f"{who} cannot read data of {other}: {problem}" for problem in found]
