"""Describes a change that the console can make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headrace.console.fields import Field, Value
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class Preview:
    """Tells what a change will do, before it is done.

    :ivar sentences: shown one below the other.
    :ivar headings, rows: a table of what changes; empty if there is none.
    :ivar standard_input: what the command line reads from standard input; empty if it reads nothing.
    """

    sentences: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    standard_input: str = ""


@dataclass(frozen=True)
class Done:
    """Tells what a change has done.

    :ivar message: one sentence.
    :ivar location: the page to show next.
    """

    message: str
    location: str


@dataclass(frozen=True)
class Action:
    """A change.

    :param name: the last part of the path, and the name in the audit log: ``delete-topic``.
    :param command_line: the words of the command that does the same, from the values; the console adds
        ``--bootstrap-server`` and ``--command-config`` behind the first two words.
    :param preview: reads what will change, for the page that asks for confirmation.
    :param typed: the name of a field whose value the visitor types once more to confirm; for changes that lose data.
    :param section: the path of the menu's entry that the action belongs to.
    :param is_of_project: whether the command has ``--project`` instead of the options of the cluster.
    """

    name: str
    title: str
    button: str
    fields: tuple[Field, ...]
    run: Callable[[ConsoleRequest], Awaitable[Done]]
    command_line: Callable[[Mapping[str, Value]], list[str]]
    preview: Callable[[ConsoleRequest], Awaitable[Preview]] | None = None
    typed: str = ""
    section: str = ""
    is_of_project: bool = False

    @property
    def path(self) -> str:
        return f"/actions/{self.name}"

    @property
    def api_path(self) -> str:
        return f"/api{self.path}"
