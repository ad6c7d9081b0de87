"""A process of the simulated cluster: which callbacks belong to it, and how it crashes or pauses.

Every callback and task of the loop belongs to the node in whose context it was scheduled. A crashed node runs nothing
any more: no ``finally`` block, no flush. A paused node (a long garbage collection, a suspended machine) keeps its
callbacks and runs them late, when it resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any

_current: ContextVar[Node | None] = ContextVar("node", default=None)


class Node:
    """One run of a process. A broker that restarts after a crash has a new node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        #: The callbacks that became due during the pause.
        self._late: list[asyncio.Handle] = []
        self.tasks: set[asyncio.Task[Any]] = set()
        self._crash_callbacks: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<node {self.name}{', dead' if self.is_dead else ', paused' if self.is_paused else ''}>"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Callbacks and tasks that are scheduled inside belong to the node."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def defer(self, callback: asyncio.Handle) -> None:
        """Keeps a callback until the node resumes."""
        assert self.is_paused, f"{self} is not paused: run the callback at once"
        self._late.append(callback)

    def on_crash(self, callback: Callable[[], None]) -> None:
        self._crash_callbacks.append(callback)

    def crash(self) -> None:
        if self.is_dead:
            return
        self.is_dead = True
        self._late.clear()
        for callback in self._crash_callbacks:
            callback()
        for task in self.tasks:
            # A crash leaves tasks pending; asyncio must not warn of them.
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Lets the node run again, in the next iteration of the loop: not inside the caller."""
        asyncio.get_running_loop().call_soon(self._run_late)

    def _run_late(self) -> None:
        self.is_paused = False
        late, self._late = self._late, []
        for callback in late:
            callback._run()


def current_node() -> Node | None:
    return _current.get()


def node_of(context: Context) -> Node | None:
    return context.get(_current)
