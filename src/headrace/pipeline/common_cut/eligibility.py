"""Says which versions can read in rounds with others, and why the others cannot."""

from __future__ import annotations

#: A version that looks for records less often would make all others as slow.
MAX_TRIGGER_MS = 1_000
#: The ways whose versions choose their offsets by themselves.
_WHY_NOT = {
    "stream": "Spark's stream chooses its own offsets",
    "whole": "its whole answer is computed at offsets of its own",
}


def why_outside(way: str, trigger_ms: int, *, same_offsets: bool) -> str | None:
    """Why a version does not have the offsets of other versions that read its topics; None if it has them.

    :param way: how the version is kept up to date.
    :param same_offsets: the setting of the project.
    """
    if not same_offsets:
        return "[serving] same_offsets is false"
    if way in _WHY_NOT:
        return _WHY_NOT[way]
    if trigger_ms > MAX_TRIGGER_MS:
        return f"its trigger_ms is {trigger_ms}, more than {MAX_TRIGGER_MS}"
    return None
