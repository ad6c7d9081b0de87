"""The transport of ``zookeeper_client.py`` over kazoo: a thread talks to the ensemble, and an event loop gets the
results.

kazoo keeps one connection, finds another server when the connection breaks, sends pings, and resumes its session. kazoo
does this in one thread. All results (answers, events, states of the session) are passed to the event loop with
``call_soon_threadsafe``, in the order in which they were received. For this order, kazoo's own result objects and
worker threads are not used: they are two queues, so an answer could arrive before an earlier event.
``KazooClient._call``, which is not public, accepts any object with ``set`` and ``set_exception`` as the receiver of an
answer.
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
#: kazoo logs every attempt to connect. The owner of the session logs the states of the session instead.
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
#: In the answer to a failed multi: another operation failed.
_NOT_THE_CAUSE = (theirs.RolledBackError, theirs.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A message of kazoo, and the function that decodes its answer."""

    message: object
    decode: Callable[[object], T]
    #: The path, or the name of the operation, for errors.
    subject: str


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
    """If the multi failed, ``decode`` raises the error of the operation that failed."""

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
        if isinstance(answer, _NOT_THE_CAUSE):
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


def error_of(error: Exception, subject: str) -> CoordinationError:
    kind = _ERRORS.get(type(error))
    return CoordinationError(f"{subject}: {error!r}") if kind is None else kind(subject)


def _ignore(_: object) -> None:
    pass


def _marker(watch: bool) -> Callable[[object], None] | None:
    """kazoo's object for a watch. The handler does not call it, but passes the event to the transport."""
    return _ignore if watch else None


class _Answer(Generic[T]):
    """Receives the answer to one request on kazoo's thread."""

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
        self._loop.call_soon_threadsafe(self._answered, error_of(error, self._request.subject))

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
    """Reads many answers with one system call. kazoo itself would make two calls per answer."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain
        self._buffer = b""
        self.fileno, self.setblocking, self.close = plain.fileno, plain.setblocking, plain.close
        self.send, self.getpeername = plain.send, plain.getpeername

    def pending(self) -> int:
        """The bytes that are already read. kazoo calls this method on TLS sockets, too."""
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
        # The server sent malformed bytes. kazoo has reported the session as lost, and the transport starts another one.
        logger.exception("the connection to ZooKeeper failed; a new session is started")


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Replaces kazoo's worker threads: events go to the event loop at once.

    Also does less work per request: kazoo creates and closes an epoll object for each wait.
    """

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
        # By default, kazoo waits for one silent server as long as the session timeout, so the session would expire.
        kwargs["timeout"] = self._connect_timeout_s
        return _BufferedSocket(super().create_connection(*args, **kwargs))

    def select(
        self, readers: Sequence[_Waitable], writers: Sequence[_Waitable], _: object, timeout: float | None = None
    ) -> tuple[list[_Waitable], list[_Waitable], list[_Waitable]]:
        """Uses ``poll``: ``select.select`` supports file numbers up to 1,023 only, and a broker has more files."""
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
        """
        :param on_state: called on the event loop with a state and the id of its session.
        :param on_event: called on the event loop.
        """
        self._loop = loop
        self._on_state = on_state
        self._on_event = on_event
        self._is_started = False
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
        """Starts to connect, and repeats until it is stopped. Does not wait."""
        self._is_started = True
        self._client.start_async()

    def send(self, request: Request[T], answered: Callable[[T | CoordinationError], None]) -> None:
        """Sends a request without waiting for earlier answers. ``answered`` is called on the event loop."""
        self._client._call(request.message, _Answer(self._loop, request, answered))

    def stop(self) -> None:
        """Ends the session and the thread. Blocks until then, so the caller uses a thread of its own."""
        self._is_started = False
        self._client.stop()
        self._client.close()

    # Called on kazoo's thread

    def _pass_state(self, state: str) -> None:
        session_id = cast(int, self._client._session_id or 0)
        self._loop.call_soon_threadsafe(self._on_state, _STATES[state], session_id)
        if self._client._connection.connection_stopped.is_set():
            self._loop.call_soon_threadsafe(self._start_again)

    def _start_again(self) -> None:
        """Starts kazoo's thread again, unless the transport was stopped."""
        if self._is_started:
            self._client.start_async()

    def _pass_event(self, event: object) -> None:
        kind, path = cast(str, event.type), cast(str | None, event.path)  # type: ignore[attr-defined]
        # Events without a path are made by kazoo itself when a connection breaks.
        if path is not None:
            self._loop.call_soon_threadsafe(self._on_event, WatchEvent(_EVENTS[kind], path))
