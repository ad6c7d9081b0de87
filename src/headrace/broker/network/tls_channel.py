"""A channel with TLS: a network thread moves and encrypts the bytes, the loop's thread handles the requests.

The TLS session and the frame reader have one owner at a time, so they need no lock:

    owner               from                              until
    network thread      the start of the connection       a frame is complete
    loop's thread       a frame is complete               no further frame is complete, and everything is sent
    network thread      an answer is too large to send    the answer is sent
                        from the loop's thread

The loop's thread encrypts and sends small answers itself. That takes a few microseconds; handing an answer to the
network thread takes longer than that, and the client waits for it. Large answers, and all that contain files, are sent
by the network thread.

If the last requests and answers of a connection were small, the loop's thread keeps the session, watches the socket
itself, and decrypts the next small request: each hand-over between threads takes about 30 µs of latency, and as much
CPU. The network thread gets the connection back with the first large request or answer.

While the loop's thread owns the session, the network thread only notes that the socket became readable
(``has_unread``). The loop's thread looks at the note when it gives the session back. Each side first writes its own
flag and then reads the other's, so no event is lost; if both notice, the second read finds nothing.
"""

from __future__ import annotations

import select
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.network.answer_parts import FilePart, Parts
from headrace.broker.network.tls_session import EndOfStream, HostileClient, TlsSession, Turn

if TYPE_CHECKING:
    import socket

    from headrace.broker.network.connection import Connection
    from headrace.broker.network.processor import Processor
    from headrace.security.principal import Principal

#: Answers of up to this many bytes are encrypted and sent by the loop's thread.
DIRECT_BYTES = 32 * 1024
#: Larger requests are received by the network thread.
_SMALL_REQUEST_BYTES = 16 * 1024
#: The number of small requests with small answers in a row, after which the loop's thread watches the socket.
_SMALL_IN_A_ROW = 2

_ENDING = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_READABLE = select.EPOLLIN | _ENDING
_NO_BUFFER = memoryview(b"")


