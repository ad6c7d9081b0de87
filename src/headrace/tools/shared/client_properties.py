"""Options of the commands that are a producer or a consumer: Kafka's properties, from files and from the command line.

Kafka has renamed these flags. The new names (``--command-property``, ``--command-config``) and the old ones
(``--producer-property``, ``--consumer.config``, ...) mean the same here.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.tools.shared.commands import UsageError, client_options, read_properties

if TYPE_CHECKING:
    from headrace.client.config import ClientConfig

_T = TypeVar("_T")
#: Java's classes for what is bytes here. Files for Java's clients often name them.
_CLASSES = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


def add_client_properties(parser: ArgumentParser, kind: str, old_flag: str, *, many: bool = False) -> None:
    """
    :param kind: of client, ``"producer"``.
    :param old_flag: what ``--command-property`` was called.
    :param many: whether Kafka's tool takes several properties behind one flag.
    """
    parser.add_argument(
        "--command-property",
        old_flag,
        metavar="NAME=VALUE",
        dest="properties",
        type=name_and_value,
        action="extend",
        nargs="+" if many else 1,
        default=[],
        help=f"an option of the {kind}, such as client.id=me; may be given several times",
    )
    parser.add_argument(
        f"--{kind}.config", metavar="FILE", dest="old_config", type=Path, help="an older name of --command-config"
    )


def add_named_properties(parser: ArgumentParser, kind: str, flags: Iterable[str], help_text: str) -> None:
    """Properties for something else than the client: ``--reader-property``, and a file of them."""
    parser.add_argument(
        *flags,
        metavar="NAME=VALUE",
        dest=f"{kind}_properties",
        type=name_and_value,
        action="append",
        default=[],
        help=help_text,
    )
    parser.add_argument(f"--{kind}-config", metavar="FILE", type=Path, help=f"a file with properties of the {kind}")


def name_and_value(text: str) -> tuple[str, str]:
    """An argparse type. A value may have ``=`` and spaces in it: separators do."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def named_properties(options: Namespace, kind: str) -> dict[str, str]:
    """The file's, and over them those of the command line."""
    path: Path | None = getattr(options, f"{kind}_config")
    found = {} if path is None else read_properties(path)
    return found | dict(getattr(options, f"{kind}_properties"))


def file_properties(options: Namespace) -> dict[str, str]:
    """What ``--command-config`` has, or the file of the older name."""
    if options.command_config is not None and options.old_config is not None:
        raise UsageError("give one file of properties, not two")
    path = options.command_config or options.old_config
    return {} if path is None else read_properties(path)


def client_config(
    options: Namespace,
    kind: type[ClientConfig],
    defaults: Mapping[str, object],
    fixed: Mapping[str, object],
    in_file: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """What a client is made with: defaults of the tool, then the file, then properties, then the tool's own flags.

    :param fixed: values of None are left out.
    :param in_file: :func:`file_properties`, of a tool that has looked at them: a file may be a pipe, and is read once.
    """
    if in_file is None:
        in_file = file_properties(options)
    given: dict[str, object] = {**defaults, **kind.of_shared(in_file)}
    given |= dict(options.properties)
    for name in _CLASSES:
        given.pop(name, None)
    given |= {name: value for name, value in fixed.items() if value is not None}
    return client_options(Namespace(**{**vars(options), "command_config": None}), kind, given)


def run_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a command that is a coroutine. Ctrl-C cancels it, so that it can end well."""
    from headrace.event_loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)
