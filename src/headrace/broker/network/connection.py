"""The connection of one client: takes requests out of the received bytes, and sends the answers in order.

A channel moves the bytes (``channel.py``): a socket on the loop, or TLS on a network thread.

At most one request of a connection is being handled. This keeps the answers in order, and it is the back-pressure:
bytes that the client sends meanwhile stay in the kernel, until the client's own sends block.

The answers of requests that arrived together are sent together. If the next request is in the buffer already, the
connection holds the answer back and sends it with the next answer, unless the next request has to wait. A send is the
most expensive step of a small request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.network.answer_memory import LARGE_ANSWER_BYTES
from headrace.broker.network.answer_parts import READ_BYTES, Parts, joined, parts_of, size_of
from headrace.broker.network.channel import CLOSED, Channel
from headrace.broker.network.request import Request
from headrace.protocol.api import Api
from headrace.protocol.frames import BadFrame, FrameReader, encode_frame
from headrace.protocol.wire.encoder import Message
from headrace.protocol.wire.server_codec import BadRequest, EncodedReply, encode_response, read_request_header
from headrace.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from headrace.broker.authentication.login import Login
    from headrace.broker.metrics.counters import RequestMetrics
    from headrace.broker.network.answer_memory import AnswerMemory
    from headrace.broker.network.request_queue import RequestQueue
    from headrace.broker.quotas.throttling import ClientLimits, Throttling
    from headrace.peer_log import PeerLog
    from headrace.protocol.spare_buffers import SpareBuffers
    from headrace.runtime.timer import TimerTask

#: Held answers are sent when they have this many bytes.
HOLD_BYTES = 32 * 1024
#: A connection that is muted for so long gives its buffer back.
_LONG_MUTE_MS = 100


class Connection:
    __slots__ = (
        "__weakref__", "_channel", "_held", "_is_answered", "_metrics", "_on_close", "_out", "_peer_log", "_queue",
        "_request", "_throttling", "_unmuting", "answer_memory", "client_software", "frames", "host",
        "is_authenticated", "is_closed", "last_active_ns", "limits", "listener_name", "login",
        "on_next_request_arrived", "peer", "principal",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        peer: str,
        *,
        listener_name: str,
        queue: RequestQueue,
        metrics: RequestMetrics,
        throttling: Throttling,
        max_request_bytes: int,
        on_close: Callable[[Connection], None],
        peer_log: PeerLog,
        spare_buffers: SpareBuffers | None = None,
        login: Login | None = None,
    ) -> None:
        #: The client's address as ``host:port``.
        self.peer = peer
        #: The client's IP address, as ACLs name it.
        self.host = peer.rpartition(":")[0].strip("[]")
        #: Who the client is. :meth:`authenticated` sets it.
        self.principal = ANONYMOUS
        #: Whether the TLS handshake and the login are complete, where the listener has them.
        self.is_authenticated = login is None and channel.is_established
        self.listener_name = listener_name
        #: How far the client's login is. None on listeners without SASL.
        self.login = login
        #: Name and version of the client library, from the client's ApiVersions request (KIP-511).
        self.client_software = ("unknown", "unknown")
        self.is_closed = False
        #: Called when the client sends its next request, or disconnects, while one of its requests still waits. The
        #: handler that waits may set it.
        self.on_next_request_arrived: Callable[[], None] | None = None
        self.last_active_ns = perf_counter_ns()
        #: The received bytes. The channel writes to it, unless a request is in progress.
        self.frames = FrameReader(max_request_bytes if login is None else login.max_login_bytes, spare_buffers)
        #: What counts the bytes of the answer, if it is large (``answer_memory.py``).
        self.answer_memory: AnswerMemory | None = None
        #: What the quotas allow the client; None until a quota is looked up.
        self.limits: ClientLimits | None = None
        self._throttling = throttling
        #: Ends the time for which the connection is muted.
        self._unmuting: TimerTask | None = None
        self._channel: Channel = channel
        self._queue = queue
        self._metrics = metrics
        self._on_close = on_close
        self._peer_log = peer_log
        self._request: Request | None = None
        #: Answers that will be sent together with the next answer.
        self._held: bytearray | None = None
        self._out: Parts = deque()
        self._is_answered = False

    def start(self) -> None:
        """Receives requests from now on."""
        self._channel.start(self)

    def __repr__(self) -> str:
        return f"<connection of {self.peer}>"

    @property
    def local_address(self) -> tuple[str, int]:
        return self._channel.local_address

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress. A request that was throttled is in progress while the connection is
        muted."""
        return self._request is not None

    @property
    def muted_by(self) -> str | None:
        """The kind of quota because of which the connection is muted; None if it is not muted."""
        request = self._request
        if self._unmuting is None or request is None or request.throttled_by is None:
            return None
        return request.throttled_by.kind

    @property
    def current_api(self) -> Api | None:
        """The API of the request that is in progress."""
        return None if self._request is None else self._request.api

    @property
    def has_more(self) -> bool:
        """Whether the client's next request has arrived already."""
        return self.frames.has_frame() or self._channel.has_unread

    # -- in

    def established(self, principal: Principal) -> None:
        """The channel is open. The client is this principal, unless it has to log in."""
        if self.login is None:
            self.authenticated(principal)

    def authenticated(self, principal: Principal) -> None:
        self.principal = principal
        self.limits = None
        self.is_authenticated = True

    def next_request_arrived(self) -> None:
        """The channel has noticed bytes while a request is in progress."""
        if self.on_next_request_arrived is not None:
            self.on_next_request_arrived()

    def take_request(self) -> None:
        """Puts the next request into the queue, if a whole request was received."""
        try:
            frame = self.frames.next_frame()
            if frame is None:
                if self.limits is not None:
                    self.limits.received_part()
                self.frames.shrink()
                self.send_held()
                if not self.is_closed:
                    self._channel.resume()
                return
            if self.login is None:
                self._request = Request(read_request_header(frame), frame, self)
            else:
                self._request = self.login.request_of(frame, self)
        except (BadFrame, BadRequest) as error:
            self.abort(str(error))
            return
        self.last_active_ns = self._request.received_at
        self._enqueue()

    def _enqueue(self) -> None:
        if self._request is not None and not self._queue.put(self._request, self._enqueue):
            self.send_held()
            if not self.is_closed:
                self._channel.pause()

    # -- out

    def answer(self, request: Request, reply: Message | EncodedReply | None) -> None:
        """Sends the answer, or nothing if it is None (Produce with acks=0), and takes the next request."""
        assert request is self._request or self.is_closed, "a connection handles one request at a time"
        request.answered_at = perf_counter_ns()
        if self._throttling.quotas.any_client:
            self._throttling.charge(request, reply)
        if self.is_closed:
            return
        if request.throttle_ms and reply is not None:
            assert isinstance(reply, dict), "followers are not throttled"
            reply = {**reply, "throttle_time": request.throttle_ms}
        if reply is None:
            self._finish()
            return
        if request.codec is not None:
            out, placed = encode_response(request.codec, request.correlation_id, reply)
        else:
            assert isinstance(reply, dict), "a request of an unknown version has no answer"
            out, placed = encode_frame(reply["auth_bytes"]), []
        request.sending_at = perf_counter_ns()
        if len(out) > LARGE_ANSWER_BYTES and request.api is not Api.FETCH:
            try:
                request.slices.answer_memory.send(self, len(out))
            except BadRequest as error:
                self.abort(f"{request.api.label}: {error}")
                return
        if placed and size_of(placed) <= READ_BYTES:
            try:
                out, placed = joined(out, placed), []
            except OSError:
                self.close()
                return
        if placed:
            self.send_held()
            self._out.extend(parts_of(out, placed))
        else:
            if self._held:
                self._held += out
                out = self._held
            if len(out) < HOLD_BYTES and not request.throttle_ms and self.frames.has_frame():
                self._held = out
                self._finish()
                return
            self._held = None
            self._out.append(memoryview(out))
        self._is_answered = True
        is_sent = self._channel.send(self._out)
        if is_sent:
            if self.limits is not None:
                request.sent_at = perf_counter_ns()
                self.limits.network_ns += request.sent_at - request.sending_at
            self.sent()

    def send_held(self) -> None:
        """Sends the answers that were held back for the next answer."""
        if self._held:
            self._out.append(memoryview(self._held))
            self._held = None
            if self._channel.send(self._out):
                self.sent()

    def sent(self) -> None:
        """The channel has sent everything."""
        if self._is_answered:
            self._is_answered = False
            self._finish()

    def _finish(self) -> None:
        request = self._request
        assert request is not None
        if self.answer_memory is not None:
            self.answer_memory.release(self)
        self._metrics.count(request)
        request.body = None  # its records are views of the buffer, which another connection may use after this request
        if self.login is not None and self.login.has_failed:
            self.send_held()
            self.close()
            return
        if request.throttle_ms:
            self._mute(request)
            return
        self._request = None
        self.take_request()

    # -- throttled

    def _mute(self, request: Request) -> None:
        """Receives nothing for the throttle time (KIP-219). The request stays in progress until then."""
        self.send_held()
        if self.is_closed:
            return
        if request.throttle_ms >= _LONG_MUTE_MS:
            self.frames.release()
        self._unmuting = self._throttling.mute(request, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = self._request = None
        self.last_active_ns = perf_counter_ns()
        self.take_request()

    # -- end

    def abort(self, reason: str) -> None:
        """Closes the connection because of a request that cannot be answered, with one line in the log."""
        if not self.is_closed:
            self.log("closing the connection", reason)
            self.send_held()
            self.close()

    def log(self, what: str, reason: object) -> None:
        """Logs what the client has done wrong, unless the log has that line already."""
        self._peer_log.write(what, self.host, reason, peer=self.peer)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        channel, self._channel = self._channel, CLOSED
        channel.close()
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        self._held = None  # nothing is sent any more: another thread may be closing the channel
        self._out.clear()
        if self.answer_memory is not None:
            self.answer_memory.release(self)
        self._request = (
            None  # breaks a reference cycle, which would keep a large frame until the garbage collector runs
        )
        self._on_close(self)
