"""Kafka's form of names that are part of a path in the tree: percent-encoded, as Java's URLEncoder does it.

Letters, digits, ``.``, ``-`` and ``_`` stay. All other bytes of the UTF-8 form become ``%XX``.
"""

from __future__ import annotations

from urllib.parse import quote, unquote_plus


def sanitize(name: str) -> str:
    """Returns the form of a name in a path."""
    return quote(name, safe="").replace("~", "%7E")


def desanitize(text: str) -> str:
    """Returns the name. As in Java's URLDecoder, a plus stands for a blank, and bytes that are not UTF-8 for U+FFFD."""
    return unquote_plus(text, errors="replace")
