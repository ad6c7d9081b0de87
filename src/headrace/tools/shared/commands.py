"""The parts that all commands share: options, connections, output for people and programs, errors, exit codes.

A command is a module like this::

    def parser() -> ArgumentParser:
        parser = new_parser("topics", "Create, delete, list and change topics.", EXAMPLES)
        parser.add_argument("--topic", ...)
        return parser

    def main(arguments: Sequence[str]) -> int:
        return run(parser(), arguments, work)

    def work(options: Namespace, out: Output) -> int | None:
        with connect(options) as admin:
            out.show(value, lines)          # a result: for --json, and in Kafka's words

``run`` turns an exception into one line on standard error and an exit code: 0 done, 1 failed, 2 wrong usage, 130
stopped by Ctrl-C. Raise :class:`UsageError` for wrong usage that argparse does not notice, and :class:`CommandError`
for a failure. A client's :class:`HeadraceError` is a failure too. Results go to standard output, all else to standard
error.

Colour, tables and progress bars need a terminal. Piped output is the same as that of Kafka's tool, so that scripts need
no change. rich is imported only on a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from headrace import __version__

if TYPE_CHECKING:
    from headrace import Admin
    from headrace.client.config import ClientConfig

DEFAULT_BOOTSTRAP_SERVER = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS = 10_000
DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


class CommandError(Exception):
    """The command failed; the message is the line that is printed."""


class UsageError(CommandError):
    """The options contradict each other, or a file that they name cannot be read."""


# ---------------------------------------------------------------------------------------------------------- options


def new_parser(
    command: str,
    description: str,
    examples: str,
    *,
    connects: bool = True,
    timeout_ms: int = DEFAULT_TIMEOUT_MS,
    prints_json: bool = True,
    has_timeout: bool = True,
    has_broker_list: bool = False,
) -> ArgumentParser:
    """A parser with the options that all commands have.

    :param examples: command lines as a user types them.
    :param connects: whether the command connects to a broker.
    :param has_timeout: False if the command defines ``--timeout`` itself.
    :param has_broker_list: whether ``--broker-list`` is an older name of ``--bootstrap-server``, as in some of Kafka's
        tools. In others it is a list of broker ids.
    """
    parser = ArgumentParser(
        prog=f"headrace {command}",
        description=description,
        epilog="examples:\n" + "".join(f"  {line.strip()}\n" for line in examples.strip().splitlines()),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if connects:
        parser.add_argument(
            "--bootstrap-server",
            metavar="HOST:PORT,...",
            help=f"addresses of brokers (default {DEFAULT_BOOTSTRAP_SERVER})",
        )
        if has_broker_list:
            parser.add_argument(
                "--broker-list",
                dest="old_bootstrap_server",
                metavar="HOST:PORT,...",
                help="an older name of --bootstrap-server, which takes precedence",
            )
        parser.add_argument("--command-config", metavar="FILE", type=Path, help="a properties file with client options")
        if has_timeout:
            parser.add_argument(
                "--timeout",
                metavar="MS",
                type=int,
                default=timeout_ms,
                help="give up after this time (default %(default)s)",
            )
    if prints_json:
        parser.add_argument("--json", action="store_true", help="results as JSON")
    add_version(parser)
    return parser


def add_overrides(parser: ArgumentParser) -> None:
    """Adds ``-o KEY=VALUE``, for commands that run a server."""
    parser.add_argument(
        "-o",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="one setting. Other users of the host see it in the list of processes (ps): put passwords into a file "
        "(--config), and let only the owner read the file",
    )


def add_version(parser: ArgumentParser) -> None:
    about = f"headrace {__version__}"
    parser.add_argument("--version", action="version", version=about, help="print the version and exit")


def int16(text: str) -> int:
    """An argparse type, like the next two: a number that fits into a field of the protocol."""
    return _signed(text, 16)


def int32(text: str) -> int:
    return _signed(text, 32)


def int64(text: str) -> int:
    return _signed(text, 64)


def _signed(text: str, bits: int) -> int:
    number = int(text)
    if not has_room(number, bits):
        raise ArgumentTypeError(f"{text} does not fit into {bits} bits")
    return number


def has_room(number: int, bits: int) -> bool:
    """Whether the number fits into this many bits, signed."""
    return -(1 << (bits - 1)) <= number < 1 << (bits - 1)


def actions_given(options: Namespace, names: Iterable[str]) -> list[str]:
    """The flags (such as ``"delete-offsets"``) that were given."""
    return [name for name in names if getattr(options, name.replace("-", "_"))]


def chosen_action(options: Namespace, names: Sequence[str]) -> str:
    """The one action of a command that has several."""
    given = actions_given(options, names)
    if len(given) != 1:
        choices = ", ".join(f"--{name}" for name in names)
        raise UsageError(f"Command must include exactly one action: {choices}")
    return given[0]


def client_options(
    options: Namespace, kind: type[ClientConfig], more: Mapping[str, object] | None = None, *, file: Path | None = None
) -> dict[str, object]:
    """The options of a client, by Kafka's names: those of the file, overridden by ``more`` and by the command line.

    ``bootstrap.servers`` of the file or of ``more`` applies if ``--bootstrap-server`` is not given. So this function
    adds the default address, not argparse: argparse could not tell a default from the same value on the command line.

    Several tools may share one file. Names that this client does not have are ignored, except names about
    security: those are refused.

    :param file: the file to read instead of ``--command-config``.
    """
    path = file or getattr(options, "command_config", None)
    known = {option.name for option in kind.options()}
    found: dict[str, object] = {}
    if path is not None:
        found |= kind.select(read_properties(path))
    found |= more or {}
    for servers in (getattr(options, "old_bootstrap_server", None), options.bootstrap_server):
        if servers is not None:
            found["bootstrap.servers"] = servers
    found.setdefault("bootstrap.servers", DEFAULT_BOOTSTRAP_SERVER)
    timeout_ms = options.timeout
    for name in ("default.api.timeout.ms", "max.block.ms"):
        if name in known:
            found.setdefault(name, timeout_ms)
    if timeout_ms < 30_000:
        found.setdefault("request.timeout.ms", timeout_ms)
    from headrace.client.security.setup import security_of

    try:
        security_of(kind.load(found))  # reads the key and trust stores, so that a mistake there is wrong use
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    return found


def read_properties(path: Path) -> dict[str, str]:
    from headrace.properties import ConfigError, read_properties_file

    try:
        return read_properties_file(path)
    except ConfigError as error:
        raise UsageError("; ".join(error.problems)) from None


def read_json(path: Path) -> object:
    """The JSON value of a file that the command line names."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, name: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is not JSON: {error}") from None


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not UTF-8 text") from None


