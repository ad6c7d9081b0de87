"""Decides which settings a broker refuses because Headrace does not implement them (``table_refused.py``).

The decision uses the texts of the settings, before anything is parsed: a refused setting need not be well formed.
Listeners are refused by their security protocols. So is the protocol map, if the map gives such a protocol to a
listener. Listeners of KRaft controllers are not opened, but their protocols ask for protected traffic of controllers,
so they are refused, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.listeners import SecurityProtocol
from headrace.broker.configs.table_refused import MISSING_PROTOCOLS, ROWS, Refused

_PROTOCOL_MAP = "listener.security.protocol.map"

_ROWS = {row.name: row for row in ROWS}
_PROTOCOLS = [protocol for protocol in SecurityProtocol if protocol not in MISSING_PROTOCOLS]


class Refusal(NamedTuple):
    """Why one setting is refused. ``detail`` adds information where the setting's name alone is not enough."""

    missing: tuple[str, ...]
    detail: str = ""


def refused_settings(settings: Mapping[str, str]) -> dict[str, Refusal]:
    """Returns the settings that a broker refuses, in their order."""
    refused = _refused_listeners(settings)
    for name, text in settings.items():
        row = refused_row(name)
        if row is not None and text.strip() and text.strip().lower() not in map(str.lower, row.accepted):
            refused[name] = Refusal((row.missing,))
    return {name: refused[name] for name in settings if name in refused}


def refusal_line(refused: Mapping[str, Refusal]) -> str:
    """Returns the error message, in one line. It leaves out values, because some of them are secrets."""
    shown = [f"{name} ({refusal.detail})" if refusal.detail else name for name, refusal in refused.items()]
    missing = dict.fromkeys(feature for refusal in refused.values() for feature in refusal.missing)
    return (
        f"Cannot accept {', '.join(shown)}: Headrace does not have this yet (missing: {', '.join(missing)}), "
        f"and nothing would be protected. Remove {'these settings' if len(shown) > 1 else 'this setting'}, "
        f"and use only listeners whose protocol is {' or '.join(_PROTOCOLS)}"
    )


def refused_row(name: str) -> Refused | None:
    """Returns the row of a setting, also if the setting has a listener's (and a mechanism's) prefix."""
    if not name.startswith(LISTENER_PREFIX):
        row = _row(name)
        return None if row is None or row.only_on_listener else row
    return next((row for base in _without_prefixes(name) if (row := _row(base)) is not None), None)


def _row(name: str) -> Refused | None:
    """Returns the row with the longest name that fits."""
    if name in _ROWS:
        return _ROWS[name]
    parts = name.split(".")
    starts = (".".join(parts[:count]) + "." for count in range(len(parts) - 1, 0, -1))
    return next((_ROWS[start] for start in starts if start in _ROWS), None)


def _without_prefixes(name: str) -> Iterator[str]:
    """Yields all names that the setting may have without its prefixes. Names of listeners may contain dots."""
    rest = name.removeprefix(LISTENER_PREFIX)
    while "." in rest:
        rest = rest.partition(".")[2]
        yield rest


def _refused_listeners(settings: Mapping[str, str]) -> dict[str, Refusal]:
    pairs = (pair.partition(":") for pair in settings.get(_PROTOCOL_MAP, "").split(","))
    mapped = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    refused: dict[str, Refusal] = {}
    for setting in ("listeners", "controller.listener.names"):
        names = [item.partition("://")[0].strip().upper() for item in settings.get(setting, "").split(",")]
        # Without an entry in the map, a listener's name is its protocol.
        protocols = {name: protocol for name in names if (protocol := mapped.get(name, name)) in MISSING_PROTOCOLS}
        if not protocols:
            continue
        missing = tuple(feature for protocol in protocols.values() for feature in MISSING_PROTOCOLS[protocol])
        shown = (name if name == protocol else f"{name} is {protocol}" for name, protocol in protocols.items())
        refused[setting] = Refusal(missing, ", ".join(shown))
        if protocols.keys() & mapped.keys():
            refused[_PROTOCOL_MAP] = Refusal(missing)
    return refused
