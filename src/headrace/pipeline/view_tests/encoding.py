"""Encodes the fields of a record as the bytes that a producer would send.

=====  =====================================================================================================
json   one object; times in ISO 8601; decimals with all of their digits
csv    one line with the columns of the schema, in their order; a column without a field is empty
avro   one record of the schema, with Confluent's five bytes before it if the source has this framing
=====  =====================================================================================================

Other formats have no encoder here: a test gives their bytes (``_text``, ``_base64``).
"""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from headrace.pipeline.inference.types import column_name, split_columns
from headrace.pipeline.project.decode import Decode

#: Confluent's magic byte and the id of a schema. Without a registry, decoders skip them.
_FRAME = b"\x00\x00\x00\x00\x01"


class NotEncoded(Exception):
    """The fields cannot be encoded; the message says why and what to write instead."""


def encode(decode: Decode, fields: Mapping[str, Any]) -> bytes:
    """
    :raises NotEncoded: if there is no encoder, or a value does not fit the schema.
    """
    encoder = _ENCODERS.get(decode.format)
    if encoder is None:
        raise NotEncoded(f"fields cannot be written in the format {decode.format}: give the bytes as _text or _base64")
    if decode.registry:
        raise NotEncoded("the source uses a schema registry: give the bytes, with their schema id, as _base64")
    framed = _FRAME if decode.framing == "confluent" else b""
    return framed + encoder(decode, fields)


def json_text(value: Any) -> str:
    """JSON with the digits of a decimal as they are."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))}: {json_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(json_text, value)) + "]"
    if isinstance(value, Decimal):
        return json.dumps(float(value)) if not value.is_finite() else str(value)
    if isinstance(value, datetime.date | datetime.time):
        return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=False)


def _json(_decode: Decode, fields: Mapping[str, Any]) -> bytes:
    return json_text(fields).encode()


def _csv(decode: Decode, fields: Mapping[str, Any]) -> bytes:
    names = [column_name(column) for column in split_columns(decode.schema)]
    separator = decode.options.get("sep") or decode.options.get("delimiter") or ","
    if len(separator) != 1:
        raise NotEncoded("a separator of several characters has no encoder: give the line as _text")
    null = decode.options.get("nullValue", "")
    line = io.StringIO()
    texts = [null if fields.get(name) is None else _plain(fields[name]) for name in names]
    csv.writer(line, delimiter=separator, lineterminator="").writerow(texts)
    return line.getvalue().encode()


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _avro(decode: Decode, fields: Mapping[str, Any]) -> bytes:
    import fastavro

    schema = fastavro.parse_schema(json.loads(decode.schema))
    written = io.BytesIO()
    try:
        fastavro.schemaless_writer(written, schema, dict(fields))
    except Exception as error:  # noqa: BLE001  fastavro raises many kinds of exceptions for a value that does not fit
        raise NotEncoded(f"the fields do not fit the Avro schema: {' '.join(str(error).split())}") from None
    return written.getvalue()


_ENCODERS: dict[str, Callable[[Decode, Mapping[str, Any]], bytes]] = {"json": _json, "csv": _csv, "avro": _avro}
