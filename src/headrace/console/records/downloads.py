"""Writes records as files: JSON lines, CSV and Parquet. Values are whole, as far as masks allow.

A row has ``partition``, ``offset``, ``timestamp`` (milliseconds), ``key``, ``value``, ``headers``. In JSON lines a
document is a document, a text a text, and bytes that are neither are base64, with ``value_encoding`` (or
``key_encoding``) ``base64``. CSV and Parquet have the same as text. In CSV a text that a spreadsheet would run as a
formula gets an apostrophe before it.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, NamedTuple

from headrace.console.protection.audit import HIDDEN
from headrace.console.records.batches import RawRecord
from headrace.console.records.decoding import Decoder

MOST_RECORDS, MOST_BYTES = 100_000, 256 * 1024 * 1024
_COLUMNS = (
    "partition", "offset", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class FileFormat(NamedTuple):
    """A kind of file.

    :ivar write: makes the bytes of some rows; ``is_first`` for the first rows of a file.
    :ivar is_stream: whether rows can be written as they come. Otherwise all of them are written at once.
    """

    media_type: str
    ending: str
    write: Callable[[list[dict[str, Any]], bool], bytes]
    is_stream: bool = True


def has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def plain_row(record: RawRecord, decoder: Decoder) -> dict[str, Any]:
    """A record as a JSON object."""
    key, key_encoding = _plain(record.key, decoder)
    value, value_encoding = _plain(record.value, decoder)
    headers = [
        [name, HIDDEN if decoder.masks.hides(name) else _plain(each, decoder)[0]] for name, each in record.headers
    ]
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
    }


def _plain(data: bytes | None, decoder: Decoder) -> tuple[Any, str]:
    """The content, and how it is written."""
    if data is None:
        return None, "null"
    document = decoder.document(data)
    if document is not None:
        return document.content, document.format
    shown = decoder.searched(data)
    if shown == b"" and data:
        return HIDDEN, "hidden"
    try:
        return data.decode("utf-8"), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _json_lines(rows: list[dict[str, Any]], _: bool) -> bytes:
    lines = (json.dumps(row, ensure_ascii=False, default=str, separators=(",", ":")) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _csv(rows: list[dict[str, Any]], is_first: bool) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    if is_first:
        writer.writerow(_COLUMNS)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in _COLUMNS])
    return out.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    text = _as_text(value)
    return f"'{text}" if isinstance(value, str) and text is not None and text.startswith(_FORMULA) else text


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _parquet(rows: list[dict[str, Any]], _: bool) -> bytes:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    numbers = ("partition", "offset", "timestamp")
    arrays = {
        name: pa.array([row[name] for row in rows], pa.int64())
        if name in numbers
        else pa.array([_storable(_as_text(row[name])) for row in rows], pa.string())
        for name in _COLUMNS
    }
    out = io.BytesIO()
    pq.write_table(pa.table(arrays), out, compression="zstd")
    return out.getvalue()


def _storable(text: str | None) -> str | None:
    """Arrow takes no halves of surrogates."""
    return None if text is None else text.encode("utf-8", "replace").decode()


FILE_FORMATS: dict[str, FileFormat] = {
    "json": FileFormat("application/x-ndjson", "jsonl", _json_lines),
    "csv": FileFormat("text/csv; charset=utf-8", "csv", _csv),
    "parquet": FileFormat("application/vnd.apache.parquet", "parquet", _parquet, is_stream=False),
}


def plain_rows(records: Iterable[RawRecord], decoder: Decoder) -> list[dict[str, Any]]:
    return [plain_row(record, decoder) for record in records]
