"""Makes ``docs/commands.md`` and a page for each command from their parsers; ``script/generate-docs`` calls it.

The pages come from the parsers, not from the text of ``--help``, because argparse changes its layout between Python
versions.
"""

from argparse import Action, ArgumentParser
from collections.abc import Iterator

from headrace.tools.docs.markdown import table
from headrace.tools.main import COMMANDS
from headrace.tools.shared.parser_facts import options_of, parser_of, spelling, subcommands_of

FOLDER = "docs/commands"

_MADE_BY = "<!-- Made by script/generate-docs from src/headrace/tools. Do not edit. -->"
_INTRODUCTION = f"""\
# Commands

{_MADE_BY}

`headrace COMMAND --help` prints the same text as these pages. Flags and output are those of Kafka's own tools.

Results go to standard output, errors to standard error. Colour, tables and progress bars appear on terminals only;
piped output is plain text. Exit codes: 0 done, 1 failed, 2 wrong usage or cannot start, 130 stopped by Ctrl-C.
"""


def render_index() -> str:
    commands = ((f"[`headrace {name}`](commands/{name}.md)", purpose) for name, (_, purpose) in COMMANDS.items())
    return "\n".join((_INTRODUCTION, *table(("Command", "What it is for"), commands)))


def render_command(name: str) -> str:
    return "\n".join(_page(name, parser_of(name)))


def _page(name: str, parser: ArgumentParser) -> Iterator[str]:
    yield f"# headrace {name}\n\n{_MADE_BY}\n"
    yield f"{parser.description}\n"
    yield from _options(parser)
    for subcommand, subparser in subcommands_of(parser).items():
        yield f"## headrace {name} {subcommand}\n"
        if subparser.description:
            yield f"{subparser.description}\n"
        yield from _options(subparser)
    if parser.epilog:
        heading, _, examples = parser.epilog.strip().partition("\n")
        assert heading == "examples:", f"{parser.prog}: the epilog begins with {heading!r}"
        lines = (line.strip() for line in examples.splitlines())
        yield "## Examples\n\n```\n" + "\n".join(lines) + "\n```\n"
    yield "[All commands](../commands.md)\n"


def _options(parser: ArgumentParser) -> Iterator[str]:
    rows = [_row(parser, action) for action in options_of(parser)]
    if rows:
        yield from table(("Option", "What it does"), rows)


def _row(parser: ArgumentParser, action: Action) -> tuple[str, str]:
    assert action.help, f"{parser.prog}: {action.dest} has no help"
    text = (action.help % {**vars(action), "prog": parser.prog}).replace("__", "\\_\\_").replace("<", "&lt;")
    needed = " (required)" if action.required and action.option_strings else ""
    return f"`{spelling(action)}`", f"{text}{needed}"
