"""The connection of one client: reads requests from the socket into the queue, and sends the answers.

A connection uses the non-blocking socket with the loop's ``add_reader`` and ``add_writer``. An asyncio transport would
copy bytes. Here the socket receives into the frame reader's own buffer, and ``sendfile`` sends the files of an answer
from the page cache.

At most one request of a connection is being handled. This keeps the answers in order, and it is the back-pressure:
bytes that the client sends meanwhile stay in the kernel, until the client's own sends block. The connection removes its
reader from the loop only if the socket becomes readable during that time; most requests are answered before.

The answers of requests that arrived together are sent together. If the next request is in the buffer already, the
connection holds the answer back and sends it with the next answer, unless the next request has to wait. A send is the
most expensive step of a small request.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from logging import getLogger
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.network.request import Request
from headrace.protocol.frames import BadFrame, FrameReader
from headrace.protocol.wire.encoder import Message, Placed, Sendable
from headrace.protocol.wire.server_codec import BadRequest, EncodedReply, encode_response, read_request_header
from headrace.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from headrace.broker.metrics.counters import RequestMetrics
    from headrace.broker.network.request_queue import RequestQueue
    from headrace.protocol.api import Api

logger = getLogger(__name__)

#: Held answers are sent when they have this many bytes.
HOLD_BYTES = 32 * 1024
#: Files of up to this many bytes are read and sent with the bytes around them: one system call instead of three.
_READ_BYTES = 16 * 1024


class FilePart:
    """A file of an answer: which bytes are still to be sent."""

    __slots__ = ("left_bytes", "position", "source")

    def __init__(self, source: Sendable) -> None:
        self.source = source
        self.position = source.position
        self.left_bytes = len(source)


class Connection:
    __slots__ = (
        "_frames", "_held", "_is_answered", "_is_paused", "_is_writing", "_loop", "_metrics", "_on_close", "_out",
        "_queue", "_request", "_socket",
        "client_software", "host", "is_closed", "last_active_ns", "listener_name", "on_next_request_arrived", "peer",
        "principal",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        *,
        listener_name: str,
        loop: asyncio.AbstractEventLoop,
        queue: RequestQueue,
        metrics: RequestMetrics,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        #: The client's address as ``host:port``.
        self.peer = peer
        #: The client's IP address, as ACLs name it.
        self.host = peer.rpartition(":")[0].strip("[]")
        #: Who the client is. An authenticated connection replaces it.
        self.principal = ANONYMOUS
        self.listener_name = listener_name
        #: Name and version of the client library, from the client's ApiVersions request (KIP-511).
        self.client_software = ("unknown", "unknown")
        self.is_closed = False
        #: Called when the client sends its next request, or disconnects, while one of its requests still waits. The
        #: handler that waits may set it.
        self.on_next_request_arrived: Callable[[], None] | None = None
        self.last_active_ns = perf_counter_ns()
        self._socket = sock
        self._loop = loop
        self._queue = queue
        self._metrics = metrics
        self._on_close = on_close
        self._frames = FrameReader(max_request_bytes)
        self._request: Request | None = None
        #: Answers that will be sent together with the next answer.
        self._held: bytearray | None = None
        self._out: deque[memoryview | FilePart] = deque()
        self._is_answered = False
        self._is_writing = False
        self._is_paused = False
        loop.add_reader(sock, self._receive)

    def __repr__(self) -> str:
        return f"<connection of {self.peer}>"

    @property
    def local_address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    @property
    def current_api(self) -> Api | None:
        """The API of the request that is in progress."""
        return None if self._request is None else self._request.api

    @property
    def has_more(self) -> bool:
        """Whether the client's next request has arrived already."""
        return self._frames.has_frame()

    # -- in

    def _receive(self) -> None:
        if self._request is not None:
            self._pause()
            if self.on_next_request_arrived is not None:
                self.on_next_request_arrived()
            return
        try:
            size_bytes = self._socket.recv_into(self._frames.room())
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if size_bytes == 0:
            self.close()
            return
        self._frames.received(size_bytes)
        self._take_request()

    def _take_request(self) -> None:
        try:
            frame = self._frames.next_frame()
            if frame is None:
                self._frames.shrink()
                self.send_held()
                self._resume()
                return
            self._request = Request(read_request_header(frame), frame, self)
        except (BadFrame, BadRequest) as error:
            self.abort(str(error))
            return
        self.last_active_ns = self._request.received_at
        self._enqueue()

    def _enqueue(self) -> None:
        if self._request is not None and not self._queue.put(self._request, self._enqueue):
            self.send_held()
            self._pause()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._socket)

    def _resume(self) -> None:
        if self._is_paused and not self.is_closed:
            self._is_paused = False
            self._loop.add_reader(self._socket, self._receive)

    # -- out

    def answer(self, request: Request, reply: Message | EncodedReply | None) -> None:
        """Sends the answer, or nothing if it is None (Produce with acks=0), and takes the next request."""
        assert request is self._request or self.is_closed, "a connection handles one request at a time"
        if self.is_closed:
            return
        request.answered_at = perf_counter_ns()
        if reply is None:
            self._finish()
            return
        assert request.codec is not None, "a request of an unknown version has no answer"
        out, placed = encode_response(request.codec, request.correlation_id, reply)
        request.sending_at = perf_counter_ns()
        if placed and _size_of(placed) <= _READ_BYTES:
            try:
                out, placed = _joined(out, placed), []
            except OSError:
                self.close()
                return
        if placed:
            self.send_held()
            self._out.extend(_parts(out, placed))
        else:
            if self._held:
                self._held += out
                out = self._held
            if len(out) < HOLD_BYTES and self._frames.has_frame():
                self._held = out
                self._finish()
                return
            self._held = None
            self._out.append(memoryview(out))
        self._is_answered = True
        self._send()

    def send_held(self) -> None:
        """Sends the answers that were held back for the next answer."""
        if self._held:
            self._out.append(memoryview(self._held))
            self._held = None
            self._send()

    def _send(self) -> None:
        """Sends as much as the socket accepts. The loop calls this again when the socket accepts more."""
        out = self._out
        try:
            while out:
                self._send_part(out[0], is_last=len(out) == 1)
        except BlockingIOError:
            self.last_active_ns = perf_counter_ns()  # a client that reads slowly is not idle
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._socket, self._send)
            return
        except OSError:
            self.close()
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._socket)
        if self._is_answered:
            self._is_answered = False
            self._finish()

    def _send_part(self, part: memoryview | FilePart, *, is_last: bool) -> None:
        if isinstance(part, FilePart):
            sent_bytes = os.sendfile(self._socket.fileno(), part.source.fileno(), part.position, part.left_bytes)
            if sent_bytes == 0:
                raise OSError(f"{part.source} became shorter while it was sent")
            part.position += sent_bytes
            part.left_bytes -= sent_bytes
            if part.left_bytes == 0:
                self._out.popleft()
            return
        sent_bytes = self._socket.send(part, 0 if is_last else socket.MSG_MORE)
        if sent_bytes == len(part):
            self._out.popleft()
        else:
            self._out[0] = part[sent_bytes:]

    def _finish(self) -> None:
        request, self._request = self._request, None
        assert request is not None
        self._metrics.count(request)
        self._take_request()

    # -- end

    def abort(self, reason: str) -> None:
        """Closes the connection because of a request that cannot be answered, with one line in the log."""
        if not self.is_closed:
            logger.info("closing the connection of %s: %s", self.peer, reason)
            self.send_held()
            self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._out.clear()
        self._request = (
            None  # breaks a reference cycle, which would keep a large frame until the garbage collector runs
        )
        self._on_close(self)


