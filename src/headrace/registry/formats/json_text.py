"""Reads JSON texts of clients, with bounds."""

from __future__ import annotations

import json
from math import isinf
from typing import Any

from headrace.registry.formats.parsing import InvalidSchema

MAX_DEPTH = 100


def load(text: str) -> Any:
    """
    :raises InvalidSchema: if the text is not JSON, or is nested too deeply.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_float)
        text.encode()
    except RecursionError:
        raise InvalidSchema(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise InvalidSchema(f"it is not JSON: {error}") from None
    if depth(value) > MAX_DEPTH:
        raise InvalidSchema(f"it is nested more than {MAX_DEPTH} levels deep")
    return value


def compact(value: object, *, sort_keys: bool = False) -> str:
    """
    :raises InvalidSchema: if a text in it is not Unicode.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("a text in it is not Unicode: it has half of a surrogate pair") from None
    return text


def depth(value: object) -> int:
    """How deeply a JSON value is nested. Not recursive, so that it ends for every value."""
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        each, level = waiting.pop()
        deepest = max(deepest, level)
        if isinstance(each, dict):
            waiting += [(child, level + 1) for child in each.values()]
        elif isinstance(each, list):
            waiting += [(child, level + 1) for child in each]
    return deepest


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _float(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
