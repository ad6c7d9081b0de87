"""Makes texts and documents of the bytes of keys and values.

``auto`` tries in this order: the schema registry (if the bytes begin with the five bytes of one), JSON objects and
arrays, text, hex. A reader may ask for one of them. What cannot be decoded as asked is shown as ``auto`` does, with the
reason. Texts are cut before they are decoded, so a value of 10 MB costs no more than one of 10 KB.

Characters that could change how the text around them looks are shown as escapes: control characters, marks that turn
the direction of writing, and halves of surrogates.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.console.protection.audit import HIDDEN
from headrace.console.records.masking import CUT, Masks
from headrace.console.records.registry import NotDecoded, RecordSchemas

FORMATS = ("auto", "json", "text", "hex", "registry")
LARGEST_DOCUMENT_BYTES = 2_000_000
SHOWN_DEPTH = 24
#: Filters reach deeper than pages show.
DEEPEST = 100
_HOSTILE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_BYTES_PER_LINE = 16
_CONFLUENT_BYTES = 5
_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False, default=str)
_TOO_LARGE = f"larger than {LARGEST_DOCUMENT_BYTES} bytes, too large to be decoded"


@dataclass(frozen=True)
class Shown:
    """A key, a value or a header as a page shows it.

    :ivar format: null, json, text, hex, avro, protobuf, json schema, or hidden.
    :ivar size_bytes: the size of the whole value; None if it is null.
    :ivar is_cut: whether only the beginning is in ``text``.
    :ivar problem: why it could not be decoded as asked.
    """

    format: str
    text: str
    size_bytes: int | None
    is_cut: bool = False
    problem: str = ""


class Document(NamedTuple):
    """A value as plain dicts, lists, texts and numbers. Masks were applied."""

    content: Any
    format: str


def harmless(text: str) -> str:
    """The text with escapes instead of characters that a page must not get."""
    return _HOSTILE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Decoder:
    """Decodes the records of one console."""

    def __init__(self, masks: Masks, schemas: RecordSchemas | None = None) -> None:
        self.masks = masks
        self._schemas = schemas

    def show(self, data: bytes | None, wanted: str = "auto", longest: int = 2_000) -> Shown:
        """
        :param wanted: one of ``FORMATS``.
        :param longest: the most characters of the text.
        """
        if data is None:
            return Shown("null", "", None)
        problem = ""
        if wanted in ("auto", "json", "registry") or self.masks:
            document, problem = self._documented(data, "auto" if wanted in ("text", "hex") else wanted, SHOWN_DEPTH)
            # With masks, text and hex would show the fields as well.
            if document is not None:
                text = _pretty(document.content, longest)
                return _cut(document.format, text, longest, len(data), problem)
        if self.masks and self._is_hidden(data):
            return Shown("hidden", HIDDEN, len(data), problem=problem)
        if wanted != "hex" and (text_of := _text(data, longest)) is not None:
            return _cut("text", text_of, longest, len(data), problem, len(data) > longest * 4)
        return _cut("hex", _hex(data[:longest]), longest, len(data), problem, len(data) > longest)

    def brief(self, data: bytes | None, longest: int) -> str | None:
        """The beginning of a value in one line; None if it is null."""
        shown = self.searched(data if data is None or self.masks or data[:1] == b"\0" else data[: longest * 4])
        if shown is None:
            return None
        if shown == b"" and data:
            return HIDDEN
        framed = self.document(data) if shown[:1] == b"\0" else None
        if framed is not None:
            text = json.dumps(framed.content, ensure_ascii=False, default=str)
        else:
            found = _text(shown, longest)
            text = shown[:longest].hex(" ") if found is None else found
        return harmless(text[:longest] + CUT if len(text) > longest or len(data or b"") > longest * 4 else text)

    def document(self, data: bytes | None) -> Document | None:
        """The document in the bytes, with masks applied; None if there is none."""
        return None if data is None else self._documented(data, "auto", DEEPEST)[0]

    def searched(self, data: bytes | None) -> bytes | None:
        """The bytes that a search looks into: all of them, or with masks only those that may be shown."""
        if data is None or not self.masks:
            return data
        document = self.document(data)
        if document is not None:
            return json.dumps(document.content, ensure_ascii=False, default=str).encode("utf-8", "replace")
        return b"" if self._is_hidden(data) else data

    def masked_text(self, text: str) -> str:
        """A text that becomes a part of a record, as the audit log may have it."""
        shown = self.searched(text.encode("utf-8", "replace")) or b""
        return shown.decode("utf-8", "replace") if shown or not text else HIDDEN

    # -- parts

    def _is_hidden(self, data: bytes) -> bool:
        try:
            return self.masks.hides_text(data.decode("utf-8"))
        except UnicodeDecodeError:
            return True

    def _documented(self, data: bytes, wanted: str, depth: int) -> tuple[Document | None, str]:
        """The document, or why there is none. No reason is given if nobody asked for a document."""
        if len(data) > LARGEST_DOCUMENT_BYTES:
            return None, _TOO_LARGE if wanted != "auto" else ""
        problem = ""
        is_framed = len(data) >= _CONFLUENT_BYTES and data[0] == 0
        if wanted != "json" and is_framed and self._schemas is not None:
            try:
                kind, content = self._schemas.decode(data)
                return Document(self.masks.document(content, depth), kind), ""
            except NotDecoded as error:
                problem = harmless(str(error)[:500])
        elif wanted == "registry":
            missing = "the console has no --registry" if self._schemas is None else "it has no id of a schema"
            problem = f"not decoded by the registry: {missing}"
        if data[:1].strip() and data.lstrip()[:1] not in (b"{", b"[") and wanted != "json":
            return None, problem
        try:
            content = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            return None, problem or ("" if wanted == "auto" else harmless(f"not JSON: {str(error)[:200]}"))
        if not isinstance(content, dict | list) and wanted != "json":
            return None, problem
        # A filter of a search asks for millions of documents: none is copied without need.
        is_as_wanted = depth == DEEPEST and not self.masks
        return Document(content if is_as_wanted else self.masks.document(content, depth), "json"), problem


def _text(data: bytes, longest: int) -> str | None:
    """The beginning of a text; None if the bytes are not UTF-8, or hardly text."""
    head = data[: longest * 4]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut may split the last character.
        if len(head) == len(data) or error.start < len(head) - 3:
            return None
        text = head[: error.start].decode("utf-8")
    hostile = sum(character < " " and character not in "\t\r\n" for character in text[:1_000])
    return None if hostile * 4 > min(len(text), 1_000) else text


def _pretty(content: Any, longest: int) -> str:
    """The beginning of a document, without writing the rest of it."""
    parts: list[str] = []
    size = 0
    for part in _ENCODER.iterencode(content):
        parts.append(part)
        size += len(part)
        if size > longest:
            break
    return "".join(parts)


def _hex(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), _BYTES_PER_LINE):
        part = data[at : at + _BYTES_PER_LINE]
        readable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {readable}")
    return "\n".join(lines)


def _cut(kind: str, text: str, longest: int, size_bytes: int, problem: str, is_cut: bool = False) -> Shown:
    text = harmless(text[: longest + 1])
    if len(text) > longest:
        text, is_cut = text[:longest] + CUT, True
    return Shown(kind, text, size_bytes, is_cut, problem)
