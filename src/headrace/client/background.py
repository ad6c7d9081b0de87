"""The one event loop that the blocking clients of this process share, on a thread of its own.

A blocking method is its asynchronous twin, run here::

    background.run(admin.describe_cluster())

The thread is started on first use and is a daemon: it keeps no program alive. When the program ends, clients that asked
for it (:meth:`Background.register`) are told first, then what still runs is cancelled. Ctrl-C while a thread waits in
:func:`run` cancels the coroutine, lets it clean up, and goes on as the KeyboardInterrupt that it is.

A fork copies no threads, so a child gets a loop of its own when it first needs one. A client of the parent is of no
use there: its sockets are the parent's, and both would read from them. So a :class:`Background` of the parent refuses
all work in a child, and clients that asked for it are told.
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

#: How long a cancelled coroutine may take to clean up before its caller goes on without it.
_CLEAN_UP_S = 5.0
_PIECE_S = 0.5


class Client(Protocol):
    """One that has something to do when its loop goes away."""

    def on_program_end(self) -> None:
        """The program ends, and the client was not closed. The loop still runs."""

    def on_fork(self) -> None:
        """In a child process: the client is the parent's. There are no other threads; locks are as they were."""

    def __hash__(self) -> int: ...


class Background:
    """A loop on a thread. There is one a process: :func:`current`."""

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
            # Of clients that were not closed. The program ends, and uvloop does not get over a warning that raises.
            warnings.simplefilter("ignore", ResourceWarning)
            self.loop.close()

    def stop(self) -> None:
        """Tells the clients, cancels what runs and ends the thread."""
        for client in list(self._clients):
            with suppress(HeadraceError):
                client.on_program_end()
        self.call_soon(self.loop.stop)
        self._thread.join(_CLEAN_UP_S)

    def register(self, client: Client) -> None:
        """From now on, as long as it lives, a client is told of the end and of forks."""
        self._clients.add(client)

    def on_fork(self) -> None:
        """This is a child of the process that it belongs to."""
        for client in list(self._clients):
            client.on_fork()

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def call_soon(self, callback: Callable[_P, object], *arguments: _P.args, **keywords: _P.kwargs) -> None:
        """Calls a function on the loop's thread, and does not wait for it.

        :raises ClientClosed: if the loop is gone, because the program ends or this is a child of its process.
        """
        if self._pid != os.getpid():
            raise ClientClosed("this client was made before a fork; make another one in the child process")
        try:
            self.loop.call_soon_threadsafe(partial(callback, *arguments, **keywords))
        except RuntimeError as error:
            raise ClientClosed("the program is ending: its clients' event loop has stopped") from error

    def run(self, coroutine: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
        """Runs a coroutine to its end and returns what it returns.

        :param timeout: in seconds; when they have passed, it is cancelled.
        :raises KafkaTimeout: if the time is up.
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
                raise KafkaTimeout(f"not done within {timeout} s") from None
            raise


def _result(done: Future[_T], timeout: float | None) -> _T:
    """The result, waited for in pieces: Python overlooks a signal that comes just before a wait begins (it is noted,
    but interrupts nothing), and sees it only when the wait is over."""
    until = None if timeout is None else monotonic() + timeout
    while True:
        left = _PIECE_S if until is None else min(_PIECE_S, until - monotonic())
        try:
            return done.result(max(0, left))
        except TimeoutError:
            if done.done():
                return done.result()  # a TimeoutError of its own, or done just now
            if until is not None and monotonic() >= until:
                raise


def _hand_over(done: Future[_T], task: asyncio.Task[_T]) -> None:
    """Gives a task's outcome to the thread that waits for it."""
    if task.cancelled():
        done.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


# -- the one of this process

_lock = threading.Lock()
_current: Background | None = None
#: Loops of a parent process. They are kept because ending them would touch what the parent still uses.
_of_parents: list[Background] = []


def current() -> Background:
    """The process's loop, started if there is none."""
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
    if background is _current:  # in a child it is not
        background.stop()


def _forget_parents() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _of_parents.append(_current)
        _current.on_fork()
        _current = None


os.register_at_fork(after_in_child=_forget_parents)
