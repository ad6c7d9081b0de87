"""Serves the znode tree on ZooKeeper's wire protocol. This module contains only the sockets.

Each socket has a :class:`ClientConnection`, which receives complete frames. A frame may have up to ``max_frame_bytes``
(ZooKeeper's ``jute.maxbuffer``). A frame that announces more bytes, or that cannot be decoded, closes its connection
with one log line. Other connections are not affected. A connection buffers at most one frame and one read of the
socket.

Replies to requests that were received together are sent together, in one write to the socket.

A client may send thousands of requests at once. After some milliseconds of them, other clients get their turn. Until
the rest is handled, the server reads nothing more from that client.

When a client does not read its replies, the server stops reading from that client until the client reads again. Watch
events for the client are still collected. When more than ``MAX_UNSENT_BYTES`` are collected, the server closes the
connection. The session stays open, so the client can reconnect.

A port may have TLS. A handshake that takes too long closes the connection. The subject of a client's certificate, which
OpenSSL has checked, is an identity of the client.
"""

from __future__ import annotations

import asyncio
from logging import getLogger
from socket import AI_PASSIVE, SOCK_STREAM
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

from headrace.coordination.server.client_connection import ClientConnection
from headrace.coordination.server.four_letter_words import WORD_BYTES, answer_of
from headrace.coordination.server.jute import Malformed
from headrace.coordination.server.service import TreeService

if TYPE_CHECKING:
    from ssl import SSLContext

logger = getLogger(__name__)

#: ZooKeeper's jute.maxbuffer.
MAX_FRAME_BYTES = 0xFFFFF
MAX_UNSENT_BYTES = 16 * 1024 * 1024
_WRITE_AFTER_BYTES = 64 * 1024
#: After this time, the other requests that a client has sent wait until other clients had their turn.
_TURN_NS = 5_000_000
_HANDSHAKE_TIMEOUT_S = 10.0
_LENGTH = Struct(">i")


class TreeServer:
    """Serves one tree, on one address or several."""

    def __init__(self, service: TreeService, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._service = service
        self._max_frame_bytes = max_frame_bytes
        self._servers: list[asyncio.Server] = []
        self._sockets: set[_ServerSocket] = set()

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> tuple[str, int]:
        """Starts to serve on an address; returns the bound address (with the real port if ``port`` is 0).

        :raises OSError: if the address is in use, or is not an address of this machine.
        """
        loop = asyncio.get_running_loop()
        # Binds one address of the name, not all: with port 0, each address would get another port.
        found = await loop.getaddrinfo(host or "0.0.0.0", port, type=SOCK_STREAM, flags=AI_PASSIVE)
        server = await loop.create_server(
            self._new_socket,
            str(found[0][4][0]),
            port,
            backlog=128,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else _HANDSHAKE_TIMEOUT_S,
        )
        self._servers.append(server)
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        return bound_host, bound_port

    async def stop(self) -> None:
        """Stops accepting connections, and closes every connection. Sessions stay open, so clients can reconnect."""
        if not self._servers:
            return
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        self._service.stop()
        for socket in list(self._sockets):
            socket.drop()
        for server in servers:
            await server.wait_closed()

    def _new_socket(self) -> _ServerSocket:
        return _ServerSocket(self._service, self._max_frame_bytes, self._sockets)


def _certificate_subject(transport: asyncio.BaseTransport) -> str | None:
    """The subject of the client's certificate; None without TLS, or if the client has sent none."""
    tls = transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    if certificate is None:
        return None
    from headrace.security.tls.der import DerError
    from headrace.security.tls.names import certificate_subject

    try:
        return certificate_subject(certificate)
    except DerError as error:
        logger.warning("a client's certificate gives it no identity: its subject cannot be read: %s", error)
        return None


class _ServerSocket(asyncio.Protocol):
    """Cuts the bytes of one socket into frames."""

    def __init__(self, service: TreeService, max_frame_bytes: int, sockets: set[_ServerSocket]) -> None:
        self._service = service
        self._sockets = sockets
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._has_started = False
        self._is_writing_paused = False
        self._is_handling = False
        #: Whether the loop will call for the frames that were left for the next turn.
        self._has_next_turn = False
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        is_allowed = self._service.may_connect(peer[0])
        self._connection = ClientConnection(
            self._service,
            f"{peer[0]}:{peer[1]}",
            self._send,
            self._close,
            certificate_subject=_certificate_subject(transport),
        )
        self._sockets.add(self)
        if not is_allowed:
            count = self._service.max_connections_per_address
            self._close_with_warning(f"its address has {count} connections (maxClientCnxns)")

    def data_received(self, data: bytes) -> None:
        self._pending += data
        if not self._has_next_turn:
            self._handle_pending()

    def connection_lost(self, _: Exception | None) -> None:
        self._sockets.discard(self)
        self._connection.connection_lost()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if not self._has_next_turn:
            self._continue()

    def _take_next_turn(self) -> None:
        self._has_next_turn = False
        if not self._is_writing_paused:
            self._continue()

    def _continue(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._handle_pending()

    def _handle_pending(self) -> None:
        pending = self._pending
        if not self._has_started and len(pending) >= WORD_BYTES:
            self._has_started = True
            if self._answer_four_letter_word(bytes(pending[:WORD_BYTES])):
                return
        self._is_handling = True
        try:
            del pending[: self._handle_frames(pending)]
            self._write()
        except Malformed as error:
            self._close_with_warning(str(error))
        except OSError as error:
            self._close_with_warning(f"cannot write its session to disk: {error}")
        finally:
            self._is_handling = False

    def _handle_frames(self, pending: bytearray) -> int:
        """Handles all complete frames; returns the position after them."""
        position = 0
        turn_ends = perf_counter_ns() + _TURN_NS
        while self._connection.is_open and not self._is_writing_paused:
            end = self._frame_end(pending, position)
            if end is None:
                break
            if position and perf_counter_ns() >= turn_ends:
                self._has_next_turn = True
                self._transport.pause_reading()
                asyncio.get_running_loop().call_soon(self._take_next_turn)
                break
            self._connection.receive(bytes(pending[position + _LENGTH.size : end]))
            position = end
        return position

    def _frame_end(self, pending: bytearray, start: int) -> int | None:
        """The end of the frame at ``start``; None while the frame is incomplete."""
        if len(pending) - start < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(pending, start)
        if not 0 <= length <= self._max_frame_bytes:
            raise Malformed(f"a frame of {length} bytes is larger than {self._max_frame_bytes} (jute.maxbuffer)")
        end = start + _LENGTH.size + int(length)
        return end if end <= len(pending) else None

    def _answer_four_letter_word(self, word: bytes) -> bool:
        answer = answer_of(word, self._service)
        if answer is None:
            return False
        self._send(answer.encode())
        self._connection.disconnect()
        return True

    def _send(self, frame: bytes) -> None:
        self._unwritten.append(frame)
        self._unwritten_bytes += len(frame)
        if not self._is_handling or self._unwritten_bytes >= _WRITE_AFTER_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._unwritten:
            return
        self._transport.write(b"".join(self._unwritten))
        self._unwritten.clear()
        self._unwritten_bytes = 0
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._close_with_warning("the client does not read its replies")

    def _close(self) -> None:
        self._write()
        self._transport.close()

    def _close_with_warning(self, reason: str) -> None:
        self._connection.log("closing the connection", reason)
        self.drop()

    def drop(self) -> None:
        self._connection.connection_lost()
        self._transport.abort()
