"""Turns what pages and actions return into JSON: dataclasses and named tuples become objects.

Bytes become text, with ``\\ufffd`` for what is not UTF-8; a page that needs the exact bytes encodes them itself. NaN
and infinity have no JSON, and become null.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any


def encoded(value: object) -> bytes:
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="replace")


def plain(value: Any) -> Any:
    """The value as dicts, lists, texts and numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, Set):
        return sorted(plain(each) for each in value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", errors="replace")
    return str(value)
