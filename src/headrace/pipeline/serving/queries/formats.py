"""Writes values and answers of either database as JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.pipeline.serving.queries.query import Answer

_REPLACEMENT = "\ufffd"
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def jsonable(value: object) -> object:
    """A value of a database or of Arrow as a JSON value. Values that JSON cannot represent become texts."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value.replace("\x00", _REPLACEMENT)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else _NOT_FINITE[str(value)]
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"\\x{bytes(value).hex()}"
    if isinstance(value, datetime.datetime):
        in_utc = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        return in_utc.isoformat(" ")
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return str(value)


def _number(value: Decimal) -> object:
    """A number if that is exact, else a text. PostgreSQL's sums of integers are decimals."""
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    as_float = float(value)
    return as_float if Decimal(repr(as_float)) == value else str(value)


def answer_value(answer: Answer) -> dict[str, object]:
    """An answer as JSON values."""
    return {
        "columns": answer.columns,
        "rows": [[jsonable(value) for value in row] for row in answer.rows],
        "truncated": answer.is_truncated,
        "as_of": [asdict(as_of) for as_of in answer.as_of],
    }


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """An answer as CSV: NULL is empty, and a text with a comma is quoted."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([plain_cell(value) for value in row] for row in rows)
    return written.getvalue()


def plain_cell(value: object) -> object:
    """A value for a table or CSV. Objects and arrays are written as JSON."""
    value = jsonable(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, (dict, list)) else value