def read_whole(source: Sendable) -> bytes:
    """Returns the bytes of a part of a file.

    :raises OSError: if the file has become shorter.
    """
    content = source.read()
    if len(content) < len(source):
        raise OSError(f"{source} became shorter while it was read")
    return content


def _size_of(placed: list[Placed]) -> int:
    if len(placed) == 1:
        return len(placed[0][1])
    return sum(len(sendable) for _, sendable in placed)


def _joined(out: bytearray, placed: list[Placed]) -> bytearray:
    """Returns the encoded bytes with the contents of the files inserted."""
    if len(placed) == 1:
        position, sendable = placed[0]
        out[position:position] = read_whole(sendable)
        return out
    joined, start = bytearray(), 0
    for position, sendable in placed:
        joined += memoryview(out)[start:position]
        start = position
        if len(sendable):
            joined += read_whole(sendable)
    joined += memoryview(out)[start:]
    return joined


def _parts(out: bytearray, placed: list[Placed]) -> list[memoryview | FilePart]:
    """Returns the encoded bytes, and the files at their places between them."""
    view, parts, start = memoryview(out), list[memoryview | FilePart](), 0
    for position, sendable in placed:
        if position > start:
            parts.append(view[start:position])
        if len(sendable):
            parts.append(FilePart(sendable))
        start = position
    if start < len(out):
        parts.append(view[start:])
    return parts
