"""Describes a page of the console."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.console.fields import Field
from headrace.console.request import ConsoleRequest

_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Page:
    """A page, and its JSON twin.

    :param path: with parameters, such as ``/topics/{topic}``. A parameter may contain a slash.
    :param read: reads what the page shows, and returns a dataclass. Its docstring describes the JSON answer.
    :param template: a file in ``templates/``. Its block ``live`` is the part that changes by itself.
    :param query: the parameters of the query.
    :param navigation: the name in the menu; empty if the page is not in the menu.
    :param section: the path of the menu's entry that the page belongs to.
    :param live_seconds: how often an open page is read again; 0: never.
    """

    path: str
    title: str
    read: Callable[[ConsoleRequest], Awaitable[Any]]
    template: str
    query: tuple[Field, ...] = ()
    navigation: str = ""
    section: str = ""
    live_seconds: float = 0

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The parameters of the path and of the query."""
        return (*(Field(name, is_required=True) for name in self.path_parameters), *self.query)

    @cached_property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(_PARAMETER.findall(self.path))

    @property
    def api_path(self) -> str:
        """The path of the JSON twin."""
        return "/api/overview" if self.path == "/" else f"/api{self.path}"

    def heading(self, values: dict[str, Any]) -> str:
        """The title, with the values of the path: ``Topic {topic}`` becomes ``Topic orders``."""
        return _PARAMETER.sub(lambda found: str(values.get(found[1], "")), self.title)
