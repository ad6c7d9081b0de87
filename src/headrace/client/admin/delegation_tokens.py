"""Creates, renews, expires and describes delegation tokens (KIP-48, KIP-373).

A process with a token acts for the owner of the token, and needs no password. It logs in by SCRAM, with the id of the
token as its name and :attr:`DelegationToken.password` as its password (:meth:`DelegationToken.login_options`). Brokers
accept these requests only from clients that logged in with a password or a certificate.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.client.admin.requests import AdminRequests, raise_for
from headrace.client.errors import UnsupportedByBroker
from headrace.protocol.api import Api
from headrace.security.principal import Principal
from headrace.security.sasl.mechanism import SCRAM_SHA_512

#: From this version on, the owner may be another user than the requester.
_OWNER_VERSION = 3


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token with its secret, ``hmac``. Times are milliseconds since 1970.

    Brokers before KIP-373 do not name a requester; then the owner is the requester.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """The password for a login: the HMAC in base64."""
        return b64encode(self.hmac).decode()

    def login_options(self, mechanism: str = SCRAM_SHA_512) -> dict[str, str]:
        """Returns the options with which a client logs in with the token, by Kafka's names."""
        return {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{self.token_id}" password="{self.password}" tokenauth="true";',
        }


class DelegationTokensAdmin:
    """The delegation tokens of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str | Principal] = (),
        owner: str | Principal | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Makes a token.

        ::

            token = await admin.create_delegation_token(renewers=["User:bob"])
            consumer = AsyncConsumer({"security.protocol": "SASL_SSL", **token.login_options()}, ...)

        :param renewers: who may renew the token, beside its owner: ``User:bob``.
        :param owner: the user for whom the token is; without it, the user of this client.
        :param max_lifetime_ms: how long the token may live, with all renewals; -1: as long as the brokers allow.
        """
        wanted = None if owner is None else _principal(owner)
        if wanted is not None:
            await self._check_owner_version(timeout_ms)
        given = [_principal(renewer) for renewer in renewers]
        answer = await self._requests.ask_controller(
            Api.CREATE_DELEGATION_TOKEN,
            timeout_ms,
            owner_principal_type=None if wanted is None else wanted.type,
            owner_principal_name=None if wanted is None else wanted.name,
            renewers=[_fields(renewer) for renewer in given],
            max_lifetime=max_lifetime_ms,
        )
        raise_for(answer.error_code, "a new delegation token")
        return _token(answer, tuple(given))

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1, timeout_ms: float | None = None) -> int:
        """Gives a token more time, and returns the time at which it expires now.

        :param period_ms: for how long, from now on; -1: as long as the brokers allow.
        """
        answer = await self._requests.ask_controller(
            Api.RENEW_DELEGATION_TOKEN, timeout_ms, hmac=hmac, renew_period=period_ms
        )
        raise_for(answer.error_code, "the renewal of a delegation token")
        return int(answer.expiry_timestamp)

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_ms: float | None = None
    ) -> int:
        """Lets a token expire, and returns the time at which it expires.

        :param period_ms: after which time, from now on; -1: at once.
        """
        answer = await self._requests.ask_controller(
            Api.EXPIRE_DELEGATION_TOKEN, timeout_ms, hmac=hmac, expiry_time_period=period_ms
        )
        raise_for(answer.error_code, "the end of a delegation token")
        return int(answer.expiry_timestamp)

    async def describe_delegation_tokens(
        self, owners: Iterable[str | Principal] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens that this client may see, with their secrets.

        :param owners: only tokens that these principals own, have requested or may renew; without it, all tokens.
        """
        wanted = None if owners is None else [_fields(_principal(owner)) for owner in owners]
        answer = await self._requests.ask_controller(Api.DESCRIBE_DELEGATION_TOKEN, timeout_ms, owners=wanted)
        raise_for(answer.error_code, "the delegation tokens")
        return [
            _token(found, tuple(Principal(each.principal_type, each.principal_name) for each in found.renewers))
            for found in answer.tokens
        ]

    async def _check_owner_version(self, timeout_ms: float | None) -> None:
        """An older broker would make a token for the requester instead."""
        connection = await self._requests.cluster.connection(timeout_ms=timeout_ms)
        if connection.version_of(Api.CREATE_DELEGATION_TOKEN) < _OWNER_VERSION:
            raise UnsupportedByBroker(message=f"{connection.address} cannot make tokens for another user (KIP-373)")


def _principal(given: str | Principal) -> Principal:
    """
    :raises ValueError: if the text is not ``TYPE:NAME``.
    """
    return given if isinstance(given, Principal) else Principal.parse(given)


def _fields(principal: Principal) -> dict[str, str]:
    return {"principal_type": principal.type, "principal_name": principal.name}


def _token(found: Any, renewers: tuple[Principal, ...]) -> DelegationToken:
    owner = Principal(found.principal_type, found.principal_name)
    requester = owner
    if hasattr(found, "token_requester_principal_type"):
        requester = Principal(found.token_requester_principal_type, found.token_requester_principal_name)
    return DelegationToken(
        token_id=found.token_id,
        owner=owner,
        requester=requester,
        renewers=renewers,
        issue_ms=int(found.issue_timestamp),
        expiry_ms=int(found.expiry_timestamp),
        max_ms=int(found.max_timestamp),
        hmac=bytes(found.hmac),
    )
