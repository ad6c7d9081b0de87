"""Renders templates: Jinja2 with autoescape always on, the filters that write numbers, and links.

A value reaches HTML only through autoescape: no template uses ``|safe``, and no code of the console builds HTML from
values, except ``history/charts.py``, which writes only numbers and escaped titles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headrace.console.history.charts import chart
from headrace.console.texts import NOT_KNOWN, bytes_text, count_text, duration_text, rate_text, when_text

FOLDER = Path(__file__).parent
_PARAMETER = re.compile(r"\{(\w+)\}")


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
    environment.globals.update(link=link, chart=chart, not_known=NOT_KNOWN)
    environment.globals["ui"] = environment.get_template("macros.html").module
    return environment


def link(path: str, /, **values: object) -> str:
    """A path of the registries with its parameters, and the other values as the query. None, "" and False are left out.

    ::

        link("/topics/{topic}", topic="a/b", page=2)  ->  /topics/a%2Fb?page=2
    """
    in_path = set(_PARAMETER.findall(path))
    filled = _PARAMETER.sub(lambda found: quote(str(values[found[1]]), safe=""), path)
    query = {
        name: "true" if value is True else value
        for name, value in values.items()
        if name not in in_path and value is not None and value is not False and value != ""
    }
    return f"{filled}?{urlencode(query)}" if query else filled


def shell_text(words: list[str]) -> str:
    """A command line as a shell reads it."""
    from shlex import join

    return join(words)
