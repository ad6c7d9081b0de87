"""DescribeDelegationToken (key 41): shows the delegation tokens that a client may see, with their secrets (KIP-48).

Speaks v1 to v3. A client sees the tokens that it owns, has requested or may renew. Other tokens need DESCRIBE on the
token, or DESCRIBE_TOKENS on its owner (KIP-373). Not for clients that logged in with a token, or that are not
authenticated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.handlers._delegation_tokens import check_token_request
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.principal import Principal
from headrace.security.tokens.rules import is_visible

if TYPE_CHECKING:
    from headrace.broker.authentication.stored_tokens import IssuedToken
    from headrace.broker.authentication.token_service import TokenService
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.security.tokens.token import DelegationToken


async def handle(
    request: Request, config: BrokerConfig, authorizer: Authorizer, delegation_tokens: TokenService
) -> Reply:
    connection, given = request.connection, request.body.owners
    owners = None if given is None else frozenset(Principal(each.principal_type, each.principal_name) for each in given)

    def may_describe(token: DelegationToken) -> bool:
        return authorizer.is_allowed(
            connection, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        ) or authorizer.is_allowed(connection, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))

    def answer_for(issued: IssuedToken) -> dict[str, Any] | None:
        is_shown = is_visible(issued.token, connection.principal, owners, may_describe)
        return _described(issued) if is_shown else None

    with code_for_errors(tokens=()) as answer:
        check_token_request(connection, config)
        found = await delegation_tokens.all()
        answer["tokens"] = await request.answers(found if owners is None or owners else [], answer_for, "tokens")
    return answer


def _described(issued: IssuedToken) -> dict[str, Any]:
    token = issued.token
    return {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.type,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": issued.hmac,
        "renewers": [{"principal_type": renewer.type, "principal_name": renewer.name} for renewer in token.renewers],
    }
