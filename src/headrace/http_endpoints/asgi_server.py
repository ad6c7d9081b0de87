"""Serves an ASGI application by uvicorn: at an address that is protected enough, with bounds, until a signal.

The answers to queries and the schema registry use it. The address is bound when the server is made, so that a wrong or
taken address is noticed at once.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLContext

import uvicorn

from headrace.http_endpoints.asgi_protection import (
    HINTS,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    UNAUTHORIZED,
    Application,
    BoundedProtocol,
    with_abort,
    with_access,
)
from headrace.http_endpoints.protection import Protection
from headrace.properties import ConfigError


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the server normally. uvicorn would raise the signal again afterwards, which looks like a
        failure.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class AsgiServer:
    """Listens from its construction on. ``run`` or ``serve`` answers requests until a signal, or until ``stop``."""

    def __init__(
        self,
        application: Application,
        host: str,
        port: int,
        protection: Protection,
        *,
        unauthorized: bytes = UNAUTHORIZED,
    ) -> None:
        """
        :param unauthorized: the body of the answer to a request without the right credentials.
        :raises ConfigError: if the address is in use, is not an address of this host, or needs more protection.
        """
        self._listener, tls = _listen(host, port, protection)
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(
            with_abort(with_access(application, protection.access, unauthorized)),
            http=BoundedProtocol,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            limit_concurrency=MAX_CONNECTIONS,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)

    def run(self) -> None:
        """Serves on an event loop of its own."""
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self.close()

    async def serve(self) -> None:
        """Serves on the running event loop."""
        try:
            await self._server.serve(sockets=[self._listener])
        finally:
            self.close()

    def stop(self) -> None:
        self._server.should_exit = True

    @property
    def is_stopping(self) -> bool:
        """Whether a signal or ``stop`` has asked the server to end."""
        return self._server.should_exit

    def close(self) -> None:
        """Stops listening. ``run`` and ``serve`` do it at their end."""
        self._listener.close()


def _listen(host: str, port: int, protection: Protection) -> tuple[socket.socket, SSLContext | None]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        protection.check_address(str(address[0]), HINTS)
        tls = protection.tls_context()
        return socket.create_server(address[:2], family=family, backlog=512), tls
    except ConfigError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot listen on {host}:{port}: {reason}; choose another address") from None
