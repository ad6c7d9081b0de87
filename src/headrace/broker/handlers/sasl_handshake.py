"""SaslHandshake (key 17): the client chooses a SASL mechanism for its login, and gets the list of all mechanisms.

Speaks v0 and v1. After v0 the client sends the tokens of the mechanism as bare frames; after v1 in SaslAuthenticate
requests. A mechanism that is not enabled is answered with UNSUPPORTED_SASL_MECHANISM, and the connection is closed. A
client that has logged in may send another handshake only if its session is limited (KIP-368); otherwise, and on
listeners without SASL, the answer is ILLEGAL_SASL_STATE. A second handshake instead of a token fails the login.
``authentication/login.py`` decides.
"""

from __future__ import annotations

from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode


async def handle(request: Request) -> Reply:
    connection = request.connection
    login = connection.login
    if login is None:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
    error = login.handshake(connection, request.body.mechanism, request.version)
    if login.has_failed:
        await login.delay_failure()
    return {"error_code": error, "mechanisms": () if error is ErrorCode.illegal_sasl_state else login.mechanisms}
