"""kazoo as the transport of ``zookeeper_client.py``: a thread that talks to an ensemble, and a loop that is told.

kazoo keeps one connection, finds another server when it breaks, pings, and takes up its session again. It does that in
one thread; all that it learns (answers, events, what becomes of the session) is handed to the loop by
``call_soon_threadsafe`` in the order in which it came over the wire. That is why neither kazoo's own result objects nor
its worker threads are used: they are two queues, and an answer could overtake the event that came before it.
``KazooClient._call``, which is not public, takes any object with ``set`` and ``set_exception`` as what to answer to.
"""

from __future__ import annotations

import select
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import ERROR, NOTSET, getLogger
from math import ceil
from typing import Generic, Protocol, TypeVar, cast

from kazoo import exceptions as theirs  # type: ignore[import-untyped]
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol import serialization as wire  # type: ignore[import-untyped]
from kazoo.protocol.states import KazooState  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]
from kazoo.security import OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from headrace.coordination.interface import (
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLostError,
    CoordinationError,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    copy_data,
)

logger = getLogger(__name__)
#: kazoo tells of every try to connect. What becomes of the session is told by whoever has it.
_kazoo_logger = getLogger(f"{__name__}.kazoo")
if _kazoo_logger.level == NOTSET:
    _kazoo_logger.setLevel(ERROR)

T = TypeVar("T")
_EPHEMERAL, _SEQUENCE = 1, 2
_READ_BYTES = 64 * 1024
_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.05, 1.0

