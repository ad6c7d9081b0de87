"""The columns of a source without Spark: their names and types, and whether a value of a test fits a type.

A value that does not fit would become a dead letter. In a test that is far more often a mistake, so it is reported;
``_value`` and ``_text`` send it as it is.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace.pipeline.inference.types import column_name, split_columns
from headrace.pipeline.project.decode import Decode

_COLUMN = re.compile(r"(?:`(?:[^`]|``)*`|[^\s:`]+)\s*:?\s*([A-Za-z_]+)", re.DOTALL)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


#: By the word of a type: what fits, and its name for messages.
_FITTING: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"), (_is_whole, "a whole number")
    ),
    **dict.fromkeys(("FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC"), (_is_number, "a number")),
    "BOOLEAN": (lambda value: isinstance(value, bool), "true or false"),
    "DATE": (lambda value: isinstance(value, datetime.date | str), "a date such as 2026-11-16"),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"),
        (lambda value: isinstance(value, datetime.date | str), "a time such as 2026-11-16T08:30:00Z"),
    ),
    "ARRAY": (lambda value: isinstance(value, list), "a list"),
    "STRUCT": (lambda value: isinstance(value, dict), "a table"),
    "MAP": (lambda value: isinstance(value, dict), "a table"),
}


def known_columns(decode: Decode) -> dict[str, str] | None:
    """The first word of the type of each column; None if the names of fields are not known without Spark.

    A change in Debezium's envelope has the fields of the envelope.
    """
    if decode.envelope:
        return None
    if decode.format == "avro":
        return _avro_columns(decode.schema)
    if decode.format not in ("json", "csv") or not decode.schema:
        return None
    columns: dict[str, str] = {}
    for text in split_columns(decode.schema):
        found = _COLUMN.match(text)
        if found is None:
            return None
        columns[column_name(text)] = found[1].upper()
    return None if list(columns.values()) == ["VARIANT"] else columns


def _avro_columns(schema: str) -> dict[str, str] | None:
    try:
        parsed = json.loads(schema)
        return {str(each["name"]): "" for each in parsed["fields"]}
    except (ValueError, KeyError, TypeError):
        return None


def misfit(value: object, kind: str) -> str | None:
    """Describes the values that a column of this type needs; None if the value fits or the type is not known."""
    if value is None or kind not in _FITTING:
        return None
    fits, wanted = _FITTING[kind]
    return None if fits(value) else wanted
