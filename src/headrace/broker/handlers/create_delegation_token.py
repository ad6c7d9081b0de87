"""CreateDelegationToken (key 38): makes a token with which processes log in for a user (KIP-48).

Speaks v1 to v3. v3 has an owner that is not the requester (KIP-373), which needs CREATE_TOKENS on the owner. Not for
clients that logged in with a token, or that are not authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.handlers._delegation_tokens import NO_TIME, check_token_request
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import DelegationTokenAuthorizationFailed, code_for_errors
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.principal import Principal

if TYPE_CHECKING:
    from headrace.broker.authentication.token_service import TokenService
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig

_NOTHING = {
    "issue_timestamp": NO_TIME,
    "expiry_timestamp": NO_TIME,
    "max_timestamp": NO_TIME,
    "token_id": "",
    "hmac": b"",
}


async def handle(
    request: Request, config: BrokerConfig, authorizer: Authorizer, delegation_tokens: TokenService
) -> Reply:
    requester = request.connection.principal
    owner = _owner_of(request, requester)
    with code_for_errors(**_NOTHING, **_principals(owner, requester)) as answer:
        check_token_request(request.connection, config)
        if owner != requester and not authorizer.is_allowed(
            request.connection, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            raise DelegationTokenAuthorizationFailed(f"{requester} may not create tokens for {owner}")
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.body.renewers]
        issued = await delegation_tokens.create(owner, requester, renewers, request.body.max_lifetime)
        token = issued.token
        answer.update(
            issue_timestamp=token.issue_ms,
            expiry_timestamp=token.expiry_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=issued.hmac,
        )
    return answer


def _owner_of(request: Request, requester: Principal) -> Principal:
    name = getattr(request.body, "owner_principal_name", None)
    return Principal(request.body.owner_principal_type or "", name) if name else requester


def _principals(owner: Principal, requester: Principal) -> dict[str, str]:
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
    }
