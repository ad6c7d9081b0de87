"""The parser of ``headrace views``, and the parts that its subcommands share.

Most commands write what the user wants into the catalog, a part of the serving database. ``run`` is the process
that acts on it. Only ``apply``, ``explain``, ``test`` and ``run`` need Spark. Each subcommand is a function of another
module of this package, which is loaded when the subcommand is called.
"""

from __future__ import annotations

import traceback
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.client.errors import HeadraceError
from headrace.tools.shared.commands import (
    DEFAULT_BOOTSTRAP_SERVER,
    FAILED,
    CommandError,
    Output,
    UsageError,
    new_parser,
    run,
)
from headrace.tools.shared.http_options import add_http_protection

if TYPE_CHECKING:
    from headrace.pipeline.management.opened import OpenProject

_EXAMPLES = """
headrace views init shop --create-topics
headrace views apply --project shop
headrace views explain users --project shop
headrace views test --project shop
headrace views test users -k "moves" --update --junit report.xml --project shop
headrace views run --project shop --serve 127.0.0.1:8090 --metrics-listen 127.0.0.1:9405
headrace views serve --listen 0.0.0.0:8090 --tls-certificate views.pem --tls-key views.key --bearer-token-file token
headrace views status --project shop --watch
headrace views graph --project shop
headrace views graph --project shop --format svg > shop.svg
headrace views switch users --project shop
headrace views rollback users --project shop
headrace views drop users 1 --project shop
headrace views batch pages --full --project shop
"""
#: Each subcommand with its function and its purpose.
COMMANDS = {
    "init": ("init:init", "create a project with two example views"),
    "apply": ("apply:apply", "check the files of a project, and make new versions of changed views"),
    "explain": ("explain:explain", "say how a view is kept up to date, why, and what an event costs"),
    "test": ("test:test", "run the tests of views: records in, rows out"),
    "list": ("status:list_views", "show the views"),
    "status": ("status:status", "show the versions with their progress and speed"),
    "graph": ("graph.command:graph", "show the sources and views, what reads what, and how far each version is"),
    "run": ("run:run_views", "run the views of a project until a signal stops it"),
    "serve": ("run:serve", "answer queries by HTTP"),
    "switch": ("change:switch", "switch readers to another version"),
    "rollback": ("change:rollback", "switch readers to the version before"),
    "drop": ("change:drop", "delete a version, or a view with all of its versions"),
    "batch": ("change:batch", "run a batch of a Lambda view or compute a whole answer now, and wait for it"),
}


def main(arguments: Sequence[str]) -> int:
    return run(parser(), arguments, _work)


def _work(options: Namespace, out: Output) -> int | None:
    module, _, function = COMMANDS[options.command][0].partition(":")
    try:
        package = __name__.rpartition(".")[0]
        work: Callable[[Namespace, Output], int | None] = getattr(import_module(f"{package}.{module}"), function)
        from headrace.pipeline.project.toml_files import ProjectError
    except ImportError as error:
        raise CommandError(f"views need more packages: pip install 'headrace[spark]' ({error})") from None
    try:
        return work(options, out)
    except ProjectError as error:
        from headrace.tools.views.problems import show_problems

        show_problems(out, error.problems)
        return FAILED
    except (CommandError, HeadraceError, BrokenPipeError):
        if options.debug:
            traceback.print_exc()
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        from headrace.pipeline.version.failures import summary_of

        raise CommandError(f"{type(error).__name__}: {summary_of(error)} (--debug shows the whole error)") from error


# ---------------------------------------------------------------------------------------------------------- options


