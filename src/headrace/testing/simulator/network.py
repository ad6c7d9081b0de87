"""The network of a simulated cluster: byte streams between nodes, which may be slow, cut or reset.

As with TCP, the bytes of a connection arrive in order or not at all. So these things can happen to a message:

- it is late;
- it never arrives, and neither does any message behind it: the connection is reset, or the waiting side gives up;
- messages of different connections overtake each other.

A link can be cut in one direction or in both. Bytes are held until the network is healed; a connection whose bytes are
held longer than :data:`_BREAKS_AFTER_S` is reset.

Addresses are names: a broker listens at its own name, on port 9092.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, cast

from headrace.testing.simulator.loop import SimulatedLoop
from headrace.testing.simulator.node import Node, current_node

Address = tuple[str, int]
Accept = Callable[["SimulatedSocket"], None]

#: How long the bytes of a connection may be held before the connection is reset.
_BREAKS_AFTER_S = 20.0
_SHORTEST_S = 1e-6


class Network:
    def __init__(
        self, loop: SimulatedLoop, random: Random, *, fastest_s: float = 0.0001, slowest_s: float = 0.002
    ) -> None:
        self.loop = loop
        self._random = random
        self._fastest_s, self._slowest_s = fastest_s, slowest_s
        #: The share of messages that are late by up to a second, between 0 and 1.
        self.late_share = 0.0
        #: Called when a broker sends a consumer a Fetch response: the broker, the isolation level, the response.
        self.on_fetched: Callable[[str, int, dict[str, Any]], None] | None = None
        #: The links that are cut: (source, target).
        self._cut: set[tuple[str, str]] = set()
        self._listeners: dict[Address, tuple[Node, Context, Accept]] = {}
        self._pipes: list[_Pipe] = []
        loop.network = self

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Holds all bytes from one node to another."""
        self._cut.add((source, target))

    def isolate(self, name: str, others: list[str]) -> None:
        for other in others:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def heal(self) -> None:
        self._cut.clear()
        for pipe in self._pipes:
            pipe.flush()

    def passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut

    def reset_some(self, share: float) -> None:
        """Resets a random share of all connections."""
        for pipe in list(self._pipes):
            if self._random.random() < share:
                pipe.break_both()

    def delay_s(self) -> float:
        if self.late_share and self._random.random() < self.late_share:
            return self._random.uniform(self._slowest_s, 1.0)
        return self._random.uniform(self._fastest_s, self._slowest_s)

    # -- connections

    def listen(self, address: Address, accept: Accept) -> None:
        node = current_node()
        assert node is not None, "listen() needs the context of a node"
        if address in self._listeners:
            raise OSError(98, "Address already in use")
        self._listeners[address] = (node, copy_context(), accept)
        node.on_crash(lambda: self.unlisten(address))

    def unlisten(self, address: Address) -> None:
        self._listeners.pop(address, None)

    async def connect(self, protocol_factory: Callable[[], Any], host: str, port: int) -> tuple[Transport, Any]:
        client = current_node()
        client_name = "client" if client is None else client.name
        await asyncio.sleep(2 * self.delay_s())
        known = self._listeners.get((host, port))
        if known is None:
            raise ConnectionRefusedError(111, "Connection refused")
        node, context, accept = known
        while not (self.passes(client_name, node.name) and self.passes(node.name, client_name)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # TCP sends its SYN again; the caller has a timeout
        if node.is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        there, back = _Pipe(self, client_name, node.name), _Pipe(self, node.name, client_name)
        there.other, back.other = back, there
        self._pipes += [there, back]
        server = SimulatedSocket(self, back, (host, port), client_name)
        there.deliver_to(server.receive, context)
        protocol = protocol_factory()
        transport = Transport(there, protocol)
        back.deliver_to(transport.receive, copy_context())
        for one in (client, node):
            if one is not None:
                one.on_crash(there.break_both)
        self.loop.call_soon(accept, server, context=context)
        protocol.connection_made(transport)
        return transport, protocol

    def forget(self, pipe: _Pipe) -> None:
        if pipe in self._pipes:
            self._pipes.remove(pipe)


class _Pipe:
    """One direction of a connection. An empty message closes it."""

    other: _Pipe

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.network = network
        self._source, self._target = source, target
        self._held: deque[bytes] = deque()
        self._receive: Callable[[bytes | None], None] = lambda _: None
        self._context = copy_context()
        self._last_arrival_s = 0.0
        self._held_since_s: float | None = None
        self.is_broken = False

    def deliver_to(self, receive: Callable[[bytes | None], None], context: Context) -> None:
        """Passes each message to ``receive``; None says that the connection was reset."""
        self._receive, self._context = receive, context

    def send(self, data: bytes) -> None:
        if self.is_broken:
            return
        if self._held or not self.network.passes(self._source, self._target):
            if self._held_since_s is None:
                self._held_since_s = self.network.loop.time()
                self.network.loop.call_later(_BREAKS_AFTER_S, self._give_up, self._held_since_s, context=Context())
            self._held.append(data)
            return
        self._schedule_arrival(data)

    def _schedule_arrival(self, data: bytes) -> None:
        loop = self.network.loop
        # No two messages arrive at the same instant: the loop does not define their order then.
        self._last_arrival_s = max(self._last_arrival_s + _SHORTEST_S, loop.time() + self.network.delay_s())
        loop.call_at(self._last_arrival_s, self._arrive, data, context=self._context)

    def _arrive(self, data: bytes) -> None:
        if not self.is_broken:
            self._receive(data)

    def flush(self) -> None:
        """Sends the bytes that were held."""
        self._held_since_s = None
        held, self._held = self._held, deque()
        for data in held:
            self._schedule_arrival(data)

    def _give_up(self, since_s: float) -> None:
        if self._held_since_s == since_s:
            self.break_both()

    def break_both(self) -> None:
        """Resets the connection: both sides get an error."""
        for pipe in (self, self.other):
            if not pipe.is_broken:
                pipe.is_broken = True
                self.network.forget(pipe)
                loop = self.network.loop
                loop.call_later(self.network.delay_s(), pipe._receive, None, context=pipe._context)


class SimulatedSocket:
    """The server's end: the methods of a socket that the broker's ``Connection`` uses."""

    def __init__(self, network: Network, out: _Pipe, address: Address, peer: str) -> None:
        self._network = network
        self._out = out
        self._address = address
        self.peer = peer
        self._in: deque[bytes] = deque()
        self._is_reset = False
        self._is_closed = False
        self._watcher: tuple[Callable[..., object], tuple[object, ...]] | None = None

    def getsockname(self) -> Address:
        return self._address

    def receive(self, data: bytes | None) -> None:
        if data is None:
            self._is_reset = True
        else:
            self._in.append(data)
        self._fire()

    def watch(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self._watcher = (callback, args)
        if self._in or self._is_reset:
            self._network.loop.call_soon(self._fire)

    def unwatch(self) -> bool:
        had, self._watcher = self._watcher is not None, None
        return had

    def _fire(self) -> None:
        """Calls the reader as long as there are bytes, as a selector does."""
        if self._watcher is None or self._is_closed or not (self._in or self._is_reset):
            return
        callback, args = self._watcher
        callback(*args)
        if self._in and self._watcher is not None:
            self._network.loop.call_soon(self._fire)

    def recv_into(self, buffer: memoryview) -> int:
        if self._is_reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        if not self._in:
            raise BlockingIOError
        data = self._in.popleft()
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        if taken < len(data):
            self._in.appendleft(data[taken:])
        return taken

    def send(self, data: Any, _flags: int = 0) -> int:
        if self._is_reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        self._out.send(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._out.send(b"")


class Transport(asyncio.Transport):
    """The client's end of a connection, as asyncio sees it."""

    def __init__(self, out: _Pipe, protocol: Any) -> None:
        super().__init__()
        self._out = out
        self._protocol = protocol
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._out.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def receive(self, data: bytes | None) -> None:
        if self._is_closing:
            return
        if not data:
            self._end(ConnectionResetError(104, "Connection reset by peer") if data is None else None)
            return
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            cast(asyncio.Protocol, self._protocol).data_received(data)
            return
        rest = memoryview(data)
        while rest and not self._is_closing:
            room = memoryview(cast(Any, self._protocol.get_buffer(len(rest))))
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            self._protocol.buffer_updated(taken)
            rest = rest[taken:]

    def _end(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._out.send(b"")
            loop = self._out.network.loop
            if not loop.is_closed():
                loop.call_soon(self._protocol.connection_lost, error)
