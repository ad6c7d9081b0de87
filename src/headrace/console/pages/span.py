"""Holds the parameter that chooses how far back the lines of a page go."""

from __future__ import annotations

from headrace.console.fields import Field
from headrace.console.history.history import SPANS_MS

#: The template shows it by the macro ``ui.spans``.
SPAN = Field("span", kind="choice", choices=tuple(SPANS_MS), default="1h", help="how far back the lines go")
