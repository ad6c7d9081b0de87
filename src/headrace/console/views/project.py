"""Opens the project of ``--project``, runs work on it in threads, and turns its errors into those of the console.

The project's own settings say how its log and its database are reached, so all visitors see its views with the same
rights. Work is bounded: four statements at once, and a lock for the client of the log.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.client.errors import HeadraceError
from headrace.console.cluster.cached import Cached
from headrace.console.problems import ConsoleError, Refused, TooMany
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.console.views.opened import Opened

T = TypeVar("T")
STATUS_SECONDS = 1.0
_AT_ONCE = 4
_MOST_WAITING = 16
#: By the name of the class of an error, and of its bases: HTTP's status, and what to do.
_STATUS: dict[str, tuple[int, str]] = {
    "UnknownView": (404, "Choose one of the list of views."),
    "ProjectError": (409, "Correct headrace.toml, then reload."),
    "ChangeRefused": (409, ""),
    "IllegalTransition": (409, ""),
    "NoSwitchSet": (409, ""),
    "NotServed": (409, ""),
    "QueryTimeout": (408, ""),
    "QueryError": (422, "Correct the statement."),
    "DatabaseUnreachable": (503, "Start the database, or check [serving] url in headrace.toml."),
    "DatabaseBusy": (503, "Try again in some seconds."),
}


class NoProject(ConsoleError):
    """The console was started without a project of views."""

    status = 404
    name = "no_project"
    advice = "Start the console with --project DIR, where DIR is the folder with headrace.toml."

    def __init__(self) -> None:
        super().__init__("this console has no project of views")


class ViewsProblem(ConsoleError):
    """The project refuses what was asked."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(str(error))
        kinds = [kind.__name__ for kind in type(error).__mro__]
        known = next((kind for kind in kinds if kind in _STATUS), "")
        self.name = "".join(f"_{each.lower()}" if each.isupper() else each for each in kinds[0]).lstrip("_")
        self.status, self.advice = _STATUS.get(known, (502, "See the log of 'headrace views run'."))


class MissingPackages(ConsoleError):
    """Views need packages that are not installed."""

    status = 501
    name = "missing_packages"
    advice = "Run pip install 'headrace[spark]', then start the console again."


class ViewsProject:
    """The project of one console. It is opened by the first page that needs it."""

    def __init__(self, folder: Path | None, clock: Clock, *, needs_login: bool = False) -> None:
        """
        :param needs_login: whether visitors have rights of their own. The project cannot tell them apart.
        """
        self._needs_login = needs_login
        self.folder = None if folder is None else folder.absolute()
        self._cached = Cached(clock)
        self._opening = threading.Lock()
        self._opened: Opened | None = None
        self._stack = ExitStack()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def close(self) -> None:
        await asyncio.to_thread(self._stack.close)

    def forget(self) -> None:
        """Makes the next page ask again, because something has changed."""
        self._cached.forget()

    async def ask(self, work: Callable[[Opened], T]) -> T:
        """Runs work in a thread.

        :raises NoProject: if there is no project.
        :raises ViewsProblem: if the project refuses the work.
        """
        if self._waiting >= _MOST_WAITING:
            raise TooMany(f"{_MOST_WAITING} requests wait for the project of views")
        self._waiting += 1
        try:
            async with self._at_once:
                return await asyncio.to_thread(self._work, work)
        finally:
            self._waiting -= 1

    async def ask_cached(self, key: Hashable, work: Callable[[Opened], T], seconds: float = STATUS_SECONDS) -> T:
        """As :meth:`ask`. Who asks for the same within a moment gets the same answer."""
        return await self._cached.get(key, seconds, lambda: self.ask(work))

    def _work(self, work: Callable[[Opened], T]) -> T:
        try:
            return work(self._open())
        except HeadraceError as error:
            raise ViewsProblem(error) from error

    def _open(self) -> Opened:
        if self.folder is None:
            raise NoProject
        if self._needs_login:
            raise Refused(
                "a console with a login shows no views: the project's rights would count, not those of the visitor"
            )
        with self._opening:
            if self._opened is None:
                try:
                    from headrace.console.views.opened import open_views
                except ImportError as error:
                    raise MissingPackages(f"views need more packages ({error})") from None
                self._opened = self._stack.enter_context(open_views(self.folder))
            return self._opened
