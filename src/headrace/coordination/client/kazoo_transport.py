"""The transport of ``zookeeper_client.py`` over kazoo: a thread talks to the ensemble, and an event loop gets the
results.

kazoo keeps one connection, finds another server when the connection breaks, sends pings, and resumes its session. kazoo
does this in one thread. All results (answers, events, states of the session) are passed to the event loop with
``call_soon_threadsafe``, in the order in which they were received. For this order, kazoo's own result objects and
worker threads are not used: they are two queues, so an answer could arrive before an earlier event.
``KazooClient._call``, which is not public, accepts any object with ``set`` and ``set_exception`` as the receiver of an
answer.

With TLS the handshake is ours too, because kazoo knows only PEM files. kazoo sends the login on every new connection
before any other request, and does not log it above DEBUG; its logger is set to ERROR.
"""

from __future__ import annotations

import select
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from logging import ERROR, NOTSET, getLogger
from math import ceil
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]
from kazoo.protocol.states import KazooState, KeeperState  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]

from headrace.coordination.client.client_security import SASL, ClientSecurity
from headrace.coordination.client.kazoo_requests import Request, error_of
from headrace.coordination.interface import CoordinationError, EventType, SessionState, WatchEvent

if TYPE_CHECKING:
    from ssl import SSLContext, SSLSocket

logger = getLogger(__name__)
#: kazoo logs every attempt to connect. The owner of the session logs the states of the session instead.
_kazoo_logger = getLogger(f"{__name__}.kazoo")
if _kazoo_logger.level == NOTSET:
    _kazoo_logger.setLevel(ERROR)

T = TypeVar("T")
_READ_BYTES = 64 * 1024
_RETRY_DELAY_S, _MAX_RETRY_DELAY_S = 0.05, 1.0

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

    def __init__(self, inner: socket.socket | SSLSocket) -> None:
        self._inner = inner
        self._buffer = b""
        self.fileno, self.setblocking, self.close = inner.fileno, inner.setblocking, inner.close
        self.send, self.getpeername = inner.send, inner.getpeername
        #: The bytes that TLS has decrypted; the socket itself does not become readable for them.
        self._decrypted: Callable[[], int] = getattr(inner, "pending", lambda: 0)

    def pending(self) -> int:
        """The bytes that are already read. kazoo calls this method on TLS sockets, too."""
        return len(self._buffer) or self._decrypted()

    def recv(self, max_bytes: int) -> bytes:
        if not self._buffer:
            self._buffer = self._inner.recv(_READ_BYTES)
        taken, self._buffer = self._buffer[:max_bytes], self._buffer[max_bytes:]
        return taken


def _guarded(connection_loop: Callable[[], object]) -> None:
    try:
        connection_loop()
    except Exception:
        # The server sent malformed bytes. kazoo has reported the session as lost, and the transport starts another one.
        logger.exception("the connection to ZooKeeper failed; a new session is started")


def _with_tls(plain: socket.socket, context: SSLContext, host: str) -> SSLSocket:
    """Makes the handshake, within the timeout of the socket."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


class BufferedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler with our sockets: with our TLS, and with fewer system calls.

    kazoo itself creates and closes an epoll object for each wait.
    """

    def __init__(self, connect_timeout_s: float, tls: SSLContext | None) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        #: Why the last connection could not be opened; None after a successful one.
        self.last_error: OSError | None = None

    def create_connection(self, *args: object, **kwargs: object) -> object:
        # By default, kazoo waits for one silent server as long as the session timeout, so the session would expire.
        kwargs["timeout"] = self._connect_timeout_s
        try:
            plain: socket.socket = super().create_connection(*args, **kwargs)
            opened = plain if self._tls is None else _with_tls(plain, self._tls, str(kwargs["hostname"]))
        except OSError as error:
            self.last_error = error
            raise
        self.last_error = None
        return _BufferedSocket(opened)

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


class _Handler(BufferedHandler, SequentialThreadingHandler):  # type: ignore[misc]  # kazoo calls its methods
    """Replaces kazoo's worker threads: events go to the event loop at once."""

    def __init__(self, on_event: Callable[[object], None], connect_timeout_s: float, tls: SSLContext | None) -> None:
        super().__init__(connect_timeout_s, tls)
        self._on_event = on_event

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def spawn(self, func: Callable[[], object], *_: object, **__: object) -> object:
        return super().spawn(_guarded, func)

    def dispatch_callback(self, callback: object) -> None:
        (event,) = callback.args  # type: ignore[attr-defined]
        self._on_event(event)


def login_options(security: ClientSecurity) -> dict[str, object]:
    """The arguments of a KazooClient that make it log in at each new connection."""
    if security.login is None:
        return {}
    if security.scheme != SASL:
        return {"auth_data": [(security.scheme, security.login)]}
    user, _, password = security.login.partition(":")
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}


class KazooTransport:
    def __init__(
        self,
        hosts: str,
        session_timeout_ms: int,
        loop: AbstractEventLoop,
        *,
        on_state: Callable[[SessionState, int], None],
        on_event: Callable[[WatchEvent], None],
        on_login_failed: Callable[[], None],
        security: ClientSecurity,
    ) -> None:
        """
        :param on_state: called on the event loop with a state and the id of its session.
        :param on_event: called on the event loop.
        :param on_login_failed: called on the event loop. The transport continues to try.
        """
        self._loop = loop
        self._on_state = on_state
        self._on_event = on_event
        self._on_login_failed = on_login_failed
        self._is_started = False
        timeout_s = session_timeout_ms / 1000
        self._handler = handler = _Handler(self._pass_event, timeout_s / (2 * (hosts.count(",") + 1)), security.tls)
        retry = KazooRetry(
            max_tries=-1, delay=_RETRY_DELAY_S, max_delay=_MAX_RETRY_DELAY_S, sleep_func=handler.sleep_func
        )
        self._client = KazooClient(
            hosts,
            timeout=timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=_kazoo_logger,
            **login_options(security),
        )
        self._client.add_listener(self._pass_state)

    @property
    def last_error(self) -> OSError | None:
        """Why the last connection could not be opened, as far as it is known."""
        return self._handler.last_error

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
        is_login_failed = self._client.client_state == KeeperState.AUTH_FAILED
        if is_login_failed:
            self._loop.call_soon_threadsafe(self._on_login_failed)
        self._loop.call_soon_threadsafe(self._on_state, _STATES[state], session_id)
        if is_login_failed:
            # kazoo's thread ends after this, and reports nothing more.
            self._loop.call_soon_threadsafe(self._loop.call_later, _MAX_RETRY_DELAY_S, self._start_again)
        elif self._client._connection.connection_stopped.is_set():
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
