"""One socket to one broker. Requests are sent one after another, and answers arrive in the same order.

Each request has a correlation id and a timeout. A broker answers the requests of a connection in order, so a request
without an answer delays all requests behind it. After a timeout the connection is closed, as Java's client does it. A
connection that ends, for whatever reason, fails all unanswered requests with :class:`BrokerUnreachable`.

An answer is decoded from a copy of its frame. A raw answer (:meth:`Connection.ask_raw`) is not decoded. If it is large,
it is not copied either: the caller gets the buffer that the answer was received into.

TLS is the event loop's transport. SASL is a login before the first request (``security/login.py``). A failure of either
is an :class:`AuthenticationFailed`. Before the login the broker may send short frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace.client.errors import (
    AuthenticationFailed,
    BadResponse,
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnsupportedByBroker,
)
from headrace.client.security.connection_security import PLAINTEXT, ConnectionSecurity, Credentials
from headrace.client.security.failures import connect_failure, protocol_question, tls_failure
from headrace.protocol.api import Api, versions_of
from headrace.protocol.frames import BadFrame, FrameReader
from headrace.protocol.wire.client_codec import decode_response, encode_request

if TYPE_CHECKING:
    from headrace.client.security.login import Login, Parts

logger = getLogger(__name__)

_CORRELATION_ID = Struct(">i")
_ERROR_CODE = Struct(">h")
_MAX_CORRELATION_ID = 2**31 - 1

#: Brokers since Kafka 2.4 support it. An older broker answers in version 0 with an error (KIP-511).
_API_VERSIONS_VERSION = 3
#: Protects against nonsense. It does not limit real answers.
MAX_RESPONSE_BYTES = 2**31 - 1
#: The largest frame before the login.
MAX_LOGIN_FRAME_BYTES = 64 * 1024
#: A raw answer up to this size is copied, so that a small answer does not keep a whole buffer in memory.
_COPIED_BYTES = 4096
_NEVER = inf
#: The timers of an event loop have a resolution of one millisecond.
_TIMER_ERROR_S = 0.001


class _UnansweredRequest(NamedTuple):
    """A request that waits for its answer."""

    api: Api
    version: int
    is_raw: bool
    answer: asyncio.Future[Any]
    timeout_ms: float
    #: In the loop's time.
    deadline: float


class Connection(asyncio.BufferedProtocol):
    """A connection, made by :meth:`open`. The event loop calls the methods of ``asyncio.BufferedProtocol``."""

    def __init__(
        self, host: str, port: int, *, client_id: str | None, timeout_ms: float, security: ConnectionSecurity
    ) -> None:
        self.host, self.port = host, port
        self.client_id = client_id
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader(MAX_RESPONSE_BYTES)
        self._unanswered: dict[int, _UnansweredRequest] = {}
        #: One timer for all requests. It fires at the first deadline; if that request is answered by then, it is set
        #: again.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = _NEVER
        self._last_correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        #: The finalized features of the cluster: name and level (KIP-584).
        self.features: dict[str, int] = {}
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
    ) -> Connection:
        """Connects, asks for the versions that the broker supports, and logs in.

        :param timeout_ms: the timeout of requests that have no timeout of their own, and of connecting if
            ``connect_timeout_ms`` is not given.
        :param learns_versions: False does not ask for versions, because the caller knows them.
        :raises BrokerUnreachable: if there is no broker, or if it does not answer in time.
        :raises AuthenticationFailed: if the TLS handshake or the login fails.
        """
        connect_timeout_ms = timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        connection = cls(host, port, client_id=client_id, timeout_ms=timeout_ms, security=security)
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
        if credentials is not None:
            self._frames.max_frame_bytes = MAX_LOGIN_FRAME_BYTES
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

    # -- versions

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version that the broker supports, by API key."""
        return self._versions

    def supports(self, api: Api, version: int) -> bool:
        """Whether both sides support a version of an API."""
        lowest, highest = self._versions.get(api, (0, -1))
        return lowest <= version <= highest and version in versions_of(api)

    def version_of(self, api: Api, most: int | None = None) -> int:
        """Returns the highest version that both sides support, but at most ``most``.

        :raises UnsupportedByBroker: if there is no such version.
        """
        ours = versions_of(api)
        lowest, highest = self._versions.get(api, (0, -1))
        version = min(highest, ours[-1]) if most is None else min(highest, ours[-1], most)
        if version < max(lowest, ours[0]):
            theirs = f"supports v{lowest} to v{highest}" if highest >= 0 else "does not support it"
            wanted = f"v{ours[0]} to v{ours[-1] if most is None else most}"
            raise UnsupportedByBroker(message=f"{api.label} is needed in {wanted}, but {self.address} {theirs}")
        return version

    async def _learn_versions(self, timeout_ms: float) -> None:
        fields = {"client_software_name": "headrace", "client_software_version": "0.1.0"}
        version = _API_VERSIONS_VERSION
        frame = await self.send(Api.API_VERSIONS, version, fields, timeout_ms=timeout_ms, is_raw=True)
        if _ERROR_CODE.unpack_from(frame, _CORRELATION_ID.size)[0] == ErrorCode.unsupported_version.value:
            version = 0
            frame = await self.send(Api.API_VERSIONS, version, {}, timeout_ms=timeout_ms, is_raw=True)
        answer = decode_response(Api.API_VERSIONS, version, bytes(frame))
        self._versions = {int(key.api_key): (int(key.min_version), int(key.max_version)) for key in answer.api_keys}
        features = getattr(answer, "finalized_features", ())
        self.features = {feature.name: int(feature.max_version_level) for feature in features}

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
        """Sends a request at once, or after the login is renewed. The future gets the answer.

        :param expects_answer: False for a Produce with acks=0. Then the future is done at once, with None.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or self._close_reason is not None:
            future.set_exception(BrokerUnreachable(f"the connection to {self.address} is closed"))
            return future
        self._last_correlation_id = correlation_id = self._last_correlation_id % _MAX_CORRELATION_ID + 1
        parts = encode_request(api, version, correlation_id, self.client_id, fields)
        if expects_answer:
            timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
            deadline = self._loop.time() + timeout_ms / 1000
            self._unanswered[correlation_id] = _UnansweredRequest(api, version, is_raw, future, timeout_ms, deadline)
            if deadline < self._timer_due:
                self._set_timer(deadline)
        else:
            future.set_result(None)
        if self._login is None or is_login or not self._login.holds_back(parts):
            self.write(parts)
        return future

    def write(self, parts: Parts) -> None:
        """Writes an encoded request."""
        assert self._transport is not None
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    # -- time

    def _set_timer(self, due: float) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_at(due, self._check_deadlines)
        self._timer_due = due

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_due = None, _NEVER

    def _check_deadlines(self) -> None:
        self._cancel_timer()
        if not self._unanswered:
            return
        correlation_id, first = min(self._unanswered.items(), key=lambda item: item[1].deadline)
        if first.deadline > self._loop.time() + _TIMER_ERROR_S:
            self._set_timer(first.deadline)
            return
        del self._unanswered[correlation_id]
        error = KafkaTimeout(f"{self.address} did not answer {first.api.label} within {first.timeout_ms:.0f} ms")
        if not first.answer.done():
            first.answer.set_exception(error)
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
        self._cancel_timer()
        if self._login is not None:
            self._login.end()
        waiting, self._unanswered = self._unanswered, {}
        for request in waiting.values():
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
        if self._close_reason is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc, is_by_broker=True)
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
        if waiting.answer.done():
            return  # The caller was cancelled.
        if waiting.is_raw:
            waiting.answer.set_result(self._keep(frame))
            return
        try:
            waiting.answer.set_result(decode_response(waiting.api, waiting.version, bytes(frame)))
        except BadResponse as error:
            waiting.answer.set_exception(error)
            raise

    def _keep(self, frame: memoryview) -> memoryview:
        """Returns a frame that does not change when more data is received."""
        if len(frame) <= _COPIED_BYTES:
            return memoryview(bytes(frame))
        self._frames.give_away()
        return frame
