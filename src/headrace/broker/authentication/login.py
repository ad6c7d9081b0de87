"""The login of one connection: which requests are read before it, its steps, and when it expires.

===========  ====================================  ===========================================
state        requests that are read                next state
===========  ====================================  ===========================================
START        ApiVersions, SaslHandshake            VERSIONS, TOKENS or RAW_TOKENS
VERSIONS     SaslHandshake                         TOKENS or RAW_TOKENS
TOKENS       SaslAuthenticate                      LOGGED_IN when the mechanism is complete
             SaslHandshake                         FAILED
RAW_TOKENS   a frame is a token of the mechanism   LOGGED_IN when the mechanism is complete
LOGGED_IN    all                                   TOKENS or RAW_TOKENS by SaslHandshake
FAILED       none: the connection is closed
===========  ====================================  ===========================================

Any other request closes the connection. Its key is all that is read of it, so a client that has not logged in cannot
make the broker parse a large or complicated body. Until the login, a frame has at most
``sasl.server.max.receive.size`` bytes (CVE-2022-34917).

After SaslHandshake v0 the tokens are bare frames, without a request header (clients before Kafka 1.0). From v1 on they
are in SaslAuthenticate requests.

If the login counts for a limited time (``connections.max.reauth.ms``, or the credentials expire), then the client has
to log in again on the same connection, by another SaslHandshake (KIP-368). It has to be the same user with the same
mechanism. After the time, any other request closes the connection.

A login that fails is answered after ``connection.failed.authentication.delay.ms``; then the connection is closed. The
connection reads nothing meanwhile, because the request is still in progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING

from headrace.broker.network.request import RawTokenRequest, Request
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.server_codec import BadRequest, read_request_header
from headrace.security.principal import USER, Principal
from headrace.security.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from headrace.broker.metrics.counters import LoginCounts
    from headrace.broker.network.connection import Connection
    from headrace.broker.thread_pool import RunBlocking
    from headrace.runtime.clock import Clock
    from headrace.security.sasl.mechanism import ServerMechanism

_API_KEY = Struct(">h")
#: How many tagged fields the header of a request before the login may have.
_MAX_LOGIN_TAGS = 32
#: A client may begin to log in again at most so often, as in Kafka.
_MIN_REAUTHENTICATION_INTERVAL_MS = 1000


class LoginState(Enum):
    START = auto()
    VERSIONS = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    LOGGED_IN = auto()
    FAILED = auto()


#: What is read in each state but RAW_TOKENS and LOGGED_IN.
READ: dict[LoginState, frozenset[Api]] = {
    LoginState.START: frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE}),
    LoginState.VERSIONS: frozenset({Api.SASL_HANDSHAKE}),
    LoginState.TOKENS: frozenset({Api.SASL_AUTHENTICATE, Api.SASL_HANDSHAKE}),
    LoginState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class LoginRules:
    """Holds the parts that all logins of a listener share."""

    clock: Clock
    run_blocking: RunBlocking
    #: The names of the mechanisms that clients may use.
    mechanisms: Callable[[], Sequence[str]]
    #: Makes the server's side of a mechanism.
    start_mechanism: Callable[[str], ServerMechanism]
    #: After how many milliseconds clients of a mechanism have to log in again; 0: never.
    max_reauth_ms: Callable[[str], int]
    counts: LoginCounts
    #: Waits before a failed login is answered.
    delay_failure: Callable[[], Awaitable[None]]
    #: The maximum size of a frame before and after the login.
    max_login_bytes: Callable[[], int]
    max_request_bytes: Callable[[], int]


class Login:
    __slots__ = (
        "_expires_at_ms", "_mechanism", "_previous", "_reauthenticated_at_ms", "_rules", "_state", "_wrong_mechanism",
        "is_token_authenticated", "session_lifetime_ms",
    )  # fmt: skip

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._state = LoginState.START
        self._mechanism: ServerMechanism | None = None
        #: Mechanism and user of the login that is being repeated.
        self._previous: tuple[str, Principal] | None = None
        self._wrong_mechanism: str | None = None
        self._expires_at_ms: int | None = None
        self._reauthenticated_at_ms: int | None = None
        #: How long the last login counts; 0: without limit.
        self.session_lifetime_ms = 0
        #: Whether the user logged in with a delegation token.
        self.is_token_authenticated = False

    # -- what the connection asks

    @property
    def has_failed(self) -> bool:
        return self._state is LoginState.FAILED

    @property
    def expects_token(self) -> bool:
        return self._state is LoginState.TOKENS or self._state is LoginState.RAW_TOKENS

    @property
    def mechanisms(self) -> Sequence[str]:
        return self._rules.mechanisms()

    @property
    def max_login_bytes(self) -> int:
        return min(self._rules.max_login_bytes(), self._rules.max_request_bytes())

    def request_of(self, frame: memoryview, connection: Connection) -> Request:
        """Reads the header of the next request, if the request may be read now.

        :raises BadRequest: if the request closes the connection.
        """
        if self._state is LoginState.LOGGED_IN:
            if self._expires_at_ms is not None:
                self._check_session(frame)
            return Request(read_request_header(frame), frame, connection)
        if self._state is LoginState.RAW_TOKENS:
            return RawTokenRequest(frame, connection)
        key = _key_of(frame)
        if key not in READ[self._state]:
            raise BadRequest(f"a request with the key {key} cannot be read before the client has logged in")
        header = read_request_header(frame, _MAX_LOGIN_TAGS)
        if header.api is Api.API_VERSIONS and header.codec is not None:
            self._state = LoginState.VERSIONS
        return Request(header, frame, connection, is_login=True)

    def _check_session(self, frame: memoryview) -> None:
        assert self._expires_at_ms is not None
        if self._rules.clock.monotonic_ms() >= self._expires_at_ms and _key_of(frame) != Api.SASL_HANDSHAKE:
            raise BadRequest("its session has expired, and the client did not log in again (connections.max.reauth.ms)")

    # -- what the handlers ask

    def handshake(self, connection: Connection, mechanism: str, version: int) -> ErrorCode:
        """The client has chosen a mechanism. Returns the error code of the answer."""
        if self._state is LoginState.TOKENS:
            self._fail()
            connection.log("failed authentication", "a second SaslHandshake in place of a token")
            return ErrorCode.illegal_sasl_state
        if self._state is LoginState.LOGGED_IN:
            if not self._may_log_in_again():
                return ErrorCode.illegal_sasl_state
            assert self._mechanism is not None
            self._previous = (self._mechanism.name, connection.principal)
        if mechanism not in self.mechanisms:
            self._fail()
            connection.log("failed authentication", f"the mechanism {mechanism} is not enabled")
            return ErrorCode.unsupported_sasl_mechanism
        if self._previous is not None and self._previous[0] != mechanism:
            self._wrong_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._previous[0]}'"
            )
        self._mechanism = self._rules.start_mechanism(mechanism)
        self._state = LoginState.TOKENS if version >= 1 else LoginState.RAW_TOKENS
        return ErrorCode.none

    def _may_log_in_again(self) -> bool:
        now_ms, last_ms = self._rules.clock.monotonic_ms(), self._reauthenticated_at_ms
        if self._expires_at_ms is None or (
            last_ms is not None and now_ms - last_ms < _MIN_REAUTHENTICATION_INTERVAL_MS
        ):
            return False
        self._reauthenticated_at_ms = now_ms
        return True

    async def authenticate(self, connection: Connection, token: bytes) -> bytes:
        """Gives the mechanism the client's token, and returns the answer. Completes the login at its end.

        :raises AuthenticationFailed: if the login has failed. ``for_peer`` is what the client is told.
        """
        mechanism, rules = self._mechanism, self._rules
        assert self.expects_token
        assert mechanism is not None
        try:
            if self._wrong_mechanism is not None:
                raise AuthenticationFailed(self._wrong_mechanism, for_peer=self._wrong_mechanism)
            step = mechanism.step
            answer = await rules.run_blocking(step, token) if mechanism.may_block else step(token)
            if mechanism.is_complete:
                self._complete(connection, mechanism)
        except AuthenticationFailed as error:
            self._fail()
            connection.log(f"failed authentication by {mechanism.name}", error)
            raise AuthenticationFailed(str(error), for_peer=error.for_peer or self._general(mechanism)) from None
        return answer

    def _fail(self) -> None:
        self._state = LoginState.FAILED
        self._rules.counts.count(has_succeeded=False, is_repeated=self._previous is not None)

    async def delay_failure(self) -> None:
        await self._rules.delay_failure()

    def _general(self, mechanism: ServerMechanism) -> str:
        """Returns the message for a client that must not learn the reason."""
        what = "authentication" if self._previous is None else "re-authentication"
        return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism.name}"

    def _complete(self, connection: Connection, mechanism: ServerMechanism) -> None:
        principal = Principal(USER, mechanism.authorization_id)
        if self._previous is not None and self._previous[1] != principal:
            before = self._previous[1]
            text = (
                f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                f"{principal.type}.{principal.name}"
            )
            raise AuthenticationFailed(text, for_peer=text)
        self._rules.counts.count(has_succeeded=True, is_repeated=self._previous is not None)
        self._previous = None
        self.session_lifetime_ms = self._limit_session(mechanism)
        self.is_token_authenticated = mechanism.is_token_authenticated
        self._state = LoginState.LOGGED_IN
        connection.authenticated(principal)
        connection.frames.max_frame_bytes = self._rules.max_request_bytes()

    def _limit_session(self, mechanism: ServerMechanism) -> int:
        """Returns for how many milliseconds the login counts, 0 for no limit, and remembers when it ends."""
        clock, limits = self._rules.clock, list[int]()
        max_reauth_ms = self._rules.max_reauth_ms(mechanism.name)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if mechanism.expires_at_ms is not None:
            limits.append(max(0, mechanism.expires_at_ms - clock.wall_ms()))
        self._expires_at_ms = clock.monotonic_ms() + min(limits) if limits else None
        return min(limits, default=0)


def _key_of(frame: memoryview) -> int:
    """
    :raises BadRequest: if the frame is too short for a key.
    """
    if len(frame) < _API_KEY.size:
        raise BadRequest("a frame without an API key")
    return int(_API_KEY.unpack_from(frame)[0])
