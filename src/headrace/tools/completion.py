"""``headrace completion``: prints a script that lets a shell complete commands, options and their values.

shtab writes the script from our parsers. The script contains all commands, so that a shell does not start Python at
every Tab. Make the script again after an upgrade, or at each start of a shell, as the examples do.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from headrace import __version__
from headrace.tools.main import COMMANDS
from headrace.tools.shared.commands import Output, UsageError, new_parser, run
from headrace.tools.shared.parser_facts import options_of, parser_of, subcommands_of, takes_file

_SHELLS = ("bash", "zsh", "fish", "tcsh")

_EXAMPLES = """
source <(headrace completion bash)  # in ~/.bashrc
source <(headrace completion zsh)   # in ~/.zshrc, after compinit
headrace completion fish > ~/.config/fish/completions/headrace.fish
"""


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def parser() -> ArgumentParser:
    parser = new_parser(
        "completion",
        "Print a script that makes a shell complete commands and options.",
        _EXAMPLES,
        connects=False,
        prints_json=False,
    )
    parser.add_argument("shell", nargs="?", choices=_SHELLS, help="the shell (default: the shell that $SHELL names)")
    return parser


def _work(options: Namespace, _: Output) -> None:
    import shtab

    shell = options.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SHELLS:
        raise UsageError(f"name the shell: {', '.join(_SHELLS)}")
    sys.stdout.write(shtab.complete(_all_commands(), shell))


def _all_commands() -> ArgumentParser:
    """One parser with every command as a subcommand, as shtab expects it."""
    import shtab

    root = ArgumentParser(prog="headrace")
    root.add_argument("--version", action="version", version=__version__, help="show the version")
    commands = root.add_subparsers()
    for name, (_, purpose) in COMMANDS.items():
        command = parser_of(name)
        for each in (command, *subcommands_of(command).values()):
            for action in options_of(each):
                if takes_file(action):
                    action.complete = shtab.FILE  # type: ignore[attr-defined]
        commands.add_parser(name, help=purpose, parents=[command], add_help=False)
    return root
