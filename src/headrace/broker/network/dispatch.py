"""Calls the handler of a request, and gives the handler's answer to the connection of the request.

A handler returns its answer as a dict, or None where the protocol has no answer (Produce with acks=0). The dispatcher
loads and binds a handler on the first request of its API (``handler_binding.py``).

If a handler raises a KafkaError, then the answer of that API has no field for an error code. The dispatcher closes the
connection and logs the reason.

Most handlers never wait. So the dispatcher first runs a handler's coroutine directly, without a task. Only a coroutine
that really waits (for a purgatory, for fsync on a thread) becomes a task from its first wait on. Produce and Fetch wait
often, and only for plain futures, so they run without a task even then (:class:`_WaitingHandler`).

A request with many elements is read and answered in slices, so that other requests need not wait for the whole of it
(``slices.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from logging import getLogger
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.broker.network.handler_binding import BoundHandler, bound_handler
from headrace.broker.network.prompt_future import PromptFuture
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Slices
from headrace.protocol.api import Api
from headrace.protocol.errors import KafkaError
from headrace.protocol.wire.array_guard import ManyElements
from headrace.protocol.wire.server_codec import BadRequest
from headrace.runtime.memory import give_back_freed

if TYPE_CHECKING:
    from headrace.broker.services import Services

logger = getLogger(__name__)

_WAITING_FOR_FUTURES = frozenset({Api.PRODUCE, Api.FETCH})
_RETURN_MEMORY_AFTER_S = 1.0
#: Errors that close the connection, because the answer has no field for them.
_CLOSING_ERRORS = (KafkaError, BadRequest)


class Dispatcher:
    """Handles the requests of all connections."""

    _services: Services

    def __init__(self, loop: asyncio.AbstractEventLoop, slices: Slices) -> None:
        self._loop = loop
        self._slices = slices
        self._handlers: dict[Api, BoundHandler] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[_WaitingHandler] = set()
        self._returning_memory: asyncio.TimerHandle | None = None

    def start(self, services: Services) -> None:
        """Gives the dispatcher what handlers may ask for. Called before the first request arrives."""
        self._services = services

    def _load(self, api: Api) -> BoundHandler:
        """
        :raises BadRequest: if this broker does not serve the API.
        """
        if api not in self._services.served_apis:
            raise BadRequest(f"{api.label} is not served")
        handle = self._handlers[api] = bound_handler(api, self._services)
        return handle

    def handle(self, request: Request) -> None:
        connection = request.connection
        if connection.is_closed:
            return
        request.started_at = request.running_since = perf_counter_ns()
        request.slices = self._slices
        try:
            api = request.api
            handle = self._handlers.get(api) or self._load(api)
            if request.codec is not None or api is not Api.API_VERSIONS:
                request.read_body()
            coroutine = handle(request)
        except BadRequest as error:
            connection.abort(str(error))
            return
        except ManyElements:
            coroutine = self._handle_large(request, handle)
        except Exception:  # noqa: BLE001  _failed logs it: the client must not wait forever
            self._failed(request)
            return
        try:
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                connection.answer(request, done.value)
                return
        except _CLOSING_ERRORS as error:
            connection.abort(f"{api.label}: {error}")
        except Exception:  # noqa: BLE001  _failed logs it: one broken handler must not stop the others
            self._failed(request)
        else:
            request.parked_at = perf_counter_ns()
            request.busy_ns += request.parked_at - request.started_at
            connection.send_held()
            if api in _WAITING_FOR_FUTURES:
                _WaitingHandler(self, request, coroutine).wait(awaited)
                return
            task = self._loop.create_task(self._finish_later(request, _Started(request, coroutine, awaited)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle_large(self, request: Request, handle: BoundHandler) -> Reply:
        try:
            await request.open_body()
            return await handle(request)
        finally:
            if self._returning_memory is None:  # once the answer is sent, and once for many large requests
                self._returning_memory = self._loop.call_later(_RETURN_MEMORY_AFTER_S, self._return_memory)

    def _return_memory(self) -> None:
        """Returns the memory of large requests to the operating system."""
        self._returning_memory = None
        give_back_freed()

    async def _finish_later(self, request: Request, started: Awaitable[Reply]) -> None:
        try:
            request.connection.answer(request, await started)
        except _CLOSING_ERRORS as error:
            request.connection.abort(f"{request.api.label}: {error}")
        except Exception:  # noqa: BLE001  _failed logs it
            self._failed(request)

    def _failed(self, request: Request) -> None:
        logger.exception("%s v%d of %s failed", request.api.label, request.version, request.connection.peer)
        request.connection.abort("the broker failed to answer its request; the log has the error")

    def stop(self) -> None:
        """Ends all handlers that wait."""
        if self._returning_memory is not None:
            self._returning_memory.cancel()
        for task in self._tasks:
            task.cancel()
        for waiting in list(self._waiting):
            waiting.end()


class _WaitingHandler:
    """A handler that waits for one future after the other. It continues without a task of its own."""

    __slots__ = ("_coroutine", "_dispatcher", "_request")

    def __init__(self, dispatcher: Dispatcher, request: Request, coroutine: Coroutine[Any, Any, Reply]) -> None:
        self._dispatcher = dispatcher
        self._request = request
        self._coroutine = coroutine
        dispatcher._waiting.add(self)

    def wait(self, awaited: asyncio.Future[Any]) -> None:
        # A task does the same with a future that its coroutine awaits.
        assert awaited._asyncio_future_blocking, f"{awaited!r} is not a future"
        awaited._asyncio_future_blocking = False
        if isinstance(awaited, PromptFuture):
            awaited.on_result = self._continue
        else:
            awaited.add_done_callback(self._continue)

    def _continue(self, _done: asyncio.Future[Any]) -> None:
        if self not in self._dispatcher._waiting:
            return
        request = self._request
        request.running_since = perf_counter_ns()
        try:
            try:
                awaited = self._coroutine.send(None)
            except StopIteration as done:
                self._dispatcher._waiting.discard(self)
                request.connection.answer(request, done.value)
                return
        except asyncio.CancelledError:
            self.end()
        except _CLOSING_ERRORS as error:
            self._dispatcher._waiting.discard(self)
            request.connection.abort(f"{request.api.label}: {error}")
        except Exception:  # noqa: BLE001  _failed logs it
            self._dispatcher._waiting.discard(self)
            self._dispatcher._failed(request)
        else:
            request.busy_ns += perf_counter_ns() - request.running_since
            self.wait(awaited)

    def end(self) -> None:
        self._dispatcher._waiting.discard(self)
        self._coroutine.close()


class _Started:
    """A coroutine that has run up to its first wait. Awaiting this object runs the rest, and measures how long the
    coroutine runs."""

    def __init__(self, request: Request, coroutine: Coroutine[Any, Any, Reply], awaited: object) -> None:
        self._request = request
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Reply]:
        request, awaited = self._request, self._awaited
        while True:
            raised: BaseException | None = None
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001  handed on to the coroutine, as an await would
                raised = error
            request.running_since = perf_counter_ns()
            try:
                awaited = self._coroutine.send(None) if raised is None else self._coroutine.throw(raised)
            except StopIteration as done:
                reply: Reply = done.value
                return reply
            request.busy_ns += perf_counter_ns() - request.running_since