def parser() -> ArgumentParser:
    parser = new_parser(
        "views",
        "Manage views: queries over the log whose answers Spark keeps as SQL tables (Lambda and Kappa).",
        _EXAMPLES,
        connects=False,
        prints_json=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_init(commands)
    _add_apply(commands)
    _add_explain(commands)
    _add_test(commands)
    _add(commands, "list")
    _add_status(commands)
    _add_graph(commands)
    _add_run(commands)
    _add_serve(commands)
    _add_switch(commands)
    _add_view(_add(commands, "rollback"))
    _add_version(_add(commands, "drop"), "the version (default: the whole view)")
    _add_batch(commands)
    return parser


_Commands = _SubParsersAction  # argparse has no public name for this type.


def _add(commands: _Commands[ArgumentParser], name: str, *, prints_json: bool = True) -> ArgumentParser:
    purpose = COMMANDS[name][1]
    added = commands.add_parser(
        name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", allow_abbrev=False
    )
    if name != "init":
        added.add_argument(
            "--project", metavar="DIR", default=".", help="the project's folder (default: the current folder)"
        )
    if prints_json:
        added.add_argument("--json", action="store_true", help="results as JSON")
    added.add_argument("--debug", action="store_true", help="print the stack traces of errors")
    return added


def _add_init(commands: _Commands[ArgumentParser]) -> None:
    init = _add(commands, "init", prints_json=False)
    init.add_argument(
        "folder", metavar="DIR", nargs="?", default=".", help="the folder of the project (default: the current folder)"
    )
    init.add_argument("--create-topics", action="store_true", help="also create the topics that the views read")
    init.add_argument(
        "--bootstrap-server", metavar="HOST:PORT,...", default=DEFAULT_BOOTSTRAP_SERVER,
        help="the brokers of the log (default %(default)s)",
    )  # fmt: skip


def _add_apply(commands: _Commands[ArgumentParser]) -> None:
    apply = _add(commands, "apply")
    apply.add_argument(
        "--switch", choices=["auto", "manual"],
        help="auto: readers see a new version as soon as it has caught up; overrides the files",
    )  # fmt: skip
    apply.add_argument("--dry-run", action="store_true", help="only show what would change")
    _add_check_master(apply)


def _add_explain(commands: _Commands[ArgumentParser]) -> None:
    explain = _add(commands, "explain")
    _add_view(explain)
    _add_check_master(explain)


def _add_test(commands: _Commands[ArgumentParser]) -> None:
    test = _add(commands, "test")
    add = test.add_argument
    add("views", metavar="VIEW", nargs="*", help="only tests of these views")
    add("-k", metavar="TEXT", dest="text", default="", help="only tests whose file, view or name contains this text")
    add("--update", action="store_true", help="write the rows that the views show into the files of failed tests")
    add("--junit", metavar="FILE", help="also write the results as JUnit XML")
    _add_check_master(test)


def _add_check_master(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        help="start a Spark of this master (default: the Spark of 'headrace views run', or local[1])",
    )


def _add_status(commands: _Commands[ArgumentParser]) -> None:
    status = _add(commands, "status")
    status.add_argument("view", metavar="VIEW", nargs="?", help="only this one")
    status.add_argument("--watch", action="store_true", help="show progress bars until all versions have caught up")


def _add_graph(commands: _Commands[ArgumentParser]) -> None:
    graph = _add(commands, "graph")
    graph.add_argument(
        "--format", choices=["text", "mermaid", "json", "svg"], default="text",
        help="text for a terminal, a Mermaid flowchart, JSON (as --json), or a whole SVG file (default %(default)s)",
    )  # fmt: skip


def _add_run(commands: _Commands[ArgumentParser]) -> None:
    run = _add(commands, "run", prints_json=False)
    add = run.add_argument
    add("--once", action="store_true", help="bring every view up to the present end of the log, then exit")
    add("--master", metavar="URL", help="Spark's master; overrides headrace.toml")
    add("--serve", metavar="HOST:PORT", help="also answer queries by HTTP at this address; port 0 picks a free port")
    add(
        "--metrics-listen",
        metavar="HOST:PORT",
        help="serve Prometheus metrics at this address; port 0 picks a free port",
    )
    add_http_protection(run)
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="default %(default)s")


def _add_serve(commands: _Commands[ArgumentParser]) -> None:
    serve = _add(commands, "serve", prints_json=False)
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:8090",
        help="the address to listen on (default %(default)s); port 0 picks a free port",
    )
    add_http_protection(serve)


def _add_switch(commands: _Commands[ArgumentParser]) -> None:
    switch = _add(commands, "switch")
    _add_version(switch, "the version (default: the newest one that has caught up)")
    switch.add_argument("--restart", action="store_true", help="do not switch, only run failed versions again")


def _add_batch(commands: _Commands[ArgumentParser]) -> None:
    batch = _add(commands, "batch")
    _add_view(batch)
    batch.add_argument(
        "--full", action="store_true", help="compute from all master data, not from the last batch and the new records"
    )
    batch.add_argument("--timeout", metavar="MS", type=int, help="stop waiting after this time; the batch continues")


def _add_view(parser: ArgumentParser) -> None:
    parser.add_argument("view", metavar="VIEW", help="its name")


def _add_version(parser: ArgumentParser, meaning: str) -> None:
    _add_view(parser)
    parser.add_argument("version", metavar="VERSION", nargs="?", type=int, help=meaning)


# ------------------------------------------------------------------------------------------------ what commands share


@contextmanager
def open_project(options: Namespace) -> Iterator[OpenProject]:
    """Opens a project's settings and its catalog. It does not read the files of views."""
    from headrace.pipeline.management.opened import open_folder

    with open_folder(options.project) as opened:
        yield opened


def address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address; write HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)
