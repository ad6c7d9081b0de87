"""Options of the data source ``headrace``: how the source and the sink read what ``.option(...)`` was given.

Spark passes the names of options in lower case, whatever the program wrote. An unknown name is an error that suggests
the nearest known name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from headrace.client.config import ClientConfig

_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


class BadOption(ValueError):
    """An option that does not exist, or has an invalid value."""


class OptionReader:
    """Reads options by their documented names.

    :raises BadOption: if an option is unknown.
    """

    def __init__(self, given: Mapping[str, str], names: tuple[str, ...], ignored: tuple[str, ...] = ()) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in names}
        for name in self._given:
            if name in known or name.startswith("kafka.") or name in ignored:
                continue
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {known[near[0]]}?" if near else f"; the options are {', '.join(names)} and kafka.*"
            raise BadOption(f"there is no option {name}{hint}")

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        if value is not None and not value.strip():
            raise BadOption(f"the option {name} is empty")
        return value

    def one_of(self, name: str, words: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).strip().lower()
        if value not in words:
            raise BadOption(f"{name} = {value!r}: must be one of {', '.join(words)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def count(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise BadOption(f"{name} = {value!r}: must be a whole number") from None
        if number < least:
            raise BadOption(f"{name} = {number}: must be at least {least}")
        return number

    def count_or(self, name: str, default: int, *, least: int = 1) -> int:
        number = self.count(name, least=least)
        return default if number is None else number

    def duration_ms(self, name: str, default_ms: int) -> int:
        value = self.text(name)
        if value is None:
            return default_ms
        found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
        unit = (found[2] or "ms") if found else ""
        unit_ms = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if found is None or unit_ms is None:
            raise BadOption(f"{name} = {value!r}: must be a time such as 15m, 30s or 500ms")
        return int(found[1]) * unit_ms

    def kafka(self) -> dict[str, str]:
        """The options of the client, without the prefix ``kafka.``.

        ``enable.metrics.push`` is off by default: a client of a task lives for seconds, and each would push its metrics
        as a client of its own.
        """
        found = {name[len("kafka.") :]: value for name, value in self._given.items() if name.startswith("kafka.")}
        if not found.get("bootstrap.servers", "").strip():
            raise BadOption(
                'kafka.bootstrap.servers is missing: set it to the address of a broker, such as "127.0.0.1:9092"'
            )
        found.setdefault("enable.metrics.push", "false")
        return found


def shared_client_options(client: Mapping[str, str]) -> dict[str, str]:
    """The options that every kind of client has."""
    return ClientConfig.select(client)


def short_client_options(client: Mapping[str, str]) -> dict[str, str]:
    """The options of a client that lives for a call or two: it is not asked for its metrics."""
    return {**shared_client_options(client), "enable.metrics.push": "false"}
