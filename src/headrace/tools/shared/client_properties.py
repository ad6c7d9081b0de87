"""The client options of commands that are a producer or a consumer: Kafka's properties, from files and flags.

Kafka has renamed these flags. The commands accept the new names (``--command-property``, ``--command-config``) and the
old names (``--producer-property``, ``--consumer.config``, ...) with the same meaning.
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
#: Properties that name Java's serializer classes. Files for Java's clients often have them; our commands use bytes.
_CLASSES = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")


def add_client_properties(parser: ArgumentParser, kind: str, old_flag: str, *, many: bool = False) -> None:
    """
    :param kind: the kind of client, such as ``"producer"``.
    :param old_flag: the old name of ``--command-property``.
    :param many: whether Kafka's tool accepts several properties after one flag.
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
        help=f"an option of the {kind}, such as client.id=me; may be repeated",
    )
    parser.add_argument(
        f"--{kind}.config", metavar="FILE", dest="old_config", type=Path, help="an older name of --command-config"
    )


def add_named_properties(parser: ArgumentParser, kind: str, flags: Iterable[str], help_text: str) -> None:
    """Adds the flags for properties of something other than the client: ``--reader-property``, and a file of them."""
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
    """An argparse type. A value may contain ``=`` and spaces, because separators do."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def named_properties(options: Namespace, kind: str) -> dict[str, str]:
    """The properties of the file, overridden by those of the command line."""
    path: Path | None = getattr(options, f"{kind}_config")
    found = {} if path is None else read_properties(path)
    return found | dict(getattr(options, f"{kind}_properties"))


def file_properties(options: Namespace) -> dict[str, str]:
    """The properties of ``--command-config``, or of the file of its older flag."""
    if options.command_config is not None and options.old_config is not None:
        raise UsageError("give one properties file, not two")
    path = options.command_config or options.old_config
    return {} if path is None else read_properties(path)


def client_config(
    options: Namespace,
    kind: type[ClientConfig],
    defaults: Mapping[str, object],
    fixed: Mapping[str, object],
    in_file: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """The options of a client: defaults of the tool, overridden by the file, by properties, and by flags of the tool.

    :param fixed: values from the tool's own flags; None is left out.
    :param in_file: the result of :func:`file_properties`, if the tool has read the file. A pipe can be read only once.
    """
    if in_file is None:
        in_file = file_properties(options)
    given: dict[str, object] = {**defaults, **kind.select(in_file)}
    given |= dict(options.properties)
    for name in _CLASSES:
        given.pop(name, None)
    given |= {name: value for name, value in fixed.items() if value is not None}
    return client_options(Namespace(**{**vars(options), "command_config": None}), kind, given)


def run_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a command that is a coroutine. Ctrl-C cancels the coroutine, so that it can clean up."""
    from headrace.event_loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)
