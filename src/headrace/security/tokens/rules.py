"""Decides what happens to delegation tokens: how long they live, who may change them, who sees them.

The order of the checks is Kafka's, because a client gets the error of the first check that fails. All times are
milliseconds. A sum that is too large for Kafka's 64 bits is the largest number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from headrace.security.principal import USER, Principal
from headrace.security.tokens.token import DelegationToken, new_token_id

_MAX_TIME_MS = 2**63 - 1


class TokenRefused(Exception):
    """A request about a token is refused. The subclass says why."""


class NotAUser(TokenRefused):
    """The owner and the renewers of a token must be users."""


class TokenExpired(TokenRefused):
    """The token is no longer valid."""


class NotOwnerOrRenewer(TokenRefused):
    """Neither the owner of the token nor one of its renewers sent the request."""


class StillValid(TokenRefused):
    """The token has not expired, so it is not deleted."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """``delegation.token.max.lifetime.ms`` and ``delegation.token.expiry.time.ms``."""

    max_ms: int
    renew_ms: int


def create(
    owner: Principal,
    requester: Principal,
    renewers: Collection[Principal],
    wanted_max_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> DelegationToken:
    """
    :param wanted_max_ms: the maximum lifetime that the requester wants; not positive: that of the broker.
    :raises NotAUser: if the owner or a renewer is not a user. Kafka accepts any owner. But a login with a token
        becomes ``User:NAME`` of the owner, so a token of ``Group:alice`` would be a token of the user alice.
    """
    if any(principal.type != USER for principal in (owner, *renewers)):
        raise NotAUser
    lifetime_ms = min(lifetimes.max_ms, wanted_max_ms) if wanted_max_ms > 0 else lifetimes.max_ms
    max_ms = _later(now_ms, lifetime_ms)
    return DelegationToken(
        token_id=new_token_id(),
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_ms=now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, _later(now_ms, lifetimes.renew_ms)),
    )


def renew(
    token: DelegationToken, requester: Principal, wanted_ms: int, lifetimes: Lifetimes, now_ms: int
) -> DelegationToken:
    """
    :param wanted_ms: for how long from now on; not positive: as long as the broker allows.
    :raises TokenRefused: if the token is not renewed.
    """
    if token.is_expired(now_ms):
        raise TokenExpired
    if not token.may_change(requester):
        raise NotOwnerOrRenewer
    period_ms = min(lifetimes.renew_ms, wanted_ms) if wanted_ms > 0 else lifetimes.renew_ms
    return replace(token, expiry_ms=min(token.max_ms, _later(now_ms, period_ms)))


def expire(token: DelegationToken, requester: Principal, period_ms: int, now_ms: int) -> DelegationToken | None:
    """
    :param period_ms: after which time the token expires; negative: at once.
    :return: the token with its new time, or None if the token is to be deleted.
    :raises TokenRefused: if the token stays as it is.
    """
    if not token.may_change(requester):
        raise NotOwnerOrRenewer
    if period_ms < 0:
        return None
    if token.is_expired(now_ms):
        raise TokenExpired
    return replace(token, expiry_ms=min(token.max_ms, _later(now_ms, period_ms)))


def check_expired(token: DelegationToken, now_ms: int) -> None:
    """Decides whether a token is deleted because of its age.

    :raises StillValid: if the token stays.
    """
    if not token.is_expired(now_ms):
        raise StillValid


def is_visible(
    token: DelegationToken,
    requester: Principal,
    owners: frozenset[Principal] | None,
    may_describe: Callable[[DelegationToken], bool],
) -> bool:
    """Whether a request to describe tokens shows a token.

    :param owners: the principals whose tokens are wanted; None for all tokens.
    :param may_describe: asks the authorizer. Who owns, requested or may renew the token needs no permission.
    """
    if owners is not None and owners.isdisjoint((token.owner, token.requester, *token.renewers)):
        return False
    return token.is_of(requester) or may_describe(token)


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _MAX_TIME_MS)
