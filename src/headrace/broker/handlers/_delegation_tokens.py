"""Decides from which connections requests about delegation tokens are accepted.

A client that logged in with a token cannot ask for tokens: otherwise a stolen token would live forever. A client that
nobody has authenticated cannot either: it would get a token for ANONYMOUS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.configs.listeners import SecurityProtocol
from headrace.protocol.errors import DelegationTokenRequestNotAllowed
from headrace.security.principal import ANONYMOUS

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.network.connection import Connection

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
