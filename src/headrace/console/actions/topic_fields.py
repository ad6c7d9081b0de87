"""Holds the fields that several actions on topics have, and their checks."""

from __future__ import annotations

import re

from headrace.console.fields import Field

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME = 249


def wrong_topic_name(name: str) -> str:
    """Returns what is wrong with the name of a topic; empty if nothing is."""
    if name in (".", ".."):
        return "a topic cannot be called '.' or '..'"
    if not _LEGAL.fullmatch(name):
        return "use letters, digits, '.', '_' and '-'"
    return ""


#: The topic that the page is about.
TOPIC = Field("topic", is_required=True, longest=_LONGEST_NAME, check=wrong_topic_name, is_fixed=True)
#: The record of the topic that the page is about.
PARTITION = Field("partition", "Partition", kind="number", is_required=True, least=0, is_fixed=True)
OFFSET = Field("offset", "Offset", kind="number", is_required=True, least=0, is_fixed=True)
NEW_TOPIC = Field(
    "topic", "Name", is_required=True, longest=_LONGEST_NAME, check=wrong_topic_name,
    help="letters, digits, '.', '_' and '-'",
)  # fmt: skip


def read_settings(text: str) -> dict[str, str]:
    """Reads lines ``NAME=VALUE``.

    :raises ValueError: if a line is something else.
    """
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{line[:100]!r} is not NAME=VALUE")
        if name.strip() in found:
            raise ValueError(f"{name.strip()[:100]!r} is given twice")
        found[name.strip()] = value.strip()
    return found


def wrong_settings(text: str) -> str:
    try:
        read_settings(text)
    except ValueError as error:
        return str(error)
    return ""
