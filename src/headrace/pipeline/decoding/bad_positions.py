"""Finds the position of the error in a bad value, for dead-letter reasons that name no column.

Spark does not say where its parser stopped. Bad values are few, so Python's parser parses them again in the driver,
just before they are sent. Python's parser is stricter than Spark's: Spark accepts single quotes, and more with options.
If the two may disagree, the reason has no position.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.text_columns import MORE_THAN_JSON, NOT_JSON, NOT_UTF8

_JSON_SPACE = " \t\r\n"


def with_positions(reasons: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same reasons, with a position where one can be found.

    :param values: the bad values, one per reason.
    """
    if not pc.any(pc.is_in(reasons, pa.array(list(_FINDERS)))).as_py():
        return reasons
    pairs = zip(reasons.to_pylist(), values.to_pylist(), strict=True)
    return pa.chunked_array([pa.array([_with_position(reason, value) for reason, value in pairs], pa.string())])


def _with_position(reason: str, value: bytes | None) -> str:
    find = _FINDERS.get(reason)
    place = None if find is None or value is None else find(value)
    return reason if place is None else f"{reason}: {place}"


def _in_bytes(value: bytes) -> str | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return f"at byte {error.start + 1}"
    return None


def _in_json(value: bytes) -> str | None:
    text = value.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if text[error.pos : error.pos + 1] == "'" or "'" in text[: error.pos]:
            return None
        return f"{error.msg}, at character {error.pos + 1}"
    except (ValueError, RecursionError):
        return None
    return None


def _behind_json(value: bytes) -> str | None:
    text = value.decode(errors="replace")
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return f"at character {len(text) - len(text[end:].lstrip(_JSON_SPACE)) + 1}"


_FINDERS: dict[str, Callable[[bytes], str | None]] = {
    NOT_UTF8: _in_bytes,
    NOT_JSON: _in_json,
    MORE_THAN_JSON: _behind_json,
}
