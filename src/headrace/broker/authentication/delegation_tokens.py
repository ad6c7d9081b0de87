"""The delegation tokens of the cluster: creates, renews, expires and describes them, and lets them log in.

A cluster has tokens if ``delegation.token.secret.key`` is set, to one value on all brokers. ``security/tokens`` has
the form of a token and the rules, ``stored_tokens.py`` keeps the tokens of the znode tree in memory.

A request about an unknown token, or about all tokens, first applies the changes that other brokers have announced. So a
client may create a token at one broker, and renew or describe it at another.

Every broker deletes expired tokens, every ``delegation.token.expiry.check.interval.ms``. It reads the znode before, so
the renewal by another broker is never lost. A login with an expired token fails, also before the token is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.authentication.stored_tokens import IssuedToken, StoredTokens
from headrace.broker.authentication.token_service import TokenService
from headrace.peer_log import one_line
from headrace.protocol.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    InvalidRequest,
    KafkaError,
)
from headrace.security.principal import USER, Principal
from headrace.security.sasl.scram_server import ScramAccount
from headrace.security.tokens import rules
from headrace.security.tokens.token import MAX_ZNODE_BYTES

if TYPE_CHECKING:
    import asyncio

    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.runtime.timer import TimerTask

logger = getLogger(__name__)

_ERRORS: dict[type[rules.TokenRefused], type[KafkaError]] = {
    rules.NotAUser: InvalidPrincipalType,
    rules.TokenExpired: DelegationTokenExpired,
    rules.NotOwnerOrRenewer: DelegationTokenOwnerMismatch,
}


class DelegationTokens(TokenService):
    def __init__(self, config: BrokerConfig, runtime: BrokerRuntime, stored: StoredTokens) -> None:
        self._config = config
        self._runtime = runtime
        self._stored = stored
        self._sweep_timer: TimerTask | None = None
        self._sweep: asyncio.Task[None] | None = None

    # -- life cycle

    async def start(self) -> None:
        """Reads all tokens, and follows their changes.

        :raises CoordinationError: if the tree does not answer.
        """
        await self._stored.load()
        self._stored.start()
        self._schedule_sweep()

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._sweep is not None:
            self._sweep.cancel()
        await self._stored.stop()

    # -- logins

    def account_of(self, mechanism: str, token_id: str) -> ScramAccount | None:
        issued = self._stored.get(token_id)
        if issued is None or issued.token.owner.type != USER or issued.token.is_expired(self._now_ms()):
            return None
        credential = self._stored.credential_of(issued, mechanism)
        return ScramAccount(credential, issued.token.owner.name, issued.token.expiry_ms)

    # -- requests

    async def create(
        self, owner: Principal, requester: Principal, renewers: Collection[Principal], max_lifetime_ms: int
    ) -> IssuedToken:
        with _refusals_as_errors():
            token = rules.create(owner, requester, renewers, max_lifetime_ms, self._lifetimes(), self._now_ms())
        if len(token.to_json()) > MAX_ZNODE_BYTES:
            raise InvalidRequest(f"{len(renewers)} renewers are more than ZooKeeper can store in one znode")
        issued = await self._stored.add(token)
        logger.info("created delegation token %s of %s for %s", token.token_id, one_line(owner), one_line(requester))
        return issued

    async def renew(self, token_hmac: bytes, requester: Principal, period_ms: int) -> int:
        now_ms = self._now_ms()
        token_id = await self._stored.find(token_hmac)
        with _refusals_as_errors():
            renewed = await self._stored.change(
                token_id, lambda token: rules.renew(token, requester, period_ms, self._lifetimes(), now_ms)
            )
        assert renewed is not None
        logger.info("renewed delegation token %s of %s", token_id, one_line(renewed.owner))
        return renewed.expiry_ms

    async def expire(self, token_hmac: bytes, requester: Principal, period_ms: int) -> int:
        now_ms = self._now_ms()
        token_id = await self._stored.find(token_hmac)
        with _refusals_as_errors():
            changed = await self._stored.change(
                token_id, lambda token: rules.expire(token, requester, period_ms, now_ms)
            )
        logger.info("%s let delegation token %s expire", one_line(requester), token_id)
        return now_ms if changed is None else changed.expiry_ms

    async def all(self) -> list[IssuedToken]:
        await self._stored.catch_up_or_fail()
        return list(self._stored)

    def _lifetimes(self) -> rules.Lifetimes:
        return rules.Lifetimes(
            max_ms=self._config.int("delegation.token.max.lifetime.ms"),
            renew_ms=self._config.int("delegation.token.expiry.time.ms"),
        )

    def _now_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    # -- expiry

    def _schedule_sweep(self) -> None:
        interval_ms = self._config.int("delegation.token.expiry.check.interval.ms")
        self._sweep_timer = self._runtime.timer.schedule(interval_ms, self._start_sweep)

    def _start_sweep(self) -> None:
        self._sweep = self._runtime.loop.create_task(self._delete_expired())
        self._schedule_sweep()

    async def _delete_expired(self) -> None:
        now_ms = self._now_ms()
        for token in [issued.token for issued in self._stored if issued.token.is_expired(now_ms)]:
            try:
                with suppress(DelegationTokenNotFound, rules.StillValid):  # another broker was faster
                    await self._stored.change(token.token_id, lambda found: rules.check_expired(found, now_ms))
                    owner = one_line(token.owner)
                    logger.info("deleted delegation token %s of %s: it has expired", token.token_id, owner)
            except KafkaError as error:
                logger.warning("the expired delegation token %s cannot be deleted now: %s", token.token_id, error)


@contextmanager
def _refusals_as_errors() -> Iterator[None]:
    """Turns a refusal of the rules into the error of the protocol."""
    try:
        yield
    except rules.TokenRefused as refused:
        raise _ERRORS[type(refused)](type(refused).__doc__) from None
