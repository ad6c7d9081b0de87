"""Decides which settings a broker refuses because Headrace does not implement them (``table_refused.py``).

The decision uses the texts of the settings, before anything is parsed: a refused setting need not be well formed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.table_refused import ROWS, Refused
from headrace.broker.configs.table_security import KEYS, STORE_SETTINGS

_ROWS = {row.name: row for row in ROWS}
_KNOWN = frozenset(key.name for key in KEYS)


def refused_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that a broker refuses, in their order, each with the feature that is missing."""
    refused: dict[str, str] = {}
    for name, text in settings.items():
        row = refused_row(name)
        if row is not None and text.strip() and text.strip().lower() not in map(str.lower, row.accepted):
            refused[name] = row.missing
    return refused


def refused_changes(static: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that a running broker refuses, in their order, each with the feature that is missing."""
    given = {**static, **dynamic}
    refused = refused_settings(given)
    refused |= dict.fromkeys(STORE_SETTINGS.intersection(dynamic), "changes of stores without a listener's prefix")
    return {name: refused[name] for name in given if name in refused}


def refusal_line(refused: Mapping[str, str]) -> str:
    """Returns the error message, in one line. It leaves out values, because some of them are secrets."""
    return (
        f"Cannot accept {', '.join(refused)}: Headrace does not have this yet (missing: "
        f"{', '.join(dict.fromkeys(refused.values()))}), and nothing would be protected. Remove "
        f"{'these settings' if len(refused) > 1 else 'this setting'}"
    )


def refused_row(name: str) -> Refused | None:
    """Returns the row of a setting, also if the setting has a listener's (and a mechanism's) prefix."""
    if not name.startswith(LISTENER_PREFIX):
        return _row(name)
    return next((row for base in _without_prefixes(name) if (row := _row(base)) is not None), None)


def _row(name: str) -> Refused | None:
    """Returns the row with the longest name that fits."""
    if name in _ROWS:
        return _ROWS[name]
    parts = name.split(".")
    starts = (".".join(parts[:count]) + "." for count in range(len(parts) - 1, 0, -1))
    row = next((_ROWS[start] for start in starts if start in _ROWS), None)
    return None if row is not None and row.only_unknown and name in _KNOWN else row


def _without_prefixes(name: str) -> Iterator[str]:
    """Yields all names that the setting may have without its prefixes. Names of listeners may contain dots."""
    rest = name.removeprefix(LISTENER_PREFIX)
    while "." in rest:
        rest = rest.partition(".")[2]
        yield rest
