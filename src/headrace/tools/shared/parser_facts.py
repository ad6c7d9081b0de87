"""Reads the options of commands from argparse, for the pages of ``docs/commands`` and for shell completion."""

from __future__ import annotations

import argparse
from argparse import Action, ArgumentParser
from importlib import import_module

from headrace.tools.main import COMMANDS


def parser_of(command: str) -> ArgumentParser:
    parser: ArgumentParser = import_module(COMMANDS[command][0]).parser()
    return parser


def options_of(parser: ArgumentParser) -> list[Action]:
    """Options and positional arguments, without ``--help`` and hidden options."""
    return [
        action
        for action in parser._actions
        if action.dest != "help"
        and action.help is not argparse.SUPPRESS
        and not isinstance(action, argparse._SubParsersAction)
    ]


def subcommands_of(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """Subcommands by name; most commands have none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def takes_value(action: Action) -> bool:
    return action.nargs != 0


def values_of(action: Action) -> list[str]:
    """The allowed values, if the option has a list of them."""
    return [] if action.choices is None else [str(choice) for choice in action.choices]


def value_name(action: Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    values = values_of(action)
    return "{" + ",".join(values) + "}" if values else action.dest.upper()


def spelling(action: Action) -> str:
    """``--data DIR``."""
    if not action.option_strings:
        return value_name(action)
    names = ", ".join(action.option_strings)
    return f"{names} {value_name(action)}" if takes_value(action) else names


def takes_file(action: Action) -> bool:
    return takes_value(action) and value_name(action).startswith(("FILE", "DIR"))
