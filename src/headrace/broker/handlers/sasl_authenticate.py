"""SaslAuthenticate (key 36): takes a token of the client's SASL mechanism, and returns the answer of the mechanism.

Speaks v0 to v2. From v1 on the answer says for how many milliseconds the login counts (KIP-368). A login that fails is
answered with SASL_AUTHENTICATION_FAILED after a delay, and the connection is closed. The text does not say whether the
user exists. Tokens without a request header (after SaslHandshake v0) are handled here, too: their answers have no
header, and a login that fails closes the connection without an answer.
"""

from __future__ import annotations

from headrace.broker.network.request import RawTokenRequest, Reply, Request
from headrace.protocol.errors import ErrorCode, SaslAuthenticationFailed
from headrace.security.sasl.mechanism import AuthenticationFailed

_TOO_LATE = "SaslAuthenticate request received after successful authentication"


async def handle(request: Request) -> Reply:
    login = request.connection.login
    if login is None or not login.expects_token:
        return {"error_code": ErrorCode.illegal_sasl_state, "error_message": _TOO_LATE, "auth_bytes": b""}
    try:
        answer = await login.authenticate(request.connection, bytes(request.body.auth_bytes))
    except AuthenticationFailed as error:
        await login.delay_failure()
        if isinstance(request, RawTokenRequest):
            raise SaslAuthenticationFailed(str(error)) from None
        return {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": error.for_peer,
            "auth_bytes": b"",
        }
    return {"error_message": "", "auth_bytes": answer, "session_lifetime": login.session_lifetime_ms}
