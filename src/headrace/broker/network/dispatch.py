"""From a request to its handler and back to its connection.

The folder ``handlers/`` is the registry: the handler of ListOffsets is ``handlers/list_offsets.py``, a module with one
``async def handle(request, broker)`` that returns the answer as a dict (or None, where the protocol wants silence).
What has no file there is not advertised by ApiVersions, and what brokers ask each other is not by a broker alone.
Modules are imported on the first request of their API, so that a start pays for none of them.

A KafkaError that a handler lets out is about a request that has no place for a code in its answer: the connection is
closed, and the log says why.

Most handlers never wait. So a handler's coroutine is first run on the spot, without a task; only one that really waits
(for a purgatory, for fsync on a thread) becomes a task from there on. Produce and Fetch, which wait often and for bare
futures alone, do without one even then (:class:`_Parked`).

A request with many elements is read and answered in slices, so that nobody waits for its end (``slices.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import cache
from importlib import import_module
from logging import getLogger
from pkgutil import iter_modules
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace.broker import handlers
from headrace.broker.network.prompt_future import PromptFuture
from headrace.broker.network.request import Request
from headrace.broker.network.slices import Slices
from headrace.protocol.api import Api
from headrace.protocol.errors import KafkaError
from headrace.protocol.wire.array_guard import ManyElements
from headrace.protocol.wire.server_codec import BadRequest, EncodedReply
from headrace.runtime.memory import give_back_freed

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

_WAITING_FOR_FUTURES = frozenset({Api.PRODUCE, Api.FETCH})
_GIVE_BACK_AFTER_S = 1.0
#: Errors for which there is no place in an answer.
_REFUSED = (KafkaError, BadRequest)

Reply = dict[str, Any] | EncodedReply | None
Handler = Callable[[Request, "Broker"], Coroutine[Any, Any, Reply]]


@cache
def served_apis(*, in_cluster: bool) -> tuple[Api, ...]:
    """The APIs that have a handler, by key. A broker alone has no controller that would tell it anything."""
    files = {module.name for module in iter_modules(handlers.__path__) if not module.name.startswith("_")}
    return tuple(api for api in Api if api.name.lower() in files and (in_cluster or not api.is_control))


@cache
def handler_of(api: Api) -> Handler:
    handle: Handler = import_module(f"{handlers.__name__}.{api.name.lower()}").handle
    return handle


class Dispatcher:
    def __init__(
        self, broker: Broker, loop: asyncio.AbstractEventLoop, slices: Slices, *, in_cluster: bool = False
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._slices = slices
        self._served = frozenset(served_apis(in_cluster=in_cluster))
        self._waiting: set[asyncio.Task[None]] = set()
        self._parked: set[_Parked] = set()
        self._giving_back: asyncio.TimerHandle | None = None

    def handle(self, request: Request) -> None:
        connection = request.connection
        if connection.is_closed:
            return
        request.started_at = perf_counter_ns()
        request.slices = self._slices
        try:
            api = request.api
            if api not in self._served:
                raise BadRequest(f"{api.label} is not served")
            if request.codec is not None or api is not Api.API_VERSIONS:
                request.read_body()
            coroutine = handler_of(api)(request, self._broker)
        except BadRequest as error:
            connection.abort(str(error))
            return
        except ManyElements:
            coroutine = self._handle_large(request)
        try:
            try:
                awaited = coroutine.send(None)
            except StopIteration as done:
                connection.answer(request, done.value)
                return
        except _REFUSED as error:
            connection.abort(f"{api.label}: {error}")
        except Exception:  # noqa: BLE001  logged there: one broken handler may not stop the others
            self._failed(request)
        else:
            request.parked_at = perf_counter_ns()
            connection.send_held()
            if api in _WAITING_FOR_FUTURES:
                _Parked(self, request, coroutine).wait(awaited)
                return
            task = self._loop.create_task(self._finish_later(request, _Started(coroutine, awaited)))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _handle_large(self, request: Request) -> Reply:
        try:
            await request.open_body()
            return await handler_of(request.api)(request, self._broker)
        finally:
            if self._giving_back is None:  # once the answer is sent, and once for many large requests
                self._giving_back = self._loop.call_later(_GIVE_BACK_AFTER_S, self._give_back)

    def _give_back(self) -> None:
        self._giving_back = None
        give_back_freed()

    async def _finish_later(self, request: Request, started: Awaitable[Reply]) -> None:
        try:
            request.connection.answer(request, await started)
        except _REFUSED as error:
            request.connection.abort(f"{request.api.label}: {error}")
        except Exception:  # noqa: BLE001  logged there
            self._failed(request)

    def _failed(self, request: Request) -> None:
        logger.exception("%s v%d of %s failed", request.api.label, request.version, request.connection.peer)
        request.connection.abort("its request could not be answered")

    def stop(self) -> None:
        if self._giving_back is not None:
            self._giving_back.cancel()
        for task in self._waiting:
            task.cancel()
        for parked in list(self._parked):
            parked.end()


class _Parked:
    """A handler that waits for one future after the other, run on without a task of its own."""

    __slots__ = ("_coroutine", "_dispatcher", "_request")

    def __init__(self, dispatcher: Dispatcher, request: Request, coroutine: Coroutine[Any, Any, Reply]) -> None:
        self._dispatcher = dispatcher
        self._request = request
        self._coroutine = coroutine
        dispatcher._parked.add(self)

    def wait(self, awaited: asyncio.Future[Any]) -> None:
        # What a task does with a future that its coroutine awaits.
        assert awaited._asyncio_future_blocking, f"{awaited!r} is no future"
        awaited._asyncio_future_blocking = False
        if isinstance(awaited, PromptFuture):
            awaited.on_result = self._go_on
        else:
            awaited.add_done_callback(self._go_on)

    def _go_on(self, _done: asyncio.Future[Any]) -> None:
        if self not in self._dispatcher._parked:
            return
        request = self._request
        try:
            try:
                awaited = self._coroutine.send(None)
            except StopIteration as done:
                self._dispatcher._parked.discard(self)
                request.connection.answer(request, done.value)
                return
        except asyncio.CancelledError:
            self.end()
        except _REFUSED as error:
            self._dispatcher._parked.discard(self)
            request.connection.abort(f"{request.api.label}: {error}")
        except Exception:  # noqa: BLE001  logged there
            self._dispatcher._parked.discard(self)
            self._dispatcher._failed(request)
        else:
            self.wait(awaited)

    def end(self) -> None:
        self._dispatcher._parked.discard(self)
        self._coroutine.close()


class _Started:
    """A coroutine that has run up to its first wait, to be awaited for the rest."""

    def __init__(self, coroutine: Coroutine[Any, Any, Reply], awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Reply]:
        try:
            yield self._awaited
        except BaseException as error:  # noqa: BLE001  handed on to the coroutine, as an await would
            try:
                self._awaited = self._coroutine.throw(error)
            except StopIteration as done:
                reply: Reply = done.value
                return reply
            return (yield from self.__await__())
        return (yield from self._coroutine.__await__())
