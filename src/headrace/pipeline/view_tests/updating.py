"""Writes the rows that a view showed into the file of its test: ``--update``.

Only the characters of ``rows`` change. Comments, spaces and all other values stay as they are; a comment within the old
rows goes with them. A step without ``rows`` gets them after its last field. TOML has no null: a column that is NULL is
left out, and NULL within a list is ``{ null = true }``.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.view_tests.cells import Row
from headrace.pipeline.view_tests.documents import Document
from headrace.pipeline.view_tests.places import Path as Place
from headrace.pipeline.view_tests.places import Span

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_INDENT = "    "
_WIDTH = 120


class NotUpdated(Exception):
    """The file has a form that cannot be rewritten; the message says what to change."""


def updated_text(
    document: Document, rows: Mapping[Place, tuple[pa.Schema, Sequence[Row]]], dead_letters: Mapping[Place, int]
) -> str:
    """The text of the file with other rows and counts.

    :param rows: by the place of a step, the columns of its view, and the rows to write.
    :param dead_letters: by the place of a step that has this field, the number to write.
    :raises NotUpdated: if a step has rows in a form that cannot be replaced.
    """
    edits = [(document.places.spans[(*place, "dead_letters")], str(number)) for place, number in dead_letters.items()]
    for place, (schema, found) in rows.items():
        written = _written(document, schema, found)
        at = (*place, "rows")
        if at in document.places.spans:
            edits.append((_value_span(document, at), written))
        else:
            edits.append(_insertion(document, place, written))
    text = document.text
    for span, written in sorted(edits, reverse=True):
        text = text[: span.start] + written + text[span.end :]
    return text


def write_text(path: Path, text: str) -> None:
    """Replaces a file in one step, so that a crash leaves the old file or the new one.

    :raises OSError: if the file cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _value_span(document: Document, at: Place) -> Span:
    span = document.places.spans[at]
    if document.is_toml:
        if document.text.startswith("[[", span.start):
            raise NotUpdated("[[...rows]] cannot be updated: write rows = [] instead, and run --update again")
        return span
    return Span(span.start, span.start + len(document.text[span.start : span.end].rstrip()))


def _insertion(document: Document, place: Place, written: str) -> tuple[Span, str]:
    """Returns the place at which rows are inserted into a step without rows: after the last of its own fields."""
    text, depth = document.text, len(place)
    inside = [span for path, span in document.places.spans.items() if path[:depth] == place and len(path) > depth]
    has_headers = document.is_toml and any(_is_header(text, span) for span in inside)
    if not document.is_toml and not inside:
        raise NotUpdated("an empty step cannot be updated: write rows: [] into it, and run --update again")
    # A field after the header of another table would belong to that table.
    end = document.places.spans[place].end if has_headers or not inside else max(span.end for span in inside)
    if not document.is_toml:
        end = len(text[:end].rstrip())
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    name = "rows = " if document.is_toml else f"{_yaml_indent(document, place)}rows: "
    return Span(line_end, line_end), f"\n{name}{written}"


def _is_header(text: str, span: Span) -> bool:
    before = text[text.rfind("\n", 0, span.start) + 1 : span.start]
    return text.startswith("[", span.start) and not before.strip()


def _yaml_indent(document: Document, place: Place) -> str:
    """The columns before the fields of the step."""
    start = document.places.spans[place].start
    return " " * (start - (document.text.rfind("\n", 0, start) + 1))


def _written(document: Document, schema: pa.Schema, rows: Sequence[Row]) -> str:
    write = _toml_table if document.is_toml else _yaml_table
    tables = [write(row, schema) for row in rows]
    if not tables:
        return "[]"
    line = f"[{', '.join(tables)}]"
    if len(tables) == 1 and len(line) < _WIDTH - len("rows = "):
        return line
    # YAML wants the lines inside of brackets further right than their key.
    indent = _INDENT if document.is_toml else _INDENT * 4
    inner = "".join(f"{indent}{table},\n" for table in tables)
    return f"[\n{inner}{'' if document.is_toml else _INDENT * 3}]"


# --------------------------------------------------------------------------------------------------------- TOML, YAML


def _toml_table(row: Row, schema: pa.Schema) -> str:
    cells = zip(schema, row, strict=True)
    return _joined(f"{_key(field.name)} = {_toml(cell, field.type)}" for field, cell in cells if cell is not None)


def _yaml_table(row: Row, schema: pa.Schema) -> str:
    cells = zip(schema, row, strict=True)
    return _joined(f"{json.dumps(field.name)}: {_yaml(cell, field.type)}" for field, cell in cells)


def _joined(items: Any) -> str:
    inside = ", ".join(items)
    return f"{{ {inside} }}" if inside else "{}"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A text as both TOML and YAML read it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(cell: Any, kind: pa.DataType) -> str:
    if cell is None:
        return "{ null = true }"
    if isinstance(cell, dict):
        return _joined(f"{_key(name)} = {_toml(item, _inner(kind, name))}" for name, item in cell.items())
    if isinstance(cell, list):
        return f"[{', '.join(_toml(item, kind.value_type) for item in cell)}]"
    return _scalar(cell, kind, is_toml=True)


def _yaml(cell: Any, kind: pa.DataType) -> str:
    if cell is None:
        return "null"
    if isinstance(cell, dict):
        return _joined(f"{_quoted(name)}: {_yaml(item, _inner(kind, name))}" for name, item in cell.items())
    if isinstance(cell, list):
        return f"[{', '.join(_yaml(item, kind.value_type) for item in cell)}]"
    return _scalar(cell, kind, is_toml=False)


def _inner(kind: pa.DataType, name: str) -> pa.DataType:
    return kind.item_type if pa.types.is_map(kind) else kind.field(name).type


def _scalar(cell: Any, kind: pa.DataType, *, is_toml: bool) -> str:
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        return _float(cell, is_toml=is_toml)
    if isinstance(cell, int):
        return str(cell)
    if pa.types.is_timestamp(kind):
        return f"{cell}Z" if kind.tz is not None else cell
    if pa.types.is_decimal(kind) and is_toml:
        return str(cell)
    return cell if pa.types.is_date(kind) else _quoted(cell)


def _float(value: float, *, is_toml: bool) -> str:
    if value in (float("inf"), float("-inf")):
        return str(value) if is_toml else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    mantissa, letter, exponent = text.partition("e")
    # YAML 1.1 reads 1e+20 as a text, unless the number has a point.
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}{letter}{exponent}"
