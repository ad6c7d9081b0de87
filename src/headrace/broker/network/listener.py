"""Accepts connections on a listening socket, within the limits of ``connections.py``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.listeners import ListenerAddress
from headrace.broker.metrics.counters import RequestMetrics
from headrace.broker.network.channel import Channel
from headrace.broker.network.connection import Connection
from headrace.broker.network.connections import Connections
from headrace.broker.network.plain_channel import PlainChannel
from headrace.broker.network.request_queue import RequestQueue
from headrace.runtime.timer import Timer, TimerTask
from headrace.security.ip_addresses import address_of

if TYPE_CHECKING:
    from headrace.broker.authentication.login import Login
    from headrace.broker.network.listener_tls import ListenerTls, NewStores
    from headrace.broker.network.network_threads import NetworkThreads
    from headrace.broker.quotas.throttling import Throttling
    from headrace.broker.store_reload import StoreReload
    from headrace.broker.thread_pool import RunBlocking

logger = getLogger(__name__)

_ACCEPTS_PER_TURN = 32
_RETRY_ACCEPT_MS = 100
#: How many refused connections are open until their throttle time is over. Further ones are closed at once.
_MAX_REFUSED = 1000


class ListenerContext(NamedTuple):
    """The objects that all listeners of a broker share."""

    loop: asyncio.AbstractEventLoop
    config: BrokerConfig
    connections: Connections
    queue: RequestQueue
    metrics: RequestMetrics
    throttling: Throttling
    timer: Timer
    run_blocking: RunBlocking
    #: Makes the login of a new connection of a listener with SASL.
    new_login: Callable[[str], Login]


class Listener:
    """A listening socket of the broker."""

    #: A simulation has its own class.
    connection_class = Connection

    def __init__(self, address: ListenerAddress, context: ListenerContext) -> None:
        self.name = address.name
        #: The address of the settings. Its port may be 0.
        self.address = address
        self._loop = context.loop
        self._config = context.config
        self._connections = context.connections
        self._queue = context.queue
        self._metrics = context.metrics
        self._throttling = context.throttling
        self._timer = context.timer
        self._run_blocking = context.run_blocking
        self._new_login = context.new_login if address.protocol.has_sasl else None
        self._socket: socket.socket | None = None
        #: Connections that wait for their throttle time: one to be served, others to be closed.
        self._throttled: dict[socket.socket, TimerTask] = {}
        self._protocol = address.protocol
        self._tls: ListenerTls | None = None
        self._store_reload: StoreReload[NewStores] | None = None
        self._network_threads: NetworkThreads | None = None

    def load_tls(self) -> None:
        """Reads the key and trust stores of a listener with TLS.

        :raises ConfigError: if the settings or the stores cannot be used.
        """
        if not self._protocol.has_tls:
            return
        # A broker without TLS does not load ssl, and starts faster.
        from headrace.broker.network.kernel_tls import find_kernel_tls, log_kernel_tls
        from headrace.broker.network.listener_tls import ListenerTls
        from headrace.broker.network.network_threads import NetworkThreads
        from headrace.broker.store_reload import StoreReload

        config = self._config
        self._tls = tls = ListenerTls.load(self.name, self._protocol, config)
        self._network_threads = NetworkThreads(
            self.name, self._loop, self._queue.take_turn, config.of_listener(self.name).int("num.network.threads")
        )
        log_kernel_tls(self.name, find_kernel_tls())
        config.on_any_change(self._settings_changed)
        config.add_check(self._check_stores)
        self._store_reload = StoreReload(
            config, self._run_blocking, f"listener {self.name}", read=tls.read_again, use=tls.use
        )

    def ignore_settings(self) -> None:
        """Does not follow the settings any more."""
        self._config.remove_callbacks(self._settings_changed, self._check_stores)
        if self._store_reload is not None:
            self._store_reload.stop()

    def _check_stores(self, future: BrokerConfig) -> None:
        """
        :raises ConfigError: if other stores of this listener cannot be used.
        """
        assert self._tls is not None
        if self.name in {address.name for address in future.listeners.bound}:
            self._tls.new_stores(future)

    def _settings_changed(self, names: frozenset[str]) -> None:
        if self._network_threads is not None and any(name.endswith("num.network.threads") for name in names):
            self._network_threads.resize(self._config.of_listener(self.name).int("num.network.threads"))

    def bind(self) -> tuple[str, int]:
        """Binds the socket without accepting connections yet. Returns the bound address, with the real port for port 0.

        :raises OSError: if the address is in use, or is not an address of this machine.
        """
        self._socket = sock = bound_socket(self.address)
        self._set_options(sock)
        host, port = sock.getsockname()[:2]
        return host, port

    def move(self, address: ListenerAddress) -> tuple[str, int]:
        """Accepts connections at another address from now on. Open connections stay open.

        :raises OSError: if the address is in use; the listener then stays where it is.
        """
        earlier, sock = self._socket, bound_socket(address)
        self.address, self._socket = address, sock
        if earlier is not None:
            self._loop.remove_reader(earlier)
            earlier.close()
        self._set_options(sock)
        self.accept_connections()
        host, port = sock.getsockname()[:2]
        return host, port

    def _set_options(self, sock: socket.socket) -> None:
        """Sets the options of the listening socket. The sockets of connections inherit them."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, key in (
            (socket.SO_SNDBUF, "socket.send.buffer.bytes"),
            (socket.SO_RCVBUF, "socket.receive.buffer.bytes"),
        ):
            size_bytes = self._config.int(key)
            if size_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)

    def listen(self) -> None:
        """Lets clients connect. They wait in the kernel's backlog until :meth:`accept_connections`."""
        assert self._socket is not None, "bind first"
        self._socket.listen(self._config.int("socket.listen.backlog.size"))

    def accept_connections(self) -> None:
        self.listen()
        self._watch()

    def close(self) -> None:
        """Accepts no more connections. Open connections stay open."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for sock, task in self._throttled.items():
            task.cancel()
            sock.close()
        self._throttled.clear()

    def stop_threads(self) -> None:
        """Ends the network threads. All connections have been closed."""
        if self._network_threads is not None:
            self._network_threads.stop()

    def _watch(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_PER_TURN):
            if not self._connections.has_room(self.name):
                self._loop.remove_reader(self._socket)
                self._connections.when_there_is_room(self._watch)
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                logger.error(
                    "cannot accept connections on listener %s: %s; trying again in %d ms",
                    self.name,
                    error,
                    _RETRY_ACCEPT_MS,
                )
                self._loop.remove_reader(self._socket)
                self._timer.schedule(_RETRY_ACCEPT_MS, self._watch)
                return
            ip, port = address_of(address[0]), address[1]  # ::ffff:127.0.0.1 is 127.0.0.1, as in Java
            throttle_ms = self._connections.count_accepted(self.name)
            if throttle_ms:
                self._pause(throttle_ms, sock, ip, port)
                return
            self._set_up(sock, ip, port)

    def _pause(self, throttle_ms: int, sock: socket.socket, ip: str, port: int) -> None:
        """Serves the connection and accepts others after the throttle time (``max.connection.creation.rate``)."""

        def go_on() -> None:
            del self._throttled[sock]
            self._set_up(sock, ip, port)
            self._watch()

        assert self._socket is not None
        self._loop.remove_reader(self._socket)
        self._throttled[sock] = self._timer.schedule(throttle_ms, go_on)

    def _refuse(self, throttle_ms: int, sock: socket.socket) -> None:
        """Closes the connection after the throttle time, because its client would connect again at once."""

        def close() -> None:
            del self._throttled[sock]
            sock.close()

        if len(self._throttled) > _MAX_REFUSED:
            sock.close()
        else:
            self._throttled[sock] = self._timer.schedule(throttle_ms, close)

    def _set_up(self, sock: socket.socket, ip: str, port: int) -> None:
        throttle_ms = self._connections.count_accepted_from(ip, self.name)
        if throttle_ms:
            self._refuse(throttle_ms, sock)
            return
        if not self._connections.may_connect(ip):
            reason = "it has max.connections.per.ip connections already"
            self._connections.peer_log.write("refusing a connection", ip, reason)
            sock.close()
            return
        sock.setblocking(False)
        self._serve(sock, f"{ip}:{port}")

    def make_channel(self, sock: socket.socket) -> Channel:
        if self._tls is None:
            return PlainChannel(sock, self._loop)
        assert self._network_threads is not None
        return self._tls.channel(sock, self._network_threads.next())

    def _serve(self, sock: socket.socket, peer: str) -> None:
        connection = self.connection_class(
            self.make_channel(sock),
            peer,
            listener_name=self.name,
            queue=self._queue,
            metrics=self._metrics,
            throttling=self._throttling,
            max_request_bytes=self._config.int("socket.request.max.bytes"),
            on_close=self._connections.remove,
            peer_log=self._connections.peer_log,
            spare_buffers=self._connections.spare_buffers,
            login=None if self._new_login is None else self._new_login(self.name),
        )
        self._connections.add(connection)
        connection.start()


def bound_socket(address: ListenerAddress) -> socket.socket:
    """
    :raises OSError: if the address is in use, or is not an address of this machine.
    """
    host = address.host or "0.0.0.0"
    family, kind, protocol, _, resolved = socket.getaddrinfo(
        host.encode() if host.isascii() else host,  # a str loads the codec "idna", which takes 2 ms
        address.port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(resolved)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
