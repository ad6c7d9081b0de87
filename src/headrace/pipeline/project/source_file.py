"""Reads the file of one source, ``sources/NAME.toml``, and makes a definition from it.

::

    kind, topics or pattern, dead_letters
    [decode]      format, schema, options, function, framing, descriptor, message, registry, registry_options
    [decode.key]  the same fields; the key of a record gives further columns
    [watermark]   column, delay
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from headrace.pipeline.project.decode import DEBEZIUM, Decode
from headrace.pipeline.project.decode_table import DecodeTable
from headrace.pipeline.project.field_reader import FieldReader
from headrace.pipeline.project.source_definition import EVENTS, KINDS, SourceDefinition
from headrace.pipeline.project.toml_files import TomlFile

_FORMATS_OF_CHANGES = ("json", "avro", "protobuf")
_NAME = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)


def read_source(folder: Path, file: TomlFile) -> SourceDefinition:
    fields = FieldReader(folder, file)
    name = file.path.stem
    if not _NAME.fullmatch(name):
        file.report(f"{name!r} cannot be the name of a source: use letters, digits and '_', not beginning with a digit")
    topics, pattern = fields.topics()
    kind = fields.top.text("kind", EVENTS, KINDS)
    made = SourceDefinition(
        name=name,
        kind=kind,
        topics=topics,
        pattern=pattern,
        decode=_decode(fields, kind),
        watermark=fields.watermark(),
        dead_letters=fields.dead_letters(topics),
        file=fields.relative(file.path),
        lines=file.lines,
    )
    fields.top.finish("decode", "watermark")
    if made.is_table and made.watermark:
        file.report(f"a source of kind {made.kind} has no late events: remove [watermark]", "watermark")
    return made


def _decode(fields: FieldReader, kind: str) -> Decode:
    decode = DecodeTable(fields).decode()
    if kind != "changes":
        return decode
    if decode.format not in _FORMATS_OF_CHANGES:
        known = " or ".join(_FORMATS_OF_CHANGES)
        fields.file.report(f"kind changes needs format {known}, not {decode.format}", "decode", "format")
    return replace(decode, envelope=DEBEZIUM)
