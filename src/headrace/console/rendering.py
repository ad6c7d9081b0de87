"""Renders templates: Jinja2 with autoescape always on, the filters that write numbers, and links.

A value reaches HTML only through autoescape: no template uses ``|safe``, and no code of the console builds HTML from
values, except ``history/charts.py``, which writes only numbers and escaped titles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_PARAMETER = re.compile(r"\{(\w+)\}")
NOT_KNOWN = "–"


def render(template: str, context: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(context)


def render_live(template: str, context: Mapping[str, Any]) -> str:
    """Renders only the block ``live`` of a page, which a live page replaces."""
    found = _environment().get_template(template)
    block = found.blocks["live"]
    return "".join(block(found.new_context(dict(context))))


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(FOLDER / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes=bytes_text, count=count_text, rate=rate_text, duration=duration_text, when=when_text, shell=shell_text
    )
    environment.globals.update(link=link, not_known=NOT_KNOWN)
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


def link(path: str, /, **values: object) -> str:
    """A path of the registries with its parameters, and the other values as the query. None and "" are left out.

    ::

        link("/topics/{topic}", topic="a/b", page=2)  ->  /topics/a%2Fb?page=2
    """
    in_path = set(_PARAMETER.findall(path))
    filled = _PARAMETER.sub(lambda found: quote(str(values[found[1]]), safe=""), path)
    query = {
        name: "true" if value is True else value
        for name, value in values.items()
        if name not in in_path and value not in (None, "", False)
    }
    return f"{filled}?{urlencode(query)}" if query else filled


def bytes_text(size: float | None) -> str:
    if size is None or size < 0:
        return NOT_KNOWN
    value, unit = float(size), 0
    while value >= 1_024 and unit < len(_UNITS) - 1:
        value, unit = value / 1_024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def count_text(number: float | None) -> str:
    """``1234567`` as ``1,234,567``."""
    return NOT_KNOWN if number is None else f"{number:,.0f}"


def rate_text(number: float | None) -> str:
    """A number per second: two digits if it is small."""
    if number is None:
        return NOT_KNOWN
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.2g}"


def duration_text(milliseconds: float | None) -> str:
    if milliseconds is None:
        return NOT_KNOWN
    for size, unit in _DURATIONS:
        if abs(milliseconds) >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.0f} ms"


def when_text(time_ms: float | None) -> str:
    """A moment in UTC."""
    if time_ms is None or time_ms < 0:
        return NOT_KNOWN
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23] + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:.0f} ms"


def shell_text(words: list[str]) -> str:
    """A command line as a shell reads it."""
    from shlex import join

    return join(words)
