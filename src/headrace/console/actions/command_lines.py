"""Writes the command lines that do what actions do."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.console.fields import Value


def options(values: Mapping[str, Value], flags: Mapping[str, str]) -> list[str]:
    """The flags of the values that are given.

    :param flags: the flag by the name of the field.
    """
    words: list[str] = []
    for name, flag in flags.items():
        value = values[name]
        if value is not None and value is not False and value != "":
            words += [flag] if value is True else [flag, str(value)]
    return words
