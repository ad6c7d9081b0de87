"""One client's connection to a served tree, as a protocol without I/O: frames in, frames out.

The first frame connects: it opens a session or resumes an open session. Every later frame is a request of this
session. Requests are answered at once and in order. Events of watches are sent before the answer to the change that
fired them, and other clients get events in the order of the changes. So no client sees a change before its event.

Bytes that cannot be decoded raise :class:`Malformed`. The owner then closes this connection, and the session continues
until its timeout. A change that the tree rejects is answered with ZooKeeper's error code. If a write to disk fails, the
client gets SYSTEMERROR and nothing has changed.

A connection has a :class:`Caller`: the identities of its client, which end with the connection. Access control lists
are checked for them. A failed login closes the connection. A server that requires a login answers nothing else before
the login, and ends the session of a connection that never logged in.

Not supported: containers, znodes with a time to live, reconfiguration, SASL. A SASL message gets an empty answer and
has no effect, as on a ZooKeeper without SASL.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import getLogger

from headrace.coordination.interface import CoordinationError, EventType, Result, Stat, WatchEvent
from headrace.coordination.server import jute
from headrace.coordination.server.jute import Malformed, Reader
from headrace.coordination.server.messages import (
    CHANGES,
    NO_STAT,
    PING_XID,
    Change,
    Code,
    ConnectRequest,
    Op,
    code_of,
    decode_change,
    decode_connect,
    decode_multi,
    encode_connected,
    encode_event,
    encode_failed_multi,
    encode_multi,
    encode_reply,
    encode_stat,
)
from headrace.coordination.server.request_handlers import HANDLERS
from headrace.coordination.server.service import TreeService
from headrace.coordination.server.sessions import PASSWORD_BYTES, Session
from headrace.coordination.tree.caller import Caller

logger = getLogger(__name__)

#: A connection without a session, or without the login that the server requires, is closed after this time.
CONNECT_WITHIN_MS = 10_000
#: The zxid of an event that is sent late: the event does not say which change it was.
_NO_ZXID = -1
#: The requests that a server which requires a login answers before it.
_BEFORE_LOGIN = frozenset({Op.PING, Op.AUTH, Op.SASL, Op.CLOSE_SESSION})


class ClientConnection:
    """Decodes the frames of one client, and encodes the answers and events for it."""

    def __init__(
        self,
        service: TreeService,
        peer: str,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        *,
        certificate_subject: str | None = None,
    ) -> None:
        """
        :param peer: HOST:PORT of the client.
        :param certificate_subject: the subject of the certificate that the client sent over TLS. It is an identity.
        :param send: sends a frame; frames are sent in order.
        :param close: closes the connection after all frames were sent.
        """
        self.service = service
        self.peer = peer
        #: The peer without its port.
        self.address = peer.rpartition(":")[0]
        self.caller = Caller(self.address)
        self.session: Session | None = None
        self.is_open = True
        self._must_log_in = service.logins.requires_super
        self._certificate_subject = certificate_subject
        if certificate_subject is not None:
            service.logins.log_in(self.caller, "x509", None, certificate_subject)
        self.received_count = 0
        self.sent_count = 0
        self._send_bytes = send
        self._close = close
        service.add(self)
        self._connect_timeout = service.timer.schedule(CONNECT_WITHIN_MS, self.disconnect)

    # Called by the owner of the socket

    def receive(self, frame: bytes) -> None:
        """:raises Malformed: if the frame is not a request; the owner must close the connection."""
        assert self.is_open
        self.received_count += 1
        self.service.counts.received += 1
        if self.session is None:
            self._connect(decode_connect(frame))
            return
        self.service.sessions.touch(self.session)
        reader = Reader(frame)
        self._answer(self.session, reader.int32(), reader.int32(), reader)

    def connection_lost(self) -> None:
        """Called when the socket is closed. The session stays open until its timeout."""
        if not self.is_open:
            return
        self.is_open = False
        self._connect_timeout.cancel()
        self.service.remove(self)
        if self.session is None:
            return
        if self._must_log_in:
            self.service.sessions.expire(self.session.id)
        else:
            self.service.sessions.detach(self.session)

    def log(self, what: str, reason: object) -> None:
        """Logs what the client has done wrong, unless the log has that line already."""
        self.service.peer_log.write(what, self.address, reason, peer=self.peer)

    def disconnect(self) -> None:
        """Closes the connection. The session stays open until its timeout."""
        if self.is_open:
            self.connection_lost()
            self._close()

    # Connecting

    def _connect(self, request: ConnectRequest) -> None:
        sessions, last_zxid = self.service.sessions, self.service.host.tree.last_zxid
        if not self._must_log_in:
            self._connect_timeout.cancel()
        if request.last_zxid_seen > last_zxid:
            raise Malformed(
                f"the client has seen transaction {request.last_zxid_seen:#x}, but this tree ends at {last_zxid:#x}"
            )
        session: Session | None
        if request.session_id == 0:
            session = sessions.open(request.timeout_ms, self.disconnect)
        else:
            session = sessions.attach(request.session_id, request.password, request.timeout_ms, self.disconnect)
        if session is None:
            expired = encode_connected(0, 0, bytes(PASSWORD_BYTES), with_read_only=request.knows_read_only)
            self._send(expired)
            self.disconnect()
            return
        self.session = session
        self.service.host.attach(session.id, self.caller)
        password = sessions.password(session.id)
        self._send(encode_connected(session.timeout_ms, session.id, password, with_read_only=request.knows_read_only))

    # Requests

    def _answer(self, session: Session, xid: int, number: int, reader: Reader) -> None:
        started_ms = self.service.clock.monotonic_ms()
        if number == Op.CLOSE_SESSION:
            self._close_session(session, xid)
            return
        if self._must_log_in and number not in _BEFORE_LOGIN:
            self.log("closing the connection", "it must log in before its first request")
            code, body = Code.AUTH_FAILED, b""
        else:
            code, body = self._do(session, number, reader)
        xid = PING_XID if number == Op.PING else xid
        self._send(encode_reply(xid, self.service.host.tree.last_zxid, code, body))
        self._count(self.service.clock.monotonic_ms() - started_ms)
        if code is Code.AUTH_FAILED:
            self.disconnect()

    def _do(self, session: Session, number: int, reader: Reader) -> tuple[Code, bytes]:
        try:
            if number in CHANGES:
                return Code.OK, self._change(session, [decode_change(Op(number), reader)])[0]
            if number == Op.MULTI:
                return Code.OK, self._multi(session, decode_multi(reader))
            if number == Op.AUTH:
                return self._log_in(reader), b""
            if (handle := HANDLERS.get(number)) is not None:
                return Code.OK, handle(self, session.id, reader)
        except CoordinationError as error:
            return code_of(error), b""
        except OSError as error:
            logger.error("cannot write a change of the znode tree to disk: %s", error)
            return Code.SYSTEM_ERROR, b""
        return Code.UNIMPLEMENTED, b""

    def _log_in(self, reader: Reader) -> Code:
        _, scheme, credential = reader.int32(), reader.string() or "", reader.buffer()
        refusal = self.service.logins.log_in(self.caller, scheme, credential, self._certificate_subject)
        if refusal is not None:
            self.log("failed login", refusal)
        if self.caller.is_super:
            self._must_log_in = False
            self.service.without_login.pop(self, None)
            self._connect_timeout.cancel()
        return Code.OK if refusal is None else Code.AUTH_FAILED

    def _close_session(self, session: Session, xid: int) -> None:
        self.service.sessions.close(session)
        self._send(encode_reply(xid, self.service.host.tree.last_zxid, Code.OK))
        self.disconnect()

    def _change(self, session: Session, changes: list[Change]) -> list[bytes]:
        """Performs all changes or none of them; returns the result of each change."""
        operations = []
        for index, (_, operation) in enumerate(changes):
            if isinstance(operation, CoordinationError):
                operation.operation_index = index
                raise operation
            operations.append(operation)
        results = self.service.host.submit(session.id, operations, self.caller)
        return [self._result(change.op, result) for change, result in zip(changes, results, strict=True)]

    def _result(self, op: Op, result: Result) -> bytes:
        if isinstance(result, Stat):
            return encode_stat(result)
        if isinstance(result, str):
            return jute.string(result) + (self._stat(result) if op is Op.CREATE2 else b"")
        return b""

    def _multi(self, session: Session, changes: list[Change]) -> bytes:
        ops = [change.op for change in changes]
        try:
            return encode_multi(list(zip(ops, self._change(session, changes), strict=True)))
        except CoordinationError as error:
            return encode_failed_multi(ops, error.operation_index, code_of(error))

    def _stat(self, path: str) -> bytes:
        stat = self.service.host.tree.exists(path)
        return NO_STAT if stat is None else encode_stat(stat)

    # Events

    def notify(self, event: WatchEvent) -> None:
        self._send(encode_event(event, self.service.host.tree.last_zxid))

    def notify_late(self, event_type: EventType, path: str) -> None:
        """Sends the event of a change that the client missed while it was disconnected."""
        self._send(encode_event(WatchEvent(event_type, path), _NO_ZXID))

    # Sending

    def _send(self, frame: bytes) -> None:
        if not self.is_open:
            return  # sending the frames before has closed the connection
        self.sent_count += 1
        self.service.counts.sent += 1
        self._send_bytes(frame)

    def _count(self, latency_ms: int) -> None:
        counts = self.service.counts
        counts.answered += 1
        counts.latency_sum_ms += latency_ms
        counts.latency_max_ms = max(counts.latency_max_ms, latency_ms)
