"""Runs the event loop that all blocking clients of the process share, on a thread of its own.

A blocking method runs the asyncio method of the same name on this loop::

    background.run(admin.describe_cluster())

The thread starts on first use. It is a daemon thread, so it keeps no program alive. When the program ends, registered
clients (:meth:`Background.register`) are called first, then all tasks are cancelled. A KeyboardInterrupt while a thread
waits in :func:`run` cancels the coroutine, waits until it has cleaned up, and is raised again.

A fork copies no threads, so a child process gets an event loop of its own when it first needs one. A client of the
parent cannot be used in the child: both processes would read from the same sockets. So a :class:`Background` of the
parent refuses all work in a child, and registered clients are called.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from headrace.client.errors import ClientClosed, HeadraceError, KafkaTimeout
from headrace.event_loop import new_event_loop

_T = TypeVar("_T")
_P = ParamSpec("_P")

#: How long a caller waits until a cancelled coroutine has cleaned up.
_CLEAN_UP_S = 5.0
_PIECE_S = 0.5


class Client(Protocol):
    """A client that has something to do when the program ends, or after a fork."""

    def on_program_end(self) -> None:
        """Called if the program ends before the client is closed. The event loop still runs."""

    def on_fork(self) -> None:
        """Called in a child process, which must not use the client. It has one thread; locks keep their state."""

    def __hash__(self) -> int: ...


class Background:
    """An event loop on a thread. There is one per process: :func:`current`."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._pid = os.getpid()
        self._clients: WeakSet[Client] = WeakSet()
        self._thread = threading.Thread(target=self._serve, name="headrace clients", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        with warnings.catch_warnings():
            # Clients that were not closed cause warnings. uvloop cannot handle a warning that raises an exception.
            warnings.simplefilter("ignore", ResourceWarning)
            self.loop.close()

    def stop(self) -> None:
        """Calls the registered clients, cancels all tasks and ends the thread."""
        for client in list(self._clients):
            with suppress(HeadraceError):
                client.on_program_end()
        self.call_soon(self.loop.stop)
        self._thread.join(_CLEAN_UP_S)

    def register(self, client: Client) -> None:
        """Calls the client at the end of the program and after forks, as long as the client exists."""
        self._clients.add(client)

    def on_fork(self) -> None:
        """Calls the registered clients in a child process."""
        for client in list(self._clients):
            client.on_fork()

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def call_soon(self, callback: Callable[_P, object], *arguments: _P.args, **keywords: _P.kwargs) -> None:
        """Calls a function on the event loop's thread, and does not wait for it.

        :raises ClientClosed: if the program ends, or in a child process.
        """
        if self._pid != os.getpid():
            raise ClientClosed("this client was made before a fork; make another one in the child process")
        try:
            self.loop.call_soon_threadsafe(partial(callback, *arguments, **keywords))
        except RuntimeError as error:
            raise ClientClosed("the program is ending, and the event loop of its clients has stopped") from error

    def run(self, coroutine: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Runs a coroutine to its end and returns its result.

        :param timeout: in seconds. After that time the coroutine is cancelled.
        :raises KafkaTimeout: if the timeout passes first.
        """
        if self.is_this_thread:
            coroutine.close()
            raise RuntimeError("a blocking call on the clients' own thread would wait for itself; use the async client")
        done: Future[_T] = Future()
        running: list[asyncio.Task[_T]] = []

        def start() -> None:
            running.append(self.loop.create_task(coroutine))
            running[0].add_done_callback(partial(_hand_over, done))

        try:
            self.call_soon(start)
        except ClientClosed:
            coroutine.close()
            raise
        try:
            return _result(done, timeout)
        except BaseException as error:
            if done.done():
                raise
            self.call_soon(lambda: running[0].cancel())
            wait([done], _CLEAN_UP_S)
            if isinstance(error, TimeoutError):
                raise KafkaTimeout(f"the call did not finish within {timeout} s") from None
            raise


def _result(done: Future[_T], timeout: float | None) -> _T:
    """Waits for the result, in short pieces.

    A signal that comes just before a wait begins does not interrupt the wait: Python handles it only after the wait.
    """
    until = None if timeout is None else monotonic() + timeout
    while True:
        left = _PIECE_S if until is None else min(_PIECE_S, until - monotonic())
        try:
            return done.result(max(0, left))
        except TimeoutError:
            if done.done():
                return done.result()  # The coroutine raised a TimeoutError itself, or has just ended.
            if until is not None and monotonic() >= until:
                raise


def _hand_over(done: Future[_T], task: asyncio.Task[_T]) -> None:
    """Passes the result of a task to the thread that waits for it."""
    if task.cancelled():
        done.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


# -- the event loop of this process

_lock = threading.Lock()
_current: Background | None = None
#: Event loops of parent processes. They are kept, because closing them would close what the parent still uses.
_of_parents: list[Background] = []


def current() -> Background:
    """Returns the event loop of this process. Starts it if there is none."""
    global _current
    if _current is None:
        with _lock:
            if _current is None:
                _current = Background()
                atexit.register(_stop, _current)
    return _current


def run(coroutine: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
    """See :meth:`Background.run`."""
    return current().run(coroutine, timeout)


def call_soon(callback: Callable[_P, object], *arguments: _P.args, **keywords: _P.kwargs) -> None:
    """See :meth:`Background.call_soon`."""
    current().call_soon(callback, *arguments, **keywords)


def _stop(background: Background) -> None:
    if background is _current:  # False in a child process.
        background.stop()


def _forget_parents() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _of_parents.append(_current)
        _current.on_fork()
        _current = None


os.register_at_fork(after_in_child=_forget_parents)
