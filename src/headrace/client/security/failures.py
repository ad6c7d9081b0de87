"""Decides what a failed TLS connection means: a wrong certificate, which stays wrong, or a broken connection.

A wrong certificate, TLS version or cipher is :class:`TlsHandshakeFailed`, and is not tried again. A connection that
simply ends is :class:`BrokerUnreachable`, and is tried again, as in Kafka: the broker may be restarting. A broker that
speaks TLS 1.3 checks the client's certificate after the client has finished its handshake. So its refusal comes as an
error of the first read.
"""

from __future__ import annotations

from headrace.client.errors import TlsHandshakeFailed
from headrace.client.security.connection_security import ConnectionSecurity

#: Parts of OpenSSL's reasons, and what to do. The first match counts.
_ADVICE = (
    ("hostname mismatch", "the certificate is for another host: connect by a name that the certificate has, or set "
     "ssl.endpoint.identification.algorithm to an empty text to skip this check"),
    ("ip address mismatch", "the certificate is for another host: connect by a name that the certificate has, or set "
     "ssl.endpoint.identification.algorithm to an empty text to skip this check"),
    ("certificate has expired", "the broker needs a new certificate"),
    ("not yet valid", "compare the clocks of this host and of the broker"),
    ("certificate verify failed", "the trust store does not have the issuer of the broker's certificate: check "
     "ssl.truststore.location or ssl.truststore.certificates"),
    ("certificate required", "the broker asks for a certificate of the client: set ssl.keystore.location, or "
     "ssl.keystore.certificate.chain and ssl.keystore.key"),
    ("alert", "the broker did not accept the client's certificate or TLS settings: check ssl.keystore.*, "
     "ssl.enabled.protocols and ssl.cipher.suites"),
    ("wrong version number", "the listener does not speak TLS: check the port and security.protocol"),
    ("record layer failure", "the listener does not speak TLS: check the port and security.protocol"),
    ("", "check ssl.enabled.protocols and ssl.cipher.suites"),
)  # fmt: skip


def tls_failure(security: ConnectionSecurity, address: str, error: BaseException | None) -> TlsHandshakeFailed | None:
    """Returns the exception for a failed handshake, or None if the connection just ended, or has no TLS."""
    if security.tls is None:
        return None
    from ssl import SSLEOFError, SSLError, SSLSyscallError, SSLZeroReturnError

    if not isinstance(error, SSLError) or isinstance(error, SSLEOFError | SSLSyscallError | SSLZeroReturnError):
        return None
    reason = str(getattr(error, "verify_message", "") or error.reason or error).lower().replace("_", " ").strip(". ")
    whole = f"{error} {reason}".lower().replace("_", " ")
    advice = next(advice for part, advice in _ADVICE if part in whole)
    return TlsHandshakeFailed(f"the TLS handshake with {address} failed: {reason}; {advice}")


def connect_failure(security: ConnectionSecurity, address: str, error: OSError) -> str:
    """Says why there is no connection."""
    if security.tls is None or not isinstance(error, ConnectionResetError):
        return f"{address}: {error.strerror or error}"
    return f"{address} ended the connection during the TLS handshake; {protocol_question(security)}"


def protocol_question(security: ConnectionSecurity) -> str:
    """Returns the advice for a listener that closes connections without an answer."""
    return f"is {security.protocol} the listener's protocol (security.protocol)?"
