"""The interface to the delegation tokens of a cluster, and the service of a cluster that has no tokens.

A cluster has tokens if ``delegation.token.secret.key`` is set. Then ``delegation_tokens.py`` is the service. A broker
without the key does not import that module, and refuses every request about tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from headrace.broker.start_error import StartError
from headrace.protocol.errors import DelegationTokenAuthDisabled

if TYPE_CHECKING:
    from headrace.broker.authentication.stored_tokens import IssuedToken
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.coordination.interface import Coordination
    from headrace.security.principal import Principal
    from headrace.security.sasl.scram_server import ScramAccount

#: The setting of the key, and its older name.
_KEYS = ("delegation.token.secret.key", "delegation.token.master.key")


class TokenService(Protocol):
    def account_of(self, mechanism: str, token_id: str) -> ScramAccount | None:
        """Finds the account with which a token logs in; None if there is no such token, or it has expired."""

    async def create(
        self, owner: Principal, requester: Principal, renewers: Collection[Principal], max_lifetime_ms: int
    ) -> IssuedToken:
        """
        :param max_lifetime_ms: how long the token may live, with all renewals; not positive: as long as possible.
        :raises KafkaError: if there is no new token.
        """

    async def renew(self, token_hmac: bytes, requester: Principal, period_ms: int) -> int:
        """
        :param period_ms: for how long from now on; not positive: as long as possible.
        :return: the new time of expiry.
        :raises KafkaError: if the token was not renewed.
        """

    async def expire(self, token_hmac: bytes, requester: Principal, period_ms: int) -> int:
        """
        :param period_ms: negative to delete the token.
        :return: the new time of expiry.
        :raises KafkaError: if the token was not changed.
        """

    async def all(self) -> list[IssuedToken]:
        """Returns all tokens. The caller decides who may see them (``security/tokens/rules.py``).

        :raises KafkaError: if the cluster has no tokens, or they cannot be read.
        """

    async def stop(self) -> None: ...


class NoTokens(TokenService):
    def account_of(self, _mechanism: str, _token_id: str) -> None:
        return None

    async def create(self, *_: object) -> IssuedToken:
        raise DelegationTokenAuthDisabled(_DISABLED)

    async def renew(self, *_: object) -> int:
        raise DelegationTokenAuthDisabled(_DISABLED)

    async def expire(self, *_: object) -> int:
        raise DelegationTokenAuthDisabled(_DISABLED)

    async def all(self) -> list[IssuedToken]:
        raise DelegationTokenAuthDisabled(_DISABLED)

    async def stop(self) -> None:
        pass


_DISABLED = f"delegation tokens need {_KEYS[0]}"


async def start_tokens(config: BrokerConfig, coordination: Coordination, runtime: BrokerRuntime) -> TokenService:
    """Returns the service that the settings ask for, with all tokens that the tree has.

    :raises StartError: if the tokens cannot be read.
    """
    key = next((key for name in _KEYS if (key := config.optional_str(name))), None)
    if key is None:
        return NoTokens()
    from headrace.broker.authentication.delegation_tokens import DelegationTokens
    from headrace.broker.authentication.stored_tokens import StoredTokens
    from headrace.coordination.interface import CoordinationError

    tokens = DelegationTokens(config, runtime, StoredTokens(coordination, runtime.clock, key))
    try:
        await tokens.start()
    except CoordinationError as error:
        raise StartError(f"the delegation tokens cannot be read: {error}") from None
    return tokens