@contextmanager
def connect(options: Namespace) -> Iterator[Admin]:
    """An admin client for the options of :func:`new_parser`. It pushes no metrics, because commands are short."""
    from headrace import Admin
    from headrace.client.config import AdminConfig

    with Admin(config={"enable.metrics.push": False, **client_options(options, AdminConfig)}) as admin:
        yield admin


# ----------------------------------------------------------------------------------------------------------- output


class Table(NamedTuple):
    headings: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str = ""


class Output:
    """Prints results, for people or as JSON."""

    def __init__(self, command: str, results: TextIO, complaints: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self._command = command
        self._results = results
        self._complaints = complaints

    @property
    def is_terminal(self) -> bool:
        """Whether the output goes to a terminal."""
        return not self.as_json and self._results.isatty()

    def show(self, value: object, lines: str | Iterable[str], table: Table | None = None) -> None:
        """Prints a result: ``value`` with ``--json``, otherwise ``lines`` as in Kafka's tool; on a terminal ``table``.

        A line may contain newlines, but must not end with one. ``lines`` is not iterated if it is not printed.
        """
        if self.as_json:
            self._results.write(f"{json.dumps(value)}\n")
        elif table is not None and self._results.isatty():
            self._show_table(table)
        elif isinstance(lines, str):
            self._results.write(f"{lines}\n")
        else:
            self._results.writelines(f"{line}\n" for line in lines)

    def say(self, text: str) -> None:
        """Prints a line for people; nothing with ``--json``."""
        if not self.as_json:
            self._results.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Prints a line for people to standard error; nothing with ``--json``."""
        if not self.as_json:
            self._results.flush()
            self._complaints.write(f"{text}\n")

    def complain(self, text: str) -> None:
        """Prints an error. Flushes the results first, so that the order is right if both streams are one."""
        self._results.flush()
        self._complaints.write(f"headrace {self._command}: {text}\n")

    def _show_table(self, table: Table) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        console = Console(file=self._results)
        if table.title:
            console.print(Text(table.title, style="cyan"))
        drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        rows = [[_cell(value) for value in row] for row in table.rows]
        for at, heading in enumerate(table.headings):
            is_number = bool(rows) and all(row[at].lstrip("-").isdecimal() or row[at] == "-" for row in rows)
            drawn.add_column(heading, justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def columns(headings: Sequence[str], rows: Iterable[Sequence[object]], *, gap: int = 1) -> Iterator[str]:
    """The lines of a table, aligned as in Kafka's tools: each column as wide as its widest cell, text to the left."""
    cells = [list(headings), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield (" " * gap).join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


class MoveTo(Protocol):
    """Reports the amount that is done, and the total if the total has changed."""

    def __call__(self, done: float, total: float | None = None, /) -> None: ...


@contextmanager
def progress(what: str, total: float | None, *, unit: str = "") -> Iterator[MoveTo]:
    """Shows a progress bar on standard error, if that is a terminal.

    Call the yielded function with the amount that is done.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total=None, /: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]}")
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(),
        console=Console(file=sys.stderr), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task(what, total=total, rate="")

        def move_to(done: float, total: float | None = None, /) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            text = "" if speed is None else f"{speed:,.0f} {unit}/s".replace(" /", "/")
            bar.update(task, completed=done, total=total, rate=text)  # None keeps the total.

        yield move_to


# ---------------------------------------------------------------------------------------------------------- running


def run(parser: ArgumentParser, arguments: Sequence[str], work: Callable[[Namespace, Output], int | None]) -> int:
    """Parses the arguments, does the work, and returns the exit code."""
    from headrace.client.errors import HeadraceError

    command = parser.prog.removeprefix("headrace ")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:  # --help, or wrong usage that argparse has reported.
        return end.code if isinstance(end.code, int) else WRONG_USE
    out = Output(command, sys.stdout, sys.stderr, as_json=getattr(options, "json", False))
    try:
        code = work(options, out)
        sys.stdout.flush()
        return code or DONE
    except UsageError as error:
        out.complain(f"{_one_line(error)} (see headrace {command} --help)")
        return WRONG_USE
    except (CommandError, HeadraceError) as error:
        out.complain(_one_line(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would report that again when it closes standard output.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split("\n"))
