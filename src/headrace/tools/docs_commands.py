"""Makes ``docs/commands.md`` from the commands and their parsers; ``script/generate-docs`` calls it.

From the parsers' facts and not from ``--help``: how argparse lays that out changes from one Python to the next.
"""

from argparse import Action, ArgumentParser
from collections.abc import Iterator
from importlib import import_module

from headrace.tools.main import COMMANDS
from headrace.tools.markdown import table

_INTRODUCTION = """\
# Commands

<!-- Made by script/generate-docs from src/headrace/tools. Do not edit. -->

`headrace COMMAND --help` says the same. Exit codes: 0 done, 1 failed, 2 wrong use or cannot start.
"""


def render() -> str:
    """The page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    commands = ((f"[`headrace {name}`](#headrace-{name})", purpose) for name, (_, purpose) in COMMANDS.items())
    yield from table(("Command", "What it is for"), commands)
    for name, (module, _) in COMMANDS.items():
        parser: ArgumentParser = import_module(module).parser()
        yield f"## headrace {name}\n"
        yield f"{parser.description}\n"
        rows = [_row(parser, action) for action in parser._actions if action.dest != "help"]
        yield from table(("Option", "What it does"), rows)
        if parser.epilog:
            yield f"```\n{parser.epilog.strip()}\n```\n"


def _row(parser: ArgumentParser, action: Action) -> tuple[str, str]:
    assert action.help, f"{parser.prog}: {action.dest} has no help"
    text = action.help % {**vars(action), "prog": parser.prog}
    needed = " (required)" if action.required and action.option_strings else ""
    return _spelling(action), f"{text}{needed}"


def _spelling(action: Action) -> str:
    names = ", ".join(action.option_strings) or action.dest.upper()
    if action.nargs == 0 or not action.option_strings:
        return f"`{names}`"
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f"`{names} {value}`"
