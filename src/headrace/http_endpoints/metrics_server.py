"""Serves one WSGI application over HTTP, with bounds for clients that are slow, many or hostile.

Each connection has a thread and carries one request (HTTP/1.0), so a slow client delays only itself. The TLS handshake
and the head of the request have 10 seconds, the head has 16 KiB: a client that sends byte by byte does not keep its
thread for longer. An answer has 30 seconds. At most 32 connections are open: one more ends the oldest connection whose
request is not complete, and is refused if there is none. Credentials are checked before the application runs.

Two owners run a server: a broker calls :meth:`MetricsServer.accept` from its event loop, the runner of views has a
thread for :meth:`MetricsServer.serve_forever`.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from io import BytesIO
from logging import getLogger
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from headrace.http_endpoints.protection import Protection
from headrace.peer_log import PeerLog, one_line
from headrace.runtime.clock import SystemClock

if TYPE_CHECKING:
    from ssl import SSLContext
    from wsgiref.types import WSGIApplication

logger = getLogger(__name__)

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 32
HEAD_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_END_OF_HEAD = b"\r\n\r\n"


class HeadTooLarge(Exception):
    """The head of a request has too many bytes."""


class MetricsServer(socketserver.ThreadingMixIn, WSGIServer):
    """The constructor binds the address. Clients can connect after :meth:`activate`."""

    #: The owner calls :meth:`accept` only when a client has connected, so accepting never waits.
    timeout = 0
    daemon_threads = True
    #: How many connections wait to be accepted.
    request_queue_size = 128
    #: Threads end with their connections, so closing the server does not wait for them.
    block_on_close = False

    def __init__(self, host: str, port: int, protection: Protection, *, hints: str = "") -> None:
        """
        :param host: empty for all addresses.
        :raises ConfigError: if the address needs more protection, or the certificate cannot be used.
        :raises OSError: if the address is in use, or is not an address of this machine.
        """
        family, _, _, _, address = socket.getaddrinfo(
            host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        protection.check_address(str(address[0]), hints)
        self.protection = protection
        self.head_seconds = HEAD_SECONDS
        self.peer_log = PeerLog(logger, SystemClock().monotonic_ms)
        self._tls: SSLContext | None = protection.tls_context()
        self._receiving: dict[int, socket.socket] = {}
        self._answering = 0
        self._lock = threading.Lock()
        self.address_family = family
        super().__init__(address[:2], _Handler, bind_and_activate=False)  # type: ignore[arg-type]
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    @property
    def endpoint(self) -> tuple[str, int]:
        return str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        host, port = self.endpoint
        return f"{self.protection.scheme}://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def activate(self, application: WSGIApplication) -> None:
        """Lets clients connect."""
        self.set_app(application)
        self.server_activate()

    def accept(self) -> None:
        """Accepts one connection, and starts its thread."""
        self.handle_request()

    def server_bind(self) -> None:
        # HTTPServer.server_bind would ask DNS for the name of the address, which is slow and not needed.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.endpoint
        self.setup_environ()

    # -- bounds

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._receiving) + self._answering >= MAX_CONNECTIONS and not self._end_oldest():
                reason = f"{MAX_CONNECTIONS} scrapes are running"
                self.peer_log.write("refused a connection", str(client_address[0]), reason)
                return False
            self._receiving[id(request)] = request
        return True

    def _end_oldest(self) -> bool:
        """Ends the oldest connection that has not sent its request. The thread of that connection then fails."""
        if not self._receiving:
            return False
        oldest = self._receiving.pop(next(iter(self._receiving)))
        with suppress(OSError):  # the connection may have ended in this moment
            oldest.shutdown(socket.SHUT_RDWR)
        return True

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Runs on the thread of the connection."""
        deadline = time.monotonic() + self.head_seconds
        secured = self._handshake(request)
        try:
            head = _read_head(secured, deadline)
            if head is not None and self._is_answered(request):
                try:
                    secured.settimeout(_ANSWER_SECONDS)
                    _Handler(head, secured, client_address, self)
                finally:
                    with self._lock:
                        self._answering -= 1
        finally:
            if secured is not request:
                _close_tls(secured)

    def shutdown_request(self, request: Any) -> None:
        """The base class calls this at the end of every connection."""
        with self._lock:
            self._receiving.pop(id(request), None)
        super().shutdown_request(request)

    def _is_answered(self, request: socket.socket) -> bool:
        """Counts a complete request; False if another connection has taken its place."""
        with self._lock:
            is_open = self._receiving.pop(id(request), None) is not None
            self._answering += is_open
        return is_open

    def _handshake(self, request: socket.socket) -> socket.socket:
        request.settimeout(self.head_seconds)
        if self._tls is None:
            return request
        # wrap_socket takes the descriptor away from its argument, and _end_oldest needs the descriptor of the request.
        copy = request.dup()
        try:
            return self._tls.wrap_socket(copy, server_side=True)
        except BaseException:
            copy.close()
            raise

    def handle_error(self, request: object, client_address: Any) -> None:  # noqa: ARG002  as in the base class
        error = sys.exc_info()[1]
        if isinstance(error, OSError | HeadTooLarge):
            self.peer_log.write("failed scrape", str(client_address[0]), error)
        else:
            logger.error("a scrape of %s failed", client_address[0], exc_info=error)


class _Handler(WSGIRequestHandler):
    """Answers one request whose head was read before."""

    def __init__(self, head: bytes, request: socket.socket, client_address: Any, server: MetricsServer) -> None:
        self._head = head
        super().__init__(request, client_address, server)

    def setup(self) -> None:
        super().setup()
        self.rfile = BytesIO(self._head)

    def parse_request(self) -> bool:
        if not super().parse_request():
            return False
        assert isinstance(self.server, MetricsServer)
        access = self.server.protection.access
        if access.allows(self.headers.get("Authorization")):
            return True
        self.server.peer_log.write("rejected scrape", self.address_string(), "wrong or missing credentials")
        self._answer_unauthorized(access.challenges())
        return False

    def _answer_unauthorized(self, challenges: tuple[str, ...]) -> None:
        body = b"unauthorized\n"
        self.send_response(HTTPStatus.UNAUTHORIZED)
        for challenge in challenges:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        environ.pop("HTTP_AUTHORIZATION", None)
        return environ

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
        logger.debug("%s", one_line(format % args))


def _read_head(connection: socket.socket, deadline: float) -> bytes | None:
    """Reads the head of a request. The body, if there is one, is not read.

    :return: None if the client closed the connection before the end of the head.
    :raises TimeoutError: if the head is not complete at the deadline.
    """
    head = bytearray()
    while (end := head.find(_END_OF_HEAD)) < 0:
        if len(head) >= MAX_HEAD_BYTES:
            raise HeadTooLarge(f"the head of the request has more than {MAX_HEAD_BYTES} bytes")
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the request did not arrive in time")
        connection.settimeout(remaining)
        received = connection.recv(4096)
        if not received:
            return None
        head += received
    return bytes(head[: end + len(_END_OF_HEAD)])


def _close_tls(connection: socket.socket) -> None:
    """Tells the client that the answer is complete, and does not wait for the client to say the same."""
    connection.settimeout(0)
    with suppress(OSError, ValueError):
        connection.unwrap()  # type: ignore[attr-defined]
    connection.close()
