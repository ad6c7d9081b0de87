"""One socket to one broker. Requests are sent one after another, and answers arrive in the same order.

Each request has a correlation id and a timeout. A broker answers the requests of a connection in order, so a request
without an answer delays all requests behind it. After a timeout the connection is closed, as Java's client does it. A
connection that ends, for whatever reason, fails all unanswered requests with :class:`BrokerUnreachable`.

An answer is decoded from a copy of its frame. A raw answer (:meth:`Connection.ask_raw`) is not decoded. If it is large,
it is not copied either: the caller gets the buffer that the answer was received into.

TLS is the event loop's transport. SASL is a login before the first request (``security/login.py``). A failure of either
is an :class:`AuthenticationFailed`. Before the login the broker may send short frames only.

After an answer with a throttle time, requests wait until that time is over (``throttle.py``). The requests that are
unanswered by then get that much more time. A request that times out while it waits is never sent, and the connection
stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from headrace.client.broker_versions import API_VERSIONS_VERSION, SOFTWARE, BrokerApis, Versions
from headrace.client.errors import (
    AuthenticationFailed,
    BadResponse,
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
)  # fmt: skip
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity, Credentials
from headrace.client.security.failures import connect_failure, protocol_question, tls_failure
from headrace.client.throttle import Parts, Throttle, must_wait
from headrace.client.unanswered import DeadlineTimer, UnansweredRequest
from headrace.protocol.api import Api
from headrace.protocol.frames import BadFrame, FrameReader
from headrace.protocol.wire.client_codec import encode_request

if TYPE_CHECKING:
    from headrace.client.metrics.connections import NodeMetrics
    from headrace.client.security.login import Login

logger = getLogger(__name__)

_CORRELATION_ID = Struct(">i")
_ERROR_CODE = Struct(">h")
_MAX_CORRELATION_ID = 2**31 - 1

#: Protects against nonsense. It does not limit real answers.
MAX_RESPONSE_BYTES = 2**31 - 1
#: The largest frame before the login, and before a broker without logins has told its versions.
MAX_LOGIN_FRAME_BYTES = 64 * 1024
#: A raw answer up to this size is copied, so that a small answer does not keep a whole buffer in memory.
_COPIED_BYTES = 4096
_LENGTH_BYTES = 4


class Connection(asyncio.BufferedProtocol):
    """A connection, made by :meth:`open`. The event loop calls the methods of ``asyncio.BufferedProtocol``."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None,
        timeout_ms: float,
        security: ConnectionSecurity,
        metrics: NodeMetrics | None = None,
    ) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(MAX_LOGIN_FRAME_BYTES)
        self._unanswered: dict[int, UnansweredRequest] = {}
        self._timer = DeadlineTimer(self._loop, self._unanswered, self._expired)
        self._throttle = Throttle(self._loop, self._unanswered, self._write_or_log_in)
        #: The sensors of the broker; None if nobody counts.
        self.metrics = metrics
        self._last_correlation_id = 0
        self._apis = BrokerApis(self.address)
        self._security = security
        #: None without SASL.
        self._login: Login | None = None
        self._answers = 0
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._close_reason: Exception | None = None

    def __repr__(self) -> str:
        return f"<connection to {self.address}, {'closed' if self.is_closed else f'{self.in_flight} in flight'}>"

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = None,
        timeout_ms: float = 30_000,
        connect_timeout_ms: float | None = None,
        learns_versions: bool = True,
        security: ConnectionSecurity = PLAINTEXT,
        metrics: NodeMetrics | None = None,
    ) -> Connection:
        """Connects, asks for the versions that the broker supports, and logs in.

        :param timeout_ms: the timeout of requests that have no timeout of their own, and of connecting if
            ``connect_timeout_ms`` is not given.
        :param learns_versions: False does not ask for versions, because the caller knows them.
        :raises BrokerUnreachable: if there is no broker, or if it does not answer in time.
        :raises AuthenticationFailed: if the TLS handshake or the login fails.
        """
        connect_timeout_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        connection = cls(host, port, client_id=client_id, timeout_ms=timeout_ms, security=security, metrics=metrics)
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await connection._set_up(connect_timeout_ms, learns_versions=learns_versions)
        except (TimeoutError, KafkaTimeout) as error:
            connection.abort(error)
            raise BrokerUnreachable(f"{host}:{port} did not answer within {connect_timeout_ms:.0f} ms") from error
        except BrokerUnreachable:
            raise
        except OSError as error:
            raise connection._failure(error, connect_failure(security, connection.address, error)) from error
        except BaseException as error:
            connection.abort(error)
            raise
        return connection

    async def _set_up(self, timeout_ms: float, *, learns_versions: bool) -> None:
        tls = self._security.transport_options(self.host)
        credentials = self._security.credentials
        await self._loop.create_connection(lambda: self, self.host, self.port, **tls)
        if learns_versions:
            await self._learn_versions(timeout_ms)
        if credentials is not None:
            await self._log_in(credentials)
        self._frames.max_frame_bytes = MAX_RESPONSE_BYTES

    async def _log_in(self, credentials: Credentials) -> None:
        from headrace.client.security.login import Login

        login = Login(self, credentials)
        await login.begin()
        self._login = login

    def _failure(self, cause: BaseException | None, message: str) -> HeadraceError:
        """Returns the exception for the end of the connection."""
        if isinstance(cause, AuthenticationFailed):
            return cause
        failure = None if self._answers else tls_failure(self._security, self.address, cause)
        return BrokerUnreachable(message) if failure is None else failure

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_closed(self) -> bool:
        return self._close_reason is not None

    @property
    def in_flight(self) -> int:
        """The number of unanswered requests."""
        return len(self._unanswered)

    @property
    def is_throttled(self) -> bool:
        """Whether requests wait, because the broker has asked for a pause."""
        return self._throttle.is_on

    @property
    def throttle_left_ms(self) -> float:
        """The time until requests are sent again."""
        return self._throttle.left_ms() if self._throttle.is_on else 0.0

    # -- versions

    @property
    def versions(self) -> Versions:
        """The lowest and highest version that the broker supports, by API key."""
        return self._apis.versions

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized features of the cluster: name and level (KIP-584)."""
        return self._apis.features

    def supports(self, api: Api, version: int) -> bool:
        """Whether both sides support a version of an API."""
        return self._apis.supports(api, version)

    def version_of(self, api: Api, most: int | None = None) -> int:
        """Returns the highest version that both sides support, but at most ``most``.

        :raises UnsupportedByBroker: if there is no such version.
        """
        return self._apis.version_of(api, most)

    async def _learn_versions(self, timeout_ms: float) -> None:
        version = API_VERSIONS_VERSION
        frame = await self.send(Api.API_VERSIONS, version, SOFTWARE, timeout_ms=timeout_ms, is_raw=True)
        if _ERROR_CODE.unpack_from(frame, _CORRELATION_ID.size)[0] == ErrorCode.unsupported_version.value:
            version = 0
            frame = await self.send(Api.API_VERSIONS, version, {}, timeout_ms=timeout_ms, is_raw=True)
        self._apis = self._apis.read(version, bytes(frame))

    # -- requests

    async def ask(self, api: Api, *, version: int | None = None, timeout_ms: float | None = None, **fields: Any) -> Any:
        """Sends a request and waits for its answer, which is a dataclass of kio.

        :raises KafkaTimeout: if the answer does not arrive in time. Then the connection is closed.
        :raises BrokerUnreachable: if the connection ends first.
        """
        version = self.version_of(api) if version is None else version
        return await self.send(api, version, fields, timeout_ms=timeout_ms)

    async def ask_raw(
        self, api: Api, *, version: int | None = None, timeout_ms: float | None = None, **fields: Any
    ) -> memoryview:
        """Does the same as :meth:`ask`, but returns the frame, which begins with the correlation id."""
        version = self.version_of(api) if version is None else version
        return cast(memoryview, await self.send(api, version, fields, timeout_ms=timeout_ms, is_raw=True))

    def send(
        self,
        api: Api,
        version: int,
        fields: Mapping[str, Any] | bytearray,
        *,
        timeout_ms: float | None = None,
        is_raw: bool = False,
        expects_answer: bool = True,
        is_login: bool = False,
    ) -> asyncio.Future[Any]:
        """Sends a request at once, or after the throttling, or after the login is renewed. The future gets the answer.

        :param expects_answer: False for a Produce with acks=0. Then the future is done at once, with None.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or self._close_reason is not None:
            future.set_exception(BrokerUnreachable(f"the connection to {self.address} is closed"))
            return future
        self._last_correlation_id = correlation_id = self._last_correlation_id % _MAX_CORRELATION_ID + 1
        parts = encode_request(api, version, correlation_id, self.client_id, fields)
        if expects_answer:
            if timeout_ms is None:
                timeout_ms = self._timeout_ms + self.throttle_left_ms
            deadline = self._loop.time() + timeout_ms / 1000
            self._unanswered[correlation_id] = UnansweredRequest(api, version, is_raw, future, timeout_ms, deadline)
            if deadline < self._timer.due:
                self._timer.set(deadline)
        else:
            future.set_result(None)
        if is_login:
            self.write(parts)
        elif self._throttle.is_on:
            self._throttle.hold(correlation_id, parts)
        else:
            self._write_or_log_in(parts)
        return future

    def _write_or_log_in(self, parts: Parts) -> None:
        if self._login is None or not self._login.holds_back(parts):
            self.write(parts)

    def write(self, parts: Parts) -> None:
        """Writes an encoded request."""
        assert self._transport is not None
        if self.metrics is not None:
            self.metrics.request_sent(sum(map(len, parts)))
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    # -- time

    def _expired(self, correlation_id: int, request: UnansweredRequest) -> None:
        del self._unanswered[correlation_id]
        reason = " because it throttles this client" if self._throttle.is_on else ""
        message = f"{self.address} did not answer {request.api.label} within {request.timeout_ms:.0f} ms{reason}"
        error = KafkaTimeout(message)
        if not request.answer.done():
            request.answer.set_exception(error)
        if self._throttle.drop(correlation_id):
            self._timer.check()  # The request was not sent, so no answer is missing.
        else:
            self.abort(error)

    # -- closing

    async def close(self) -> None:
        """Closes the socket and waits until it is closed. Unanswered requests fail."""
        has_unanswered = bool(self._unanswered)
        self._end(None)
        if self._transport is not None:
            if self._security.tls is not None and has_unanswered and not self._transport.get_write_buffer_size():
                # A broker that holds a request does not read the end of a TLS session, and TLS waits for its answer.
                self._transport.abort()
            self._transport.close()
            await asyncio.shield(self._closed)

    def abort(self, error: BaseException) -> None:
        """Closes the socket at once. Unanswered requests fail."""
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, cause: BaseException | None, *, is_by_broker: bool = False) -> None:
        """Fails all unanswered requests. Only the first reason counts."""
        if self._close_reason is not None:
            return
        detail = f": {cause}" if cause is not None and str(cause) else ""
        if is_by_broker and self._answers <= 1:
            # A listener with another security protocol answers nothing, or nothing but the first request.
            detail += f"; {protocol_question(self._security)}"
        self._close_reason = BrokerUnreachable(f"the connection to {self.address} was closed{detail}")
        self._timer.cancel()
        self._throttle.cancel()
        if self._login is not None:
            self._login.end()
        waiting = list(self._unanswered.values())
        self._unanswered.clear()
        for request in waiting:
            if not request.answer.done():
                error = self._failure(
                    cause, f"the connection to {self.address} ended before {request.api.label} was answered{detail}"
                )
                if error is not cause:
                    error.__cause__ = cause
                request.answer.set_exception(error)

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.metrics is not None:
            self.metrics.client.connection_opened()
        if self._close_reason is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc, is_by_broker=True)
        if self.metrics is not None:
            self.metrics.client.connection_closed()
        if not self._closed.done():
            self._closed.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the frame reader decides
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.received(nbytes)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._handle_answer(frame)
        except (BadFrame, BadResponse) as error:
            logger.error("%s: %s", self.address, error)
            self.abort(error)

    def _handle_answer(self, frame: memoryview) -> None:
        if len(frame) < _CORRELATION_ID.size:
            raise BadResponse(f"the answer has only {len(frame)} bytes")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        waiting = self._unanswered.pop(correlation_id, None)
        self._answers += 1
        if waiting is None:
            raise BadResponse(f"the answer has the correlation id {correlation_id}, but no request with this id waits")
        try:
            answer, throttle_ms = waiting.read(frame)
        except BadResponse as error:
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
            raise
        if self.metrics is not None:
            self.metrics.response_received(_LENGTH_BYTES + len(frame), throttle_ms)
        if throttle_ms > 0 and must_wait(waiting.api, waiting.version):
            logger.debug("%s throttles this client for %d ms", self.address, throttle_ms)
            self._timer.postpone(throttle_ms / 1000)  # The broker does not read the requests that are on their way.
            self._throttle.begin(throttle_ms)
        if not waiting.answer.done():  # Otherwise the caller was cancelled.
            waiting.answer.set_result(self._keep(frame) if waiting.is_raw else answer)

    def _keep(self, frame: memoryview) -> memoryview:
        """Returns a frame that does not change when more data is received."""
        if len(frame) <= _COPIED_BYTES:
            return memoryview(bytes(frame))
        self._frames.give_away()
        return frame
