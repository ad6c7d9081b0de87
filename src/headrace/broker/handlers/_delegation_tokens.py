"""Decides from which connections requests about delegation tokens are accepted, and changes when a token expires.

A client that logged in with a token cannot ask for tokens: otherwise a stolen token would live forever. A client that
nobody has authenticated cannot either: it would get a token for ANONYMOUS.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.broker.configs.listeners import SecurityProtocol
from headrace.protocol.errors import DelegationTokenRequestNotAllowed, code_for_errors
from headrace.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.network.connection import Connection
    from headrace.broker.network.request import Reply, Request

#: What an answer with an error has in the fields of times.
NO_TIME = -1


def check_token_request(connection: Connection, config: BrokerConfig) -> None:
    """
    :raises DelegationTokenRequestNotAllowed: if the client of the connection may not ask for tokens.
    """
    protocol = config.listeners.protocol_of(connection.listener_name)
    login = connection.login
    if login is not None and login.is_token_authenticated:
        raise DelegationTokenRequestNotAllowed("the client has logged in with a delegation token")
    if protocol is SecurityProtocol.PLAINTEXT or (
        protocol is SecurityProtocol.SSL and connection.principal == ANONYMOUS
    ):
        raise DelegationTokenRequestNotAllowed("the client is not authenticated")


async def change_expiry(
    request: Request,
    config: BrokerConfig,
    change: Callable[[bytes, Principal, int], Awaitable[int]],
    *,
    period_ms: int,
) -> Reply:
    """Answers a request that changes when a token expires.

    :param change: is called with the token's HMAC, the requester and the period; it returns the new time.
    """
    with code_for_errors(expiry_timestamp=NO_TIME) as answer:
        check_token_request(request.connection, config)
        answer["expiry_timestamp"] = 0  # as in Kafka: -1 only for clients that may not ask at all
        answer["expiry_timestamp"] = await change(request.body.hmac, request.connection.principal, period_ms)
    return answer
