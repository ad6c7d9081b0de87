"""Clients of a served tree without sockets, on a clock that tests move. The bytes are kazoo's, not our idea of them.

Java's client sends more than kazoo knows; for that there is ``Client.ask_raw``.
"""

from __future__ import annotations

import struct

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import Auth, Close, Connect, Ping, ReplyHeader, Watch

from headrace.coordination.server.client_connection import ClientConnection
from headrace.coordination.server.service import TreeService
from headrace.coordination.tree.host import TreeHost
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock

EVENTS = {1: "created", 2: "deleted", 3: "changed", 4: "child"}


class ConnectionHarness:
    def __init__(self, store=None, clock=None, logins=None) -> None:
        self.clock = clock or ManualClock()
        self.timer = Timer(self.clock)
        self.host = TreeHost(self.clock, store=store)
        self.service = TreeService.of(
            self.host, self.clock, self.timer, secret=b"secret", tick_time_ms=1_000, logins=logins
        )

    def connection(self) -> Client:
        return Client(self)

    def client(self, timeout_ms=10_000, *, logins: tuple[str, ...] = ()) -> Client:
        client = Client(self)
        client.connect(timeout_ms)
        for login in logins:
            client.log_in("digest", login)
        return client

    def passes(self, time_ms: int) -> None:
        """Time goes by, and what is due happens when it is due."""
        end_ms = self.clock.monotonic_ms() + time_ms
        while (due_ms := self.timer.next_due_ms()) is not None and due_ms <= end_ms:
            self.clock.advance(max(0, due_ms - self.clock.monotonic_ms()))
            self.timer.advance()
        self.clock.advance(end_ms - self.clock.monotonic_ms())


class Client:
    def __init__(self, harness: ConnectionHarness) -> None:
        self.harness = harness
        self.is_closed = False
        self.events: list[tuple[str, str]] = []
        #: Replies and events in the order in which they came.
        self.order: list[object] = []
        self._frames: list[bytes] = []
        self._xid = 0
        self.session_id, self.password, self.timeout_ms, self.last_zxid = 0, bytes(16), 0, 0
        self.connection = ClientConnection(harness.service, "127.0.0.1:5000", self._receive, self._closed)

    def _receive(self, frame: bytes) -> None:
        assert not self.is_closed
        (length,) = struct.unpack_from(">i", frame)
        assert length == len(frame) - 4
        self._frames.append(frame[4:])

    def _closed(self) -> None:
        self.is_closed = True

    def connect(self, timeout_ms=10_000, *, last_zxid=0, session_id=0, password=bytes(16)) -> None:
        self.connection.receive(bytes(Connect(0, last_zxid, timeout_ms, session_id, password, False).serialize()))
        answer, _ = Connect.deserialize(self._frames.pop(0), 0)
        self.timeout_ms, self.session_id, self.password = answer.time_out, answer.session_id, answer.passwd

    def comes_back(self, timeout_ms=10_000, **changes) -> Client:
        """The same client on a new connection."""
        again = Client(self.harness)
        again.connect(timeout_ms, **{"session_id": self.session_id, "password": self.password} | changes)
        return again

    def ask(self, request):
        """Returns the answer of the server; raises kazoo's exception if the server refuses."""
        body = self.ask_raw(request.type, bytes(request.serialize()))
        return request.deserialize(body, 0) if hasattr(request, "deserialize") else body

    def ask_raw(self, number: int, body: bytes) -> bytes:
        self._xid += 1
        xid = -2 if number == Ping.type else self._xid
        self.connection.receive(struct.pack(">ii", xid, number) + body)
        self.take_events()
        header, offset = ReplyHeader.deserialize(self._frames.pop(0), 0)
        assert header.xid == xid
        assert not self._frames
        assert header.zxid >= self.last_zxid
        self.last_zxid = header.zxid
        if header.err:
            raise EXCEPTIONS[header.err]
        return self._reply[offset:]

    def log_in(self, scheme: str, credential: str) -> None:
        self.ask(Auth(0, scheme, credential))

    def ping(self) -> None:
        self.ask_raw(Ping.type, b"")

    def close(self) -> None:
        self.ask_raw(Close.type, b"")

    def take_events(self) -> list[tuple[str, str]]:
        """Returns the events until the next reply, and adds them to ``events``."""
        taken = []
        while self._frames:
            header, offset = ReplyHeader.deserialize(self._frames[0], 0)
            if header.xid != -1:
                self._reply = self._frames[0]
                break
            watch, _ = Watch.deserialize(self._frames.pop(0), offset)
            assert watch.state == 3
            taken.append((EVENTS[watch.type], watch.path))
        self.events += taken
        return taken
