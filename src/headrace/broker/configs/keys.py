"""Defines a setting: its name, type, default, allowed values, how it may change, and its documentation.

A :class:`ConfigKey` is one row of the registry (the ``table_*`` modules). Parsing, DescribeConfigs, AlterConfigs and
``docs/configs.md`` are all derived from these rows, so they cannot contradict each other. A value has two forms: the
text that a user or a client writes, and the typed value that the broker reads. :meth:`ConfigKey.parse` converts the
text, :func:`to_text` converts the typed value. Both follow Kafka's rules (``" 5 "`` is 5, ``TRUE`` is true, a list is
split at commas).

The tables are imported at every start, so this module imports nothing that is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from re import compile as regex
from typing import NamedTuple

from headrace.properties import ConfigError

Value = bool | int | float | str | tuple[str, ...] | None

_INTEGER = regex(r"[+-]?[0-9]+")
_DECIMAL = regex(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ConfigType(IntEnum):
    """The types, with their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """How a broker's setting may change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


# Short names for the tables, which use them in every row.
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ConfigType
HIGH, MEDIUM, LOW = Importance
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308
MINUTES = 60_000
HOURS = 3_600_000


class Check:
    """A condition on a value of the right type. ``allowed`` completes the sentence "must be ..."."""

    __slots__ = ("accepts", "allowed")

    def __init__(self, allowed: str, accepts: Callable[[Value], bool]) -> None:
        self.allowed = allowed
        self.accepts = accepts


class Synonym(NamedTuple):
    """A broker setting that is the default of a topic's setting. ``unit`` converts its value to the topic's unit."""

    name: str
    unit: int = 1


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: Value
    check: Check | None
    importance: Importance
    update: Update
    doc: str
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Returns the typed value of a text.

        :raises ConfigError: with one line that says which values are allowed.
        """
        value = _PARSERS[self.type](text.strip())
        if value is None:
            raise ConfigError(self._problem(text, _MUST_BE[self.type]))
        if self.check is not None and not self.check.accepts(value):
            raise ConfigError(self._problem(text, self.check.allowed))
        return value

    def _problem(self, text: str, allowed: str) -> str:
        shown = "[hidden]" if self.is_sensitive else repr(text)
        return f"Invalid value {shown} for configuration {self.name}: must be {allowed}"


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _integer(bits: int, text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None or len(text) > 24:
        return None
    value = int(text)
    return value if -(1 << bits) <= value < (1 << bits) else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.SHORT: lambda text: _integer(15, text),
    ConfigType.INT: lambda text: _integer(31, text),
    ConfigType.LONG: lambda text: _integer(63, text),
    ConfigType.DOUBLE: lambda text: float(text) if _DECIMAL.fullmatch(text) else None,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}

_MUST_BE = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
}


def to_text(value: Value) -> str | None:
    """Returns a typed value as DescribeConfigs shows it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _double_text(value) if isinstance(value, float) else str(value)


def _double_text(value: float) -> str:
    """Returns a double as Java prints it: plain between 0.001 and 10 million, otherwise as 1.5E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = repr(value)
        return plain if "e" not in plain else f"{value:f}"
    digits, _, exponent = f"{value:.16e}".partition("e")
    for precision in range(17):
        digits, _, exponent = f"{value:.{precision}e}".partition("e")
        if float(f"{digits}e{exponent}") == value:
            break
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"
