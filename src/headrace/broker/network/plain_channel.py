"""A channel without encryption, on the loop's thread.

The channel uses the non-blocking socket with the loop's ``add_reader`` and ``add_writer``. An asyncio transport would
copy bytes. Here the socket receives into the frame reader's own buffer, and ``sendfile`` sends the files of an answer
from the page cache.

The channel removes its reader from the loop only if the socket becomes readable during a request; most requests are
answered before.
"""

from __future__ import annotations

import os
import socket
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.network.answer_parts import FilePart, Part, Parts

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.network.connection import Connection


class PlainChannel:
    __slots__ = ("_connection", "_is_paused", "_parts", "_socket", "_writes", "loop")

    is_established = True
    #: Bytes that arrive during a request are noticed by the loop, and need not be remembered.
    has_unread = False
    _connection: Connection
    _parts: Parts

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._socket = sock
        self._is_paused = False
        #: Whether the loop calls when the socket accepts more.
        self._writes = False

    @property
    def local_address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def start(self, connection: Connection) -> None:
        self._connection = connection
        self.loop.add_reader(self._socket, self._receive)

    def _receive(self) -> None:
        connection = self._connection
        if connection.is_busy:
            self.pause()
            if connection.muted_by is not None and self._has_ended():
                connection.close()
            else:
                connection.next_request_arrived()
            return
        frames, limits = connection.frames, connection.limits
        if limits is not None:
            limits.receiving_since = perf_counter_ns()
        try:
            size_bytes = self._socket.recv_into(frames.room())
        except BlockingIOError:
            return
        except OSError:
            connection.close()
            return
        if size_bytes == 0:
            connection.close()
            return
        frames.received(size_bytes)
        connection.take_request()

    def _has_ended(self) -> bool:
        """Whether the client has closed the connection, and has sent nothing before."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.loop.remove_reader(self._socket)

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.loop.add_reader(self._socket, self._receive)

    def send(self, parts: Parts) -> bool:
        try:
            while parts:
                self._send_part(parts[0], parts)
        except BlockingIOError:
            self._connection.last_active_ns = perf_counter_ns()  # a client that reads slowly is not idle
            if not self._writes:
                self._writes = True
                self._parts = parts
                self.loop.add_writer(self._socket, self._continue)
            return False
        except OSError:
            self._connection.close()
            return False
        if self._writes:
            self._writes = False
            self.loop.remove_writer(self._socket)
        return True

    def _continue(self) -> None:
        started = perf_counter_ns()
        is_sent = self.send(self._parts)
        if self._connection.limits is not None:
            self._connection.limits.network_ns += perf_counter_ns() - started
        if is_sent:
            self._connection.sent()

    def _send_part(self, part: Part, parts: Parts) -> None:
        if isinstance(part, FilePart):
            sent_bytes = os.sendfile(self._socket.fileno(), part.source.fileno(), part.position, part.left_bytes)
            if sent_bytes == 0:
                raise OSError(f"{part.source} became shorter while it was sent")
            part.advance(sent_bytes)
            if part.left_bytes == 0:
                parts.popleft()
            return
        sent_bytes = self._socket.send(part, 0 if len(parts) == 1 else socket.MSG_MORE)
        if sent_bytes == len(part):
            parts.popleft()
        else:
            parts[0] = part[sent_bytes:]

    def close(self) -> None:
        self.loop.remove_reader(self._socket)
        if self._writes:
            self.loop.remove_writer(self._socket)
        self._socket.close()
