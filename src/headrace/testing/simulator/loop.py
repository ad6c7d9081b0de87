"""An event loop whose time jumps to whatever comes next.

When nothing is ready to run, time moves to the next timer at once, so that a minute of a cluster takes as long as its
work does. Nothing depends on the host: there are no sockets (:mod:`~headrace.testing.simulator.network` has its own),
and what is given to a thread runs on the spot, its result coming a moment later. With one seed, everything happens in
the same order (given ``PYTHONHASHSEED``, as sets of names are walked through by hash).
"""

from __future__ import annotations

import asyncio
import selectors
from asyncio import Future, Handle, TimerHandle
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.testing.simulator.node import current_node, node_of

if TYPE_CHECKING:
    from headrace.testing.simulator.network import Network, SimulatedSocket

T = TypeVar("T")

#: How long what runs on a thread takes, at most.
_SLOWEST_THREAD_S = 0.005


class Stuck(Exception):
    """Nothing is ready, and nothing ever will be."""


class _NoSelector(selectors.SelectSelector):
    """Waits by letting time pass."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("everybody waits, and there is no timer")
        self.loop.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, random: Random) -> None:
        selector = _NoSelector()
        selector.loop = self
        self.now = 0.0
        self.network: Network | None = None
        self._random = random
        super().__init__(selector)
        self.set_task_factory(cast(Any, _task_of_node))

    def time(self) -> float:
        return self.now

    # -- whose callbacks these are

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        context = copy_context() if context is None else context
        return super().call_soon(self._guarded(callback, context), *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        context = copy_context() if context is None else context
        return super().call_at(when, self._guarded(callback, context), *args, context=context)

    # call_later calls call_at

    def _guarded(self, callback: Callable[..., object], context: Context) -> Callable[..., object]:
        node = node_of(context)
        if node is None:
            return callback

        def run(*args: object) -> None:
            if node.is_dead:
                return
            if node.is_paused:
                # Later it is the node's own as well, and so is all that it begins.
                node.keep(Handle(callback, args, self, context))
            else:
                callback(*args)

        return run

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    # -- what a host would do

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> Future[T]:  # type: ignore[override]
        future: Future[T] = self.create_future()

        def deliver(deed: Callable[[], None]) -> None:
            if not future.done():
                deed()

        delay = self._random.uniform(0, _SLOWEST_THREAD_S)
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001  the caller's, who awaits it
            failure = error
            self.call_later(delay, deliver, lambda: future.set_exception(failure))
        else:
            self.call_later(delay, deliver, lambda: future.set_result(result))
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None, "there is no network"
        return await self.network.connect(protocol_factory, host, port)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        _simulated(fd).watch(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return _simulated(fd).unwatch()

    def add_writer(self, *_: Any) -> None:  # type: ignore[override]
        raise AssertionError("a simulated socket takes all that is sent")

    def remove_writer(self, _fd: Any) -> bool:
        return False

    # The pipe by which threads and signals would wake the loop.
    def _add_reader(self, *_: Any) -> None: ...

    def _remove_reader(self, *_: Any) -> bool:
        return False


def _simulated(sock: Any) -> SimulatedSocket:
    from headrace.testing.simulator.network import SimulatedSocket

    assert isinstance(sock, SimulatedSocket), f"{sock} is of the host"
    return sock


def _task_of_node(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], **options: Any
) -> asyncio.Task[T]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    node = current_node()
    if node is not None:
        node.tasks.add(task)
        task.add_done_callback(node.tasks.discard)
    return task
