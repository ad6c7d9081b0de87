"""``headrace completion``: a script that lets a shell complete our commands, their options and what options take.

The script is made from the parsers once, and knows them from then on: a shell that asked us at every tab would wait
for Python to start. So it is made again after an upgrade, or each time a shell starts, as the examples do.
"""

from __future__ import annotations

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.tools.main import COMMANDS
from headrace.tools.shared.commands import Output, UsageError, new_parser, run
from headrace.tools.shared.parser_facts import (
    options_of,
    parser_of,
    subcommands_of,
    takes_file,
    takes_value,
    value_name,
    values_of,
)

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
    parser.add_argument("shell", nargs="?", choices=list(_SCRIPTS), help="the shell; without it that of $SHELL")
    return parser


def _work(options: Namespace, _: Output) -> None:
    shell = options.shell or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _SCRIPTS:
        raise UsageError(f"say for which shell: {', '.join(_SCRIPTS)}")
    sys.stdout.writelines(f"{line}\n" for line in _SCRIPTS[shell](_commands()))


class _Option(NamedTuple):
    names: tuple[str, ...]
    help: str
    takes_value: bool
    value_name: str
    values: tuple[str, ...]
    takes_file: bool


class _Command(NamedTuple):
    name: str
    purpose: str
    options: tuple[_Option, ...]
    #: Names of subcommands, and the values of arguments without a name.
    words: tuple[str, ...]


def _commands() -> list[_Command]:
    return [_command(name, purpose) for name, (_, purpose) in COMMANDS.items()]


def _command(name: str, purpose: str) -> _Command:
    parser = parser_of(name)
    subcommands = subcommands_of(parser)
    actions = [action for each in (parser, *subcommands.values()) for action in options_of(each)]
    options = {action.option_strings[0]: _option(action) for action in actions if action.option_strings}
    values = [value for action in actions if not action.option_strings for value in values_of(action)]
    return _Command(name, purpose, tuple(options.values()), (*subcommands, *values))


def _option(action: Action) -> _Option:
    return _Option(
        tuple(action.option_strings),
        (action.help or "") % {**vars(action), "prog": "headrace"},
        takes_value(action),
        value_name(action),
        tuple(values_of(action)),
        takes_file(action),
    )


# ------------------------------------------------------------------------------------------------------------- bash


def _bash(commands: list[_Command]) -> Iterator[str]:
    yield "# Completion of headrace for bash, made by 'headrace completion bash'."
    yield "_headrace() {"
    yield '    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=""'
    yield "    COMPREPLY=()"
    yield "    if ((COMP_CWORD == 1)); then"
    names = " ".join(command.name for command in commands)
    yield f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$current"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $previous" in'
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = " | ".join(f'"{command.name} {name}"' for name in option.names)
                yield f"        {pattern}) {_bash_value(option)}return ;;"
    yield "    esac"
    yield "    case ${COMP_WORDS[1]} in"
    for command in commands:
        words = " ".join((*command.words, *(name for option in command.options for name in option.names), "--help"))
        yield f'        {command.name}) words="{words}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -F _headrace headrace"


def _bash_value(option: _Option) -> str:
    """Where only the user knows the value, nothing is offered."""
    if option.values:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.values)}" -- "$current")); '
    if option.takes_file:
        return 'COMPREPLY=($(compgen -f -- "$current")); compopt -o filenames 2>/dev/null; '
    return ""


# -------------------------------------------------------------------------------------------------------------- zsh


def _zsh(commands: list[_Command]) -> Iterator[str]:
    yield "#compdef headrace"
    yield "# Completion of headrace for zsh, made by 'headrace completion zsh'."
    yield "_headrace() {"
    yield "  local -a commands"
    yield "  commands=("
    for command in commands:
        yield f"    '{command.name}:{_quoted(command.purpose)}'"
    yield "  )"
    yield "  if (( CURRENT == 2 )); then"
    yield "    _describe command commands"
    yield "    return"
    yield "  fi"
    yield '  local command="$words[2]"'
    yield "  shift words; (( CURRENT-- ))"
    yield "  case $command in"
    for command in commands:
        yield f"    {command.name})"
        specs = [f"'{spec}'" for option in command.options for spec in _zsh_specs(option)]
        if command.words:
            specs.append(f"'*:word:({' '.join(command.words)})'")
        yield "      _arguments " + " \\\n        ".join([*specs, "'--help[say what there is]'"]) + " ;;"
    yield "  esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_headrace" ]; then _headrace "$@"; else compdef _headrace headrace; fi'


def _zsh_specs(option: _Option) -> Iterator[str]:
    text = _quoted(option.help).replace("[", "\\[").replace("]", "\\]")
    values = f"({' '.join(option.values)})" if option.values else ""
    action = values or ("_files" if option.takes_file else "")
    value = f":{_quoted(option.value_name).replace(':', chr(92) + ':')}:{action}" if option.takes_value else ""
    for name in option.names:
        yield f"*{name}[{text}]{value}"


def _quoted(text: str) -> str:
    """For a place between single quotes."""
    return text.replace("'", "'\\''")


# ------------------------------------------------------------------------------------------------------------- fish


def _fish(commands: list[_Command]) -> Iterator[str]:
    yield "# Completion of headrace for fish, made by 'headrace completion fish'."
    yield "complete -c headrace -f"
    for command in commands:
        yield f"complete -c headrace -n __fish_use_subcommand -a {command.name} -d '{_fish_text(command.purpose)}'"
    for command in commands:
        start = f"complete -c headrace -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            yield f"{start} -a '{' '.join(command.words)}'"
        for option in command.options:
            names = " ".join(
                f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-s {name.removeprefix('-')}"
                for name in option.names
            )
            value = ""
            if option.values:
                value = f" -x -a '{' '.join(option.values)}'"
            elif option.takes_value:
                value = " -r -F" if option.takes_file else " -x"
            yield f"{start} {names}{value} -d '{_fish_text(option.help)}'"


def _fish_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
