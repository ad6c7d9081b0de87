"""Serves the znode tree on ZooKeeper's wire protocol. This module contains only the sockets.

Each socket has a :class:`ClientConnection`, which receives complete frames. A frame may have up to ``max_frame_bytes``
(ZooKeeper's ``jute.maxbuffer``). A frame that announces more bytes, or that cannot be decoded, closes its connection
with one log line. Other connections are not affected. A connection buffers at most one frame and one read of the
socket.

Replies to requests that were received together are sent together, in one write to the socket.

When a client does not read its replies, the server stops reading from that client until the client reads again. Watch
events for the client are still collected. When more than ``MAX_UNSENT_BYTES`` are collected, the server closes the
connection. The session stays open, so the client can reconnect.
"""

from __future__ import annotations

import asyncio
from logging import getLogger
from socket import AI_PASSIVE, SOCK_STREAM
from struct import Struct
from typing import cast

from headrace.coordination.server.client_connection import ClientConnection
from headrace.coordination.server.four_letter_words import WORD_BYTES, WORDS
from headrace.coordination.server.jute import Malformed
from headrace.coordination.server.service import TreeService

logger = getLogger(__name__)

#: ZooKeeper's jute.maxbuffer.
MAX_FRAME_BYTES = 0xFFFFF
MAX_UNSENT_BYTES = 16 * 1024 * 1024
_WRITE_AT_BYTES = 64 * 1024
_LENGTH = Struct(">i")


class TreeServer:
    def __init__(self, service: TreeService, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._service = service
        self._max_frame_bytes = max_frame_bytes
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Serves; the address as bound (port 0 has become a real one).

        :raises OSError: if the address is taken or is not ours.
        """
        loop = asyncio.get_running_loop()
        # One address and not all that a name has: with port 0 each would get a port of its own.
        found = await loop.getaddrinfo(host or "0.0.0.0", port, type=SOCK_STREAM, flags=AI_PASSIVE)
        self._server = await loop.create_server(self._connection, str(found[0][4][0]), port, backlog=128)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return bound_host, bound_port

    async def stop(self) -> None:
        """Accepts no more, and closes every connection. Sessions stay open: their clients may come back."""
        if self._server is None:
            return
        self._server.close()
        self._service.stop()
        for connection in list(self._connections):
            connection.drop()
        await self._server.wait_closed()
        self._server = None

    def _connection(self) -> _Connection:
        return _Connection(self._service, self._max_frame_bytes, self._connections)


class _Connection(asyncio.Protocol):
    def __init__(self, service: TreeService, max_frame_bytes: int, connections: set[_Connection]) -> None:
        self._service = service
        self._connections = connections
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._is_begun = False
        self._is_held_up = False
        self._is_handling = False
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._dialog = ClientConnection(self._service, f"{peer[0]}:{peer[1]}", self._send, self._close)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        self._handle_pending()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        self._dialog.lost()

    def pause_writing(self) -> None:
        self._is_held_up = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_held_up = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._handle_pending()

    def _handle_pending(self) -> None:
        pending = self._pending
        if not self._is_begun and len(pending) >= WORD_BYTES:
            self._is_begun = True
            if self._answer_word(bytes(pending[:WORD_BYTES])):
                return
        self._is_handling = True
        try:
            del pending[: self._handle_frames(pending)]
            self._write()
        except Malformed as error:
            self._give_up(str(error))
        except OSError as error:
            self._give_up(f"its session cannot be written: {error}")
        finally:
            self._is_handling = False

    def _handle_frames(self, pending: bytearray) -> int:
        """Handles what is whole; where that ends."""
        position = 0
        while self._dialog.is_open and not self._is_held_up:
            end = self._frame_end(pending, position)
            if end is None:
                break
            self._dialog.receive(bytes(pending[position + _LENGTH.size : end]))
            position = end
        return position

    def _frame_end(self, pending: bytearray, start: int) -> int | None:
        """Where the frame at ``start`` ends; None until it is whole."""
        if len(pending) - start < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(pending, start)
        if not 0 <= length <= self._max_frame_bytes:
            raise Malformed(f"a frame of {length} bytes; at most {self._max_frame_bytes} are taken (jute.maxbuffer)")
        end = start + _LENGTH.size + int(length)
        return end if end <= len(pending) else None

    def _answer_word(self, word: bytes) -> bool:
        answer = WORDS.get(word)
        if answer is None:
            return False
        self._send(answer(self._service).encode())
        self._dialog.disconnect()
        return True

    def _send(self, frame: bytes) -> None:
        self._unwritten.append(frame)
        self._unwritten_bytes += len(frame)
        if not self._is_handling or self._unwritten_bytes >= _WRITE_AT_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._unwritten:
            return
        self._transport.write(b"".join(self._unwritten))
        self._unwritten.clear()
        self._unwritten_bytes = 0
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            logger.warning("closing the connection of %s: it does not read what it is sent", self._dialog.peer)
            self.drop()

    def _close(self) -> None:
        self._write()
        self._transport.close()

    def _give_up(self, reason: str) -> None:
        logger.warning("closing the connection of %s: %s", self._dialog.peer, reason)
        self.drop()

    def drop(self) -> None:
        self._dialog.lost()
        self._transport.abort()
