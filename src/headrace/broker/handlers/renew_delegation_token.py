"""RenewDelegationToken (key 39): gives a delegation token more time, up to its maximum lifetime (KIP-48).

Speaks v1 and v2. The owner and the renewers of the token may do it. Not for clients that logged in with a token, or
that are not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.handlers._delegation_tokens import change_expiry
from headrace.broker.network.request import Reply, Request

if TYPE_CHECKING:
    from headrace.broker.authentication.token_service import TokenService
    from headrace.broker.configs.broker_config import BrokerConfig


async def handle(request: Request, config: BrokerConfig, delegation_tokens: TokenService) -> Reply:
    return await change_expiry(request, config, delegation_tokens.renew, period_ms=request.body.renew_period)
