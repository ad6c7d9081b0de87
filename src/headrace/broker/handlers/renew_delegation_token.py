"""RenewDelegationToken (key 39): gives a delegation token more time, up to its maximum lifetime (KIP-48).

Speaks v1 and v2. The owner and the renewers of the token may do it. Not for clients that logged in with a token, or
that are not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.handlers._delegation_tokens import NO_TIME, check_token_request
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors

if TYPE_CHECKING:
    from headrace.broker.authentication.token_service import TokenService
    from headrace.broker.configs.broker_config import BrokerConfig


async def handle(request: Request, config: BrokerConfig, delegation_tokens: TokenService) -> Reply:
    body = request.body
    with code_for_errors(expiry_timestamp=NO_TIME) as answer:
        check_token_request(request.connection, config)
        answer["expiry_timestamp"] = 0  # as in Kafka: -1 only for clients that may not ask at all
        requester = request.connection.principal
        answer["expiry_timestamp"] = await delegation_tokens.renew(body.hmac, requester, body.renew_period)
    return answer
