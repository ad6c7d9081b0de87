"""Says what a connection needs for its security protocol: a TLS context, credentials, both, or neither.

A client has one :class:`ConnectionSecurity` for all its connections. ``tls`` is called for each connection, so that a
broker whose key store has changed uses the new key for new connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ssl import SSLContext

    from headrace.security.sasl.mechanism import ClientMechanism

#: How long a closing TLS connection waits for the broker's last message.
_TLS_SHUTDOWN_S = 1.0
_PROTOCOLS = {
    (False, False): "PLAINTEXT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


class Credentials(Protocol):
    """The credentials with which a client logs in."""

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""

    async def begin(self) -> ClientMechanism:
        """Begins a login. This may wait for a token.

        :raises SaslAuthenticationFailed: if there is no token.
        """


@dataclass(frozen=True)
class ConnectionSecurity:
    tls: Callable[[], SSLContext] | None = None
    credentials: Credentials | None = None

    @property
    def protocol(self) -> str:
        """The name of the security protocol."""
        return _PROTOCOLS[self.tls is not None, self.credentials is not None]

    def transport_options(self, host: str) -> dict[str, Any]:
        """The arguments of the event loop's ``create_connection`` for TLS."""
        if self.tls is None:
            return {}
        return {"ssl": self.tls(), "server_hostname": host, "ssl_shutdown_timeout": _TLS_SHUTDOWN_S}


PLAINTEXT = ConnectionSecurity()
