"""A process of the simulated cluster: what runs on its behalf, and how it dies.

Every callback and task of the loop belongs to the node in whose context it was scheduled. A node that has crashed runs
nothing any more: no ``finally``, no flush, no last word. One that is paused (a long collection, a laptop's lid) runs
what has come meanwhile when it goes on, all late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any

_current: ContextVar[Node | None] = ContextVar("node", default=None)


class Node:
    """One life of a process; after a crash another one takes its place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        #: What was to run while it was paused.
        self._late: list[asyncio.Handle] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self._on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<node {self.name}{', dead' if self.is_dead else ', paused' if self.is_paused else ''}>"

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is scheduled inside belongs to the node."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def keep(self, callback: asyncio.Handle) -> None:
        """To be run when it goes on."""
        assert self.is_paused, "it can run at once"
        self._late.append(callback)

    def when_dead(self, callback: Callable[[], None]) -> None:
        self._on_death.append(callback)

    def crash(self) -> None:
        if self.is_dead:
            return
        self.is_dead = True
        self._late.clear()
        for callback in self._on_death:
            callback()
        for task in self.tasks:
            # They are never run again; that they were pending is what a crash is.
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """It goes on in a moment: not within whatever calls this."""
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self.is_paused = False
        late, self._late = self._late, []
        for callback in late:
            callback._run()


def current_node() -> Node | None:
    return _current.get()


def node_of(context: Context) -> Node | None:
    return context.get(_current)
