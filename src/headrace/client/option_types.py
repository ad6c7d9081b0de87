"""The fields and types of options: how their values are parsed, and what the documentation calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple


class Option(NamedTuple):
    """One option, for the documentation."""

    name: str
    python_name: str
    type: str
    default: object
    doc: str


def option(
    default: Any,
    doc: str,
    *,
    least: int | None = 0,
    most: int = 2**63 - 1,
    one_of: tuple[str, ...] = (),
    is_secret: bool = False,
) -> Any:
    """Makes the field of an option in a dataclass.

    :param is_secret: the value appears in no message, and not in ``repr``.
    """
    metadata = {"doc": doc, "least": least, "most": most, "one_of": one_of, "is_secret": is_secret}
    return field(default=default, metadata=metadata, repr=not is_secret)


class OptionType(NamedTuple):
    """A type of option: its name in the documentation, and its parser."""

    label: str
    parse: Callable[[object], object]


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a whole number")
    try:
        return int(value)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _bool(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError("must be a string")
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise ValueError("must be a list, or a string with commas")
    return tuple(text for item in items if (text := _text(item).strip()))


def _callable(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("must be a function")
    return value


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


_TYPES: dict[object, OptionType] = {
    int: OptionType("int", _int),
    bool: OptionType("boolean", _bool),
    str: OptionType("string", _text),
    str | None: OptionType("string", _optional),
    tuple[str, ...]: OptionType("list", _texts),
    Any: OptionType("class", lambda value: value),
}
_FUNCTION = OptionType("function", _callable)


def option_type(annotation: object) -> OptionType:
    """Returns the type of an option from the annotation of its field."""
    return _TYPES.get(annotation, _FUNCTION)
