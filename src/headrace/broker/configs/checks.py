"""Checks the values of settings: ranges, choices, lists of choices."""

from __future__ import annotations

from re import compile as regex

from headrace.broker.configs.keys import Check, Value
from headrace.security.principal import Principal

_PARTITION_AND_BROKER = regex(r"[0-9]+:[0-9]+")


def at_least(low: float) -> Check:
    def accepts(value: Value) -> bool:
        assert isinstance(value, int | float)
        return value >= low

    return Check(f"at least {low}", accepts)


def between(low: float, high: float, *, besides: float | None = None) -> Check:
    def accepts(value: Value) -> bool:
        assert isinstance(value, int | float)
        return low <= value <= high or value == besides

    return Check(f"between {low} and {high}" + ("" if besides is None else f", or {besides}"), accepts)


def one_of(*choices: str, ignore_case: bool = False) -> Check:
    def accepts(value: Value) -> bool:
        assert isinstance(value, str)
        return value in choices or (ignore_case and value.lower() in choices)

    return Check(f"one of {', '.join(choices)}", accepts)


def one_of_numbers(*choices: int) -> Check:
    return Check(f"one of {', '.join(map(str, choices))}", lambda value: value in choices)


def items(*choices: str, may_be_empty: bool = True) -> Check:
    """Accepts a list without blank or repeated items. If there are choices, all items must be among them."""

    def accepts(value: Value) -> bool:
        assert isinstance(value, tuple)
        if not value:
            return may_be_empty
        is_clean = len(set(value)) == len(value) and "" not in value
        return is_clean and (not choices or set(value) <= set(choices))

    of = f" of {', '.join(choices)}" if choices else ""
    return Check(f"a list{of}, {'' if may_be_empty else 'not empty, '}each item once and none blank", accepts)


def principals() -> Check:
    """Accepts principals with semicolons between them, because names of certificates contain commas."""

    def accepts(value: Value) -> bool:
        assert isinstance(value, str)
        try:
            split_principals(value)
        except ValueError:
            return False
        return True

    return Check("principals such as User:alice, separated by semicolons", accepts)


def split_principals(text: str) -> list[Principal]:
    """
    :raises ValueError: if a principal has no type.
    """
    return [Principal.parse(each.strip()) for each in text.split(";") if each.strip()]


def only_false() -> Check:
    """For a switch of a feature that Headrace does not have."""
    return Check("false, because this is not supported", lambda value: value is False)


def throttled_replicas() -> Check:
    def accepts(value: Value) -> bool:
        assert isinstance(value, tuple)
        return value == ("*",) or all(_PARTITION_AND_BROKER.fullmatch(item) for item in value)

    return Check("*, or a list of partition:broker such as 0:101,1:102", accepts)


def host_port() -> Check:
    def accepts(value: Value) -> bool:
        assert isinstance(value, str)
        _, colon, port = value.rpartition(":")
        return not value or (bool(colon) and port.isascii() and port.isdigit() and int(port) < 65536)

    return Check("HOST:PORT, or empty", accepts)