class TlsChannel:
    __slots__ = (
        "_connection", "_is_closed", "_is_on_loop", "_is_owned_by_loop", "_is_paused", "_is_sending", "_parts",
        "_principal_of", "_session", "_small_in_a_row", "_socket", "_waits_to_send", "has_unread", "is_established",
        "processor",
    )  # fmt: skip

    _connection: Connection

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        processor: Processor,
        principal_of: Callable[[bytes | None], Principal],
    ) -> None:
        """
        :param principal_of: makes the principal from the client's certificate, or from None.
        """
        self.processor = processor
        #: Set by the network thread: bytes have arrived that were not received.
        self.has_unread = False
        self._socket = sock
        self._session = TlsSession(sock, context)
        self._principal_of = principal_of
        self.is_established = False
        self._is_owned_by_loop = False
        #: Whether the loop watches the socket, and whether it does not watch it during a request.
        self._is_on_loop = self._is_paused = False
        self._small_in_a_row = 0
        self._is_closed = False
        self._parts: Parts = deque()
        #: On the loop's thread: whether the network thread sends.
        self._is_sending = False
        #: On the network thread: whether it sends, and waits until the socket accepts more.
        self._waits_to_send = False

    def __repr__(self) -> str:
        return f"<TLS channel of {self._connection.peer}>"

    def fileno(self) -> int:
        return self._socket.fileno()

    # -- on the loop's thread

    @property
    def local_address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def start(self, connection: Connection) -> None:
        self._connection = connection
        self.processor.do(self, TlsChannel._open)

    def pause(self) -> None:
        if self._is_on_loop and not self._is_paused:
            self._is_paused = True
            self.processor.loop.remove_reader(self._socket)

    def resume(self) -> None:
        is_small = self._connection.frames.last_frame_bytes <= _SMALL_REQUEST_BYTES
        self._small_in_a_row = self._small_in_a_row + 1 if is_small else 0
        if self._is_on_loop:
            if self._session.has_undecrypted:
                self.processor.loop.call_soon(self._receive_on_loop)
            if self._is_paused:
                self._is_paused = False
                self.processor.loop.add_reader(self._socket, self._receive_on_loop)
        elif self._small_in_a_row >= _SMALL_IN_A_ROW and not self.has_unread:
            self._is_on_loop = True
            self.processor.stop_watching(self)
            self.has_unread = False
            self.processor.loop.add_reader(self._socket, self._receive_on_loop)
        else:
            self._is_owned_by_loop = False
            if self.has_unread:
                self.processor.do(self, TlsChannel._receive)

    def _receive_on_loop(self) -> None:
        connection = self._connection
        if connection.is_closed or not self._is_on_loop:
            return
        if connection.is_busy:
            self.pause()
            connection.next_request_arrived()
            return
        frames, self.has_unread = connection.frames, False
        self._session.readable(is_ending=False)
        started = perf_counter_ns()
        try:
            turn = self._session.receive(frames, self.processor.loop_buffer, max_bytes=_SMALL_REQUEST_BYTES)
        except (EndOfStream, OSError) as error:
            self._close_connection(_reason(error) if isinstance(error, ssl.SSLError | HostileClient) else None)
            return
        self._count(started)
        if turn is Turn.DONE:
            self.has_unread = self._session.has_undecrypted
            connection.take_request()
        elif turn is Turn.MORE or frames.coming_frame_bytes > _SMALL_REQUEST_BYTES:
            self._leave_loop()
            self._is_owned_by_loop = False
            self.processor.do(self, TlsChannel._receive)

    def _leave_loop(self) -> None:
        """The network thread watches the socket again."""
        self._small_in_a_row = 0
        if self._is_on_loop:
            self.pause()
            self._is_on_loop = self._is_paused = False
            self.processor.do(self, TlsChannel._open)

    def send(self, parts: Parts) -> bool:
        if self._is_sending:
            return False  # _all_sent finds the parts that were added
        if _is_small(parts):
            try:
                if self._session.send(parts, _NO_BUFFER) is Turn.DONE:
                    return True
            except OSError:
                self._connection.close()
                return False
        self._leave_loop()
        self._is_sending = True
        self._parts = parts
        self.processor.do(self, TlsChannel._send)
        return False

    def _all_sent(self) -> None:
        if self._connection.is_closed:
            return
        if self._parts:
            self.processor.do(self, TlsChannel._send)
            return
        self._is_sending = False
        self._connection.sent()

    def _close_connection(self, reason: str | None) -> None:
        if reason is None:
            self._connection.close()
        else:
            self._connection.abort(reason)

    def _notice_unread(self) -> None:
        if self._is_owned_by_loop and not self._connection.is_closed:
            self._connection.next_request_arrived()

    def _establish(self, principal: Principal) -> None:
        if not self._connection.is_closed:
            self._connection.established(principal)

    def _take_request(self) -> None:
        if not self._connection.is_closed:
            self._connection.take_request()

    def close(self) -> None:
        self.pause()
        self._is_on_loop = False
        self.processor.do(self, TlsChannel._close)

    # -- on the network thread

    def _open(self) -> None:
        if not self._is_closed and not self._is_on_loop:
            self.processor.watch(self)  # reports an edge at once if the socket is readable

    def move_to(self, processor: Processor) -> None:
        self.processor = processor
        processor.do(self, TlsChannel._open)

    def on_events(self, events: int) -> None:
        is_readable = events & _READABLE
        if is_readable:
            self._session.readable(is_ending=bool(events & _ENDING))
        if not self.is_established:
            if is_readable or self._session.has_unsent:
                self.processor.shake_hands_later(self)
            return
        if self._waits_to_send and events & select.EPOLLOUT:
            self._send()
        if is_readable:
            self.has_unread = True
            if not self._is_owned_by_loop:
                self._receive()
            elif self._connection.on_next_request_arrived is not None:
                self.processor.calls_to_loop.add(self._notice_unread)

    def shake_hands(self) -> None:
        if self._is_closed or self.is_established:
            return
        try:
            turn = self._session.shake_hands(self.processor.buffer)
            if turn is Turn.MORE:
                self.processor.shake_hands_later(self)
            if turn is not Turn.DONE:
                return
            principal = self._principal_of(self._session.peer_certificate())
        except EndOfStream:
            self.fail(None)
            return
        except OSError as error:  # ssl.SSLError is one
            self.fail(f"the TLS handshake failed: {_reason(error)}")
            return
        self.is_established = True
        self.processor.calls_to_loop.add(partial(self._establish, principal))
        self._receive()

    def _receive(self) -> None:
        if self._is_closed or self._is_owned_by_loop:
            return
        self.has_unread = False
        session, connection = self._session, self._connection
        started = perf_counter_ns()
        try:
            turn = session.receive(connection.frames, self.processor.buffer)
        except EndOfStream:
            self.fail(None)
            return
        except (ssl.SSLError, HostileClient) as error:
            self.fail(_reason(error))
            return
        except OSError:
            self.fail(None)
            return
        connection.last_active_ns = self._count(started)
        if turn is Turn.DONE:
            self.has_unread = session.has_undecrypted or not session.is_drained
            self._is_owned_by_loop = True
            self.processor.calls_to_loop.add(self._take_request)
        elif turn is Turn.MORE:
            self.processor.do(self, TlsChannel._receive)

    def _send(self) -> None:
        if self._is_closed:
            return
        started = perf_counter_ns()
        try:
            turn = self._session.send(self._parts, self.processor.buffer)
        except OSError:
            self.fail(None)
            return
        ended = self._count(started)
        self._waits_to_send = turn is Turn.WAITS
        if turn is Turn.DONE:
            self.processor.calls_to_loop.add(self._all_sent)
            return
        self._connection.last_active_ns = ended  # a client that reads slowly is not idle
        if turn is Turn.MORE:
            self.processor.do(self, TlsChannel._send)

    def _count(self, started: int) -> int:
        """Counts the time since then as time of the client, if the client has quotas. Returns the present moment. The
        owner of the session calls it, so two threads never count at the same time."""
        now, limits = perf_counter_ns(), self._connection.limits
        if limits is not None:
            limits.network_ns += now - started
        return now

    def fail(self, reason: str | None) -> None:
        """Ends the connection. The reason is logged; None: the client has gone."""
        if not self._is_closed:
            self.processor.calls_to_loop.add(partial(self._close_connection, reason))

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.processor.forget(self)
            self._session.close()


def _is_small(parts: Parts) -> bool:
    if len(parts) == 1:
        part = parts[0]
        return not isinstance(part, FilePart) and len(part) <= DIRECT_BYTES
    return sum(DIRECT_BYTES if isinstance(part, FilePart) else len(part) for part in parts) < DIRECT_BYTES


def _reason(error: OSError) -> str:
    """Returns what OpenSSL says, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error.strerror or error)
