"""An event loop in simulated time: when nothing is ready to run, its time jumps to the next timer.

A minute of a cluster takes only as long as its work. Nothing depends on the host. There are no real sockets
(:mod:`~headrace.testing.simulator.network` simulates them). A function for a thread runs at once on the loop, and its
result arrives after a short simulated delay. With the same seed everything happens in the same order, if
``PYTHONHASHSEED`` is the same, too: iteration over a set of strings follows their hashes.
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

#: The longest simulated time of a function that runs on a thread.
_SLOWEST_THREAD_S = 0.005


class Deadlock(Exception):
    """No callback is ready and no timer is set: the simulation can never continue."""


class _JumpingSelector(selectors.SelectSelector):
    """Waits by adding the timeout to the simulated time."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("all tasks wait, and no timer is set")
        self.loop.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self, random: Random) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now = 0.0
        self.network: Network | None = None
        self._random = random
        super().__init__(selector)
        self.set_task_factory(cast(Any, _task_of_node))

    def time(self) -> float:
        return self.now

    # -- callbacks run only while their node does

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
                # In the same context, so that what the callback schedules belongs to the node, too.
                node.defer(Handle(callback, args, self, context))
            else:
                callback(*args)

        return run

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    # -- threads, connections and sockets

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> Future[T]:  # type: ignore[override]
        future: Future[T] = self.create_future()

        def deliver(action: Callable[[], None]) -> None:
            if not future.done():
                action()

        delay = self._random.uniform(0, _SLOWEST_THREAD_S)
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001  raised where the caller awaits it
            failure = error
            self.call_later(delay, deliver, lambda: future.set_exception(failure))
        else:
            self.call_later(delay, deliver, lambda: future.set_result(result))
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.network is not None, "this loop has no simulated network"
        return await self.network.connect(protocol_factory, host, port)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        _simulated(fd).watch(callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return _simulated(fd).unwatch()

    def add_writer(self, *_: Any) -> None:  # type: ignore[override]
        raise AssertionError("a simulated socket never blocks on send")

    def remove_writer(self, _fd: Any) -> bool:
        return False

    # asyncio adds a pipe by which threads and signals wake the loop; there are none here.
    def _add_reader(self, *_: Any) -> None: ...

    def _remove_reader(self, *_: Any) -> bool:
        return False


def _simulated(sock: Any) -> SimulatedSocket:
    from headrace.testing.simulator.network import SimulatedSocket

    assert isinstance(sock, SimulatedSocket), f"{sock} is a real socket; a simulation has only simulated ones"
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