_ERRORS: dict[type[Exception], type[CoordinationError]] = {
    theirs.NoNodeError: NoNodeError,
    theirs.NodeExistsError: NodeExistsError,
    theirs.BadVersionError: BadVersionError,
    theirs.NotEmptyError: NotEmptyError,
    theirs.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    theirs.BadArgumentsError: BadArgumentsError,
    theirs.SessionExpiredError: SessionExpiredError,
    theirs.ConnectionClosedError: SessionExpiredError,
    theirs.ConnectionLoss: ConnectionLostError,
}
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_EVENTS = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.CHANGED,
    "CHILD": EventType.CHILD,
}
#: In an answer to a failed multi: this one was not what failed.
_BYSTANDERS = (theirs.RolledBackError, theirs.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A message of kazoo's, and how its answer becomes ours."""

    message: object
    decode: Callable[[object], T]
    about: str


def create(operation: Create) -> Request[str]:
    return Request(_message(operation), lambda path: cast(str, path), operation.path)


def get(path: str, *, watch: bool) -> Request[tuple[bytes, Stat]]:
    return Request(wire.GetData(path, _marker(watch)), _data_and_stat, path)


def set_data(operation: SetData) -> Request[Stat]:
    return Request(_message(operation), _stat, operation.path)


def delete(operation: Delete) -> Request[None]:
    return Request(_message(operation), lambda _: None, operation.path)


def exists(path: str, *, watch: bool) -> Request[Stat | None]:
    return Request(wire.Exists(path, _marker(watch)), lambda stat: None if stat is None else _stat(stat), path)


def children(path: str, *, watch: bool) -> Request[tuple[list[str], Stat]]:
    return Request(wire.GetChildren2(path, _marker(watch)), _names_and_stat, path)


def multi(operations: Sequence[Operation]) -> Request[list[Result]]:
    """Its answer may say that it failed: then ``decode`` raises what the first one failed with."""

    def decode(answer: object) -> list[Result]:
        return _results(operations, cast(list[object], answer))

    return Request(wire.Transaction([_message(operation) for operation in operations]), decode, "multi")


def _message(operation: Operation) -> object:
    match operation:
        case Create(path, data, ephemeral, sequence):
            flags = _EPHEMERAL * ephemeral | _SEQUENCE * sequence
            return wire.Create(path, copy_data(data), OPEN_ACL_UNSAFE, flags)
        case Delete(path, version):
            return wire.Delete(path, version)
        case SetData(path, data, version):
            return wire.SetData(path, copy_data(data), version)
        case Check(path, version):
            return wire.CheckVersion(path, version)


def _stat(answer: object) -> Stat:
    return Stat(*cast(tuple[int, ...], answer))


def _data_and_stat(answer: object) -> tuple[bytes, Stat]:
    data, stat = cast(tuple[bytes | None, object], answer)
    return data or b"", _stat(stat)


def _names_and_stat(answer: object) -> tuple[list[str], Stat]:
    names, stat = cast(tuple[list[str], object], answer)
    return sorted(names), _stat(stat)


def _results(operations: Sequence[Operation], answers: list[object]) -> list[Result]:
    results: list[Result] = []
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if isinstance(answer, _BYSTANDERS):
            continue
        if isinstance(answer, Exception):
            error = error_of(answer, operation.path)
            error.operation_index = index
            raise error
        match operation:
            case Create():
                results.append(cast(str, answer))
            case SetData():
                results.append(_stat(answer))
            case _:
                results.append(None)
    return results


def error_of(error: Exception, about: str) -> CoordinationError:
    kind = _ERRORS.get(type(error))
    return CoordinationError(f"{about}: {error!r}") if kind is None else kind(about)


def _ignore(_: object) -> None:
    pass


def _marker(watch: bool) -> Callable[[object], None] | None:
    """What kazoo knows a watch by. It calls it through the handler, which tells the link instead."""
    return _ignore if watch else None


class _Answer(Generic[T]):
    """What kazoo's thread answers to."""

    __slots__ = ("_answered", "_loop", "_request")

    def __init__(
        self,
        loop: AbstractEventLoop,
        request: Request[T],
        answered: Callable[[T | CoordinationError], None],
    ) -> None:
        self._loop, self._request, self._answered = loop, request, answered

    def set(self, value: object = None) -> None:
        self._loop.call_soon_threadsafe(self._decode, value)

    def set_exception(self, error: Exception) -> None:
        self._loop.call_soon_threadsafe(self._answered, error_of(error, self._request.about))

    def _decode(self, value: object) -> None:
        try:
            answer = self._request.decode(value)
        except CoordinationError as error:
            self._answered(error)
        else:
            self._answered(answer)


class _Waitable(Protocol):
    def fileno(self) -> int: ...


class _BufferedSocket:
    """Answers that came together are read together: kazoo reads a length and a frame at a time."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain
        self._buffer = b""
        self.fileno, self.setblocking, self.close = plain.fileno, plain.setblocking, plain.close
        self.send, self.getpeername = plain.send, plain.getpeername

    def pending(self) -> int:
        """By this name kazoo asks a TLS socket, too, what it has read already."""
        return len(self._buffer)

    def recv(self, max_bytes: int) -> bytes:
        if not self._buffer:
            self._buffer = self._plain.recv(_READ_BYTES)
        taken, self._buffer = self._buffer[:max_bytes], self._buffer[max_bytes:]
        return taken


def _guarded(connection_loop: Callable[[], object]) -> None:
    try:
        connection_loop()
    except Exception:
        # Bytes that make no sense; kazoo has said that the session is lost. The link begins another.
        logger.exception("the connection with ZooKeeper cannot go on")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Without kazoo's own worker threads: an event goes to the loop at once. And with less work for each request:
    kazoo makes an epoll and closes it whenever it waits."""

    def __init__(self, on_event: Callable[[object], None], connect_timeout_s: float) -> None:
        super().__init__()
        self._on_event = on_event
        self._connect_timeout_s = connect_timeout_s

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def spawn(self, func: Callable[[], object], *_: object, **__: object) -> object:
        return super().spawn(_guarded, func)

    def dispatch_callback(self, callback: object) -> None:
        (event,) = callback.args  # type: ignore[attr-defined]
        self._on_event(event)

    def create_connection(self, *args: object, **kwargs: object) -> object:
        # kazoo would give one server that does not answer the time in which the session expires.
        kwargs["timeout"] = self._connect_timeout_s
        return _BufferedSocket(super().create_connection(*args, **kwargs))

    def select(
        self, readers: Sequence[_Waitable], writers: Sequence[_Waitable], _: object, timeout: float | None = None
    ) -> tuple[list[_Waitable], list[_Waitable], list[_Waitable]]:
        """Not ``select.select``, which takes no more than 1,024 files; a broker has more."""
        ready = [one for one in readers if isinstance(one, _BufferedSocket) and one.pending()]
        poll = select.poll()
        for one in readers:
            poll.register(one, select.POLLIN)
        for one in writers:
            poll.register(one, select.POLLOUT)
        wait_ms = 0 if ready else None if timeout is None else ceil(timeout * 1000)
        found = {file_number for file_number, _ in poll.poll(wait_ms)}
        readable = [one for one in readers if one in ready or one.fileno() in found]
        return readable, [one for one in writers if one.fileno() in found], []


class KazooTransport:
    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        loop: AbstractEventLoop,
        *,
        on_state: Callable[[SessionState, int], None],
        on_event: Callable[[WatchEvent], None],
    ) -> None:
        """Both are called on the loop; a state comes with the id of the session that it is about."""
        self._loop = loop
        self._on_state = on_state
        self._on_event = on_event
        self._is_wanted = False
        timeout_s = session_timeout_ms / 1000
        handler = _Handler(self._pass_event, timeout_s / (2 * (hosts.count(",") + 1)))
        retry = KazooRetry(
            max_tries=-1, delay=_RETRY_DELAY_S, max_delay=_MAX_RETRY_DELAY_S, sleep_func=handler.sleep_func
        )
        self._client = KazooClient(
            hosts, timeout=timeout_s, handler=handler, connection_retry=retry, logger=_kazoo_logger
        )
        self._client.add_listener(self._pass_state)

    def start(self) -> None:
        """Goes on trying until it is stopped; does not wait."""
        self._is_wanted = True
        self._client.start_async()

    def send(self, request: Request[T], answered: Callable[[T | CoordinationError], None]) -> None:
        """Sent in order, without waiting for the answers to others; ``answered`` is called on the loop."""
        self._client._call(request.message, _Answer(self._loop, request, answered))

    def stop(self) -> None:
        """Ends the session and the thread. Waits for that: to be called on a thread of its own."""
        self._is_wanted = False
        self._client.stop()
        self._client.close()

    # On kazoo's thread

    def _pass_state(self, state: str) -> None:
        session_id = cast(int, self._client._session_id or 0)
        self._loop.call_soon_threadsafe(self._on_state, _STATES[state], session_id)
        if self._client._connection.connection_stopped.is_set():
            self._loop.call_soon_threadsafe(self._start_again)

    def _start_again(self) -> None:
        """kazoo's thread has ended; unless we wanted that, there is another."""
        if self._is_wanted:
            self._client.start_async()

    def _pass_event(self, event: object) -> None:
        kind, path = cast(str, event.type), cast(str | None, event.path)  # type: ignore[attr-defined]
        # Those that kazoo makes up when a connection breaks have no path.
        if path is not None:
            self._loop.call_soon_threadsafe(self._on_event, WatchEvent(_EVENTS[kind], path))
