"""Logs a connection in, and renews the login before the broker's session ends (KIP-152, KIP-368).

::

    SaslHandshake v1      the mechanism's name        error 33: the broker does not offer it, and lists what it offers
    SaslAuthenticate      a token of the client       the broker's next challenge; the last answer says how long the
                                                      session lasts

A broker may give a session a lifetime (``connections.max.reauth.ms``, or the expiry of a token). The first request that
is sent after 85 to 95 % of the lifetime renews the login on the same connection, as Java's client does. A broker allows
no other request between the handshake and the end of the login. So requests wait meanwhile, and are then sent in their
order. Answers to earlier requests arrive before the answer to the handshake.

A broker can make a client do little before it is trusted: a login has at most :data:`MAX_ROUNDS` rounds, each frame at
most 64 KiB (``connection.py``), and the caller limits the time. The mechanisms limit their own work (SCRAM's
iterations).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Protocol

from headrace.client.errors import ErrorCode, HeadraceError, SaslAuthenticationFailed, UnsupportedMechanism
from headrace.client.own_random import uniform
from headrace.client.security.connection_security import Credentials
from headrace.peer_log import one_line
from headrace.protocol.api import Api
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, AuthenticationFailed, ClientMechanism

#: SCRAM takes two rounds. OAUTHBEARER takes one, and two if it fails.
MAX_ROUNDS = 8
_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 2
#: These compute for milliseconds, and the broker says how many. So they run on a thread.
_SLOW_MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)

#: A request as it is sent.
Parts = list[bytes | bytearray | memoryview]


class LoginChannel(Protocol):
    """The part of its connection that a login uses."""

    @property
    def address(self) -> str: ...

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version of each API; empty if they are not known."""

    def send(self, api: Api, version: int, fields: dict[str, Any], *, is_login: bool) -> asyncio.Future[Any]:
        """Sends a request. A request of the login goes before all requests that wait for the login."""

    def write(self, parts: Parts) -> None:
        """Writes a request that has waited."""

    def abort(self, error: BaseException) -> None:
        """Closes the connection, because the login could not be renewed."""


class Login:
    """The login of one connection."""

    def __init__(
        self,
        channel: LoginChannel,
        credentials: Credentials,
        *,
        fraction: Callable[[], float] = lambda: uniform(0.85, 0.95),
    ) -> None:
        """
        :param fraction: the part of the session's lifetime after which the login is renewed.
        """
        self._channel = channel
        self._credentials = credentials
        self._fraction = fraction
        self._renewal: asyncio.Task[None] | None = None
        self._waiting: list[Parts] = []
        #: When to renew the login, in the loop's time.
        self._due = inf

    async def begin(self) -> None:
        """Logs in.

        :raises SaslAuthenticationFailed: if the broker rejects the login, or fails the client's checks.
        """
        lifetime_ms = await _Dialog(self._channel, self._credentials).run()
        lasts = lifetime_ms > 0
        self._due = asyncio.get_running_loop().time() + lifetime_ms / 1000 * self._fraction() if lasts else inf

    def holds_back(self, parts: Parts) -> bool:
        """Keeps a request until the login is renewed, if it has to be renewed. Otherwise returns False."""
        if self._renewal is None:
            loop = asyncio.get_running_loop()
            if loop.time() < self._due:
                return False
            self._renewal = loop.create_task(self._renew(), name=f"login at {self._channel.address}")
        self._waiting.append(parts)
        return True

    def end(self) -> None:
        """Ends a renewal, because the connection has ended."""
        if self._renewal is not None:
            self._renewal.cancel()
        self._waiting.clear()

    async def _renew(self) -> None:
        try:
            await self.begin()
        except HeadraceError as error:
            self._renewal = None
            self._channel.abort(error)
            return
        self._renewal = None
        waiting, self._waiting = self._waiting, []
        for parts in waiting:
            self._channel.write(parts)


class _Dialog:
    """One login, from the handshake to the end."""

    def __init__(self, channel: LoginChannel, credentials: Credentials) -> None:
        self._channel = channel
        self._credentials = credentials

    async def run(self) -> int:
        """Returns the lifetime of the session in milliseconds; 0 if it has no end."""
        mechanism = await self._credentials.begin()
        await self._shake_hands()
        version = self._version(Api.SASL_AUTHENTICATE, 0, _AUTHENTICATE_VERSION)
        token: bytes | None = mechanism.first()
        for _ in range(MAX_ROUNDS):
            answer = await self._ask(Api.SASL_AUTHENTICATE, version, auth_bytes=token)
            if answer.error_code is not ErrorCode.none:
                raise self._rejected(answer)
            token = await self._next_token(mechanism, answer.auth_bytes)
            if mechanism.is_complete:
                return _milliseconds(answer)
            if token is None:
                break
        raise SaslAuthenticationFailed(
            f"{self._channel.address} did not end the login by {mechanism.name} after {MAX_ROUNDS} rounds"
        )

    async def _shake_hands(self) -> None:
        version = self._version(Api.SASL_HANDSHAKE, _HANDSHAKE_VERSION, _HANDSHAKE_VERSION)
        name, address = self._credentials.mechanism, self._channel.address
        answer = await self._ask(Api.SASL_HANDSHAKE, version, mechanism=name)
        if answer.error_code is ErrorCode.none:
            return
        if answer.error_code is ErrorCode.unsupported_sasl_mechanism:
            offered = one_line(", ".join(answer.mechanisms)) or "none"
            raise UnsupportedMechanism(
                f"{address} does not offer the SASL mechanism {name}; it offers {offered}: set sasl.mechanism to one "
                "of them"
            )
        if answer.error_code is ErrorCode.illegal_sasl_state:
            raise UnsupportedMechanism(_no_sasl(address))
        raise SaslAuthenticationFailed(f"{address} rejected the SASL handshake: {answer.error_code.name}")

    def _version(self, api: Api, lowest: int, most: int) -> int:
        if not self._channel.versions:
            return most
        highest = self._channel.versions.get(api, (0, -1))[1]
        if highest < lowest:
            raise UnsupportedMechanism(_no_sasl(self._channel.address))
        return min(highest, most)

    def _ask(self, api: Api, version: int, **fields: Any) -> asyncio.Future[Any]:
        return self._channel.send(api, version, fields, is_login=True)

    async def _next_token(self, mechanism: ClientMechanism, challenge: bytes) -> bytes | None:
        try:
            if mechanism.name not in _SLOW_MECHANISMS:
                return mechanism.step(challenge)
            return await asyncio.to_thread(mechanism.step, challenge)
        except AuthenticationFailed as error:
            raise SaslAuthenticationFailed(
                f"the login at {self._channel.address} by {mechanism.name} failed: {one_line(error)}"
            ) from None

    def _rejected(self, answer: Any) -> SaslAuthenticationFailed:
        reason = one_line(answer.error_message or "") or answer.error_code.name
        return SaslAuthenticationFailed(
            f"{self._channel.address} rejected the login by {self._credentials.mechanism}: {reason}; check the user, "
            "the password or the token (sasl.jaas.config), and sasl.mechanism"
        )


def _no_sasl(address: str) -> str:
    return (
        f"the listener {address} has no SASL: set security.protocol to PLAINTEXT or SSL, or connect to a listener with "
        "SASL"
    )


def _milliseconds(answer: Any) -> int:
    """The lifetime of the session. Version 0 of the answer does not have one."""
    lifetime = getattr(answer, "session_lifetime", None)
    return 0 if lifetime is None else int(lifetime.total_seconds() * 1000)
