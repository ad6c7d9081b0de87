"""Gives Spark's workers a login of their own: a delegation token, so that the password stays on the driver.

The driver has the login that the options name. Before a task needs a login, the driver makes a delegation token
(``client/admin/delegation_tokens.py``), and hands the token to the task. The driver waits until all brokers accept the
token. :class:`WorkerLogins` renews the token after ten minutes, or when half of its time is over. It makes another one
when the token cannot be renewed for long enough, or was deleted. So a stream runs as long as the driver has a login. A
task keeps the token with which it began: one task may take as long as a token is valid
(``delegation.token.expiry.time.ms``, a day by default).

The option ``workerLogin`` says what workers may get:

=========  ====================================================================================================
token      a token, and nothing else. If there is none, the query fails. This is the default.
any        a token; if there is none, the login of the driver, with a warning in the log
password   the login of the driver. No token is made.
=========  ====================================================================================================

Workers need no login on listeners without SASL. A login of the driver that is itself a token is handed over as it is,
because a token cannot be made with a token.

Objects that Spark pickles for tasks have only options without a login (:func:`without_login`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from logging import getLogger
from typing import TYPE_CHECKING, Protocol, Self

from headrace.client.errors import (
    AuthenticationFailed,
    BrokerError,
    ErrorCode,
    HeadraceError,
    SaslAuthenticationFailed,
    UnsupportedByBroker,
    UnsupportedMechanism,
)
from headrace.peer_log import one_line
from headrace.pipeline.spark.options import BadOption, OptionReader, shared_client_options

if TYPE_CHECKING:
    from headrace.client.admin.delegation_tokens import DelegationToken

logger = getLogger(__name__)

#: The options of a login, by Kafka's names. All other options of security are about brokers, or about TLS.
_LOGIN_STARTS = ("sasl.",)
_SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
#: Why a broker makes no tokens, although it answers.
_NO_TOKENS = {
    ErrorCode.delegation_token_auth_disabled: "the cluster has no delegation tokens (delegation.token.secret.key)",
    ErrorCode.delegation_token_request_not_allowed: "the broker gives no delegation token to this login",
}
#: How long the brokers of a cluster may take to learn about a new token.
_PATIENCE_MS = 10_000
_RETRY_S = 0.2
#: So a token that somebody has deleted is noticed and replaced.
_RENEW_EVERY_MS = 600_000


class WorkerLogin(StrEnum):
    TOKEN = "token"
    ANY = "any"
    PASSWORD = "password"


class NoToken(Exception):
    """There is no token, and there will be none."""


class TokenAdmin(Protocol):
    """The methods of :class:`Admin` that this module uses."""

    def create_delegation_token(self) -> DelegationToken: ...

    def renew_delegation_token(self, hmac: bytes) -> int: ...

    def expire_delegation_token(self, hmac: bytes) -> int: ...

    def check_login(self) -> None:
        """Logs in at every broker."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


OpenAdmin = Callable[[Mapping[str, str]], TokenAdmin]


def _open_admin(client: Mapping[str, str]) -> TokenAdmin:
    from headrace.client.admin.sync_admin import Admin

    class _Admin(Admin):
        def check_login(self) -> None:
            for error in self.api_versions().errors.values():
                if isinstance(error, AuthenticationFailed):  # a broker that is down does not matter now
                    raise error

    admin: TokenAdmin = _Admin(dict(client))
    return admin


def parse_worker_login(options: OptionReader) -> WorkerLogin:
    """
    :raises BadOption: if the value is not one of the three.
    """
    return WorkerLogin(options.one_of("workerLogin", tuple(WorkerLogin), WorkerLogin.TOKEN))


def has_login(client: Mapping[str, str]) -> bool:
    return client.get("security.protocol", "").strip().upper().startswith("SASL_")


def without_login(client: Mapping[str, str]) -> dict[str, str]:
    """The options without those of a login. They have no passwords of users, and no client can connect with them."""
    return {name: value for name, value in client.items() if not name.startswith(_LOGIN_STARTS)}


def _login_of(client: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in client.items() if name.startswith(_LOGIN_STARTS)}


class WorkerLogins:
    """The login of the workers of one query. It lives in a process of the driver."""

    def __init__(
        self,
        client: Mapping[str, str],
        policy: WorkerLogin,
        *,
        open_admin: OpenAdmin = _open_admin,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """
        :param client: the options of the driver's clients.
        """
        self._client = dict(client)
        self._shared = shared_client_options(client)
        self._policy = policy
        self._open_admin = open_admin
        self._now_ms = now_ms
        self._sleep = sleep
        self._token: DelegationToken | None = None
        self._mechanism = ""
        self._expiry_ms = self._renew_at_ms = self._period_ms = 0
        self._has_warned = False

    def login(self) -> dict[str, str]:
        """Returns the options of a login, for tasks that begin now.

        :raises BadOption: if workers may get nothing but a token, and there is none.
        :raises HeadraceError: if the brokers do not answer.
        """
        if not has_login(self._client):
            return {}  # options of a login that nobody uses may have a password
        own = _login_of(self._client)
        if self._policy is WorkerLogin.PASSWORD or _is_token(self._client):
            return own
        try:
            return self._token_login()
        except NoToken as reason:
            if self._policy is WorkerLogin.TOKEN:
                raise BadOption(
                    f"Spark's workers get no login: {reason}. Set the option workerLogin to any, if they may have the "
                    "password of the driver instead of a token"
                ) from None
            if not self._has_warned:
                logger.warning("Spark's workers get the login of the driver, not a token: %s (workerLogin=any)", reason)
                self._has_warned = True
            return own

    def close(self) -> None:
        """Ends the token. Without it, the token ends when its time is over."""
        if self._token is None:
            return
        token, self._token = self._token, None
        try:
            with self._open_admin(self._shared) as admin:
                admin.expire_delegation_token(token.hmac)
        except HeadraceError as error:
            logger.info("the delegation token %s was not ended: %s", token.token_id, error)

    # -- tokens

    def _token_login(self) -> dict[str, str]:
        now_ms = self._now_ms()
        if self._token is None or now_ms >= self._renew_at_ms:
            try:
                self._refresh(now_ms)
            except HeadraceError as error:
                if self._token is None or now_ms >= self._expiry_ms:
                    raise
                logger.warning("the delegation token %s was not renewed: %s", self._token.token_id, error)
        assert self._token is not None
        return self._token.login_options(self._mechanism)

    def _refresh(self, now_ms: int) -> None:
        token = self._token
        with self._open_admin(self._shared) as admin:
            if token is not None and token.max_ms - now_ms > self._period_ms:
                try:
                    self._keep(token, admin.renew_delegation_token(token.hmac), now_ms)
                    return
                except BrokerError as error:
                    logger.info("the delegation token %s cannot be renewed: %s", token.token_id, error)
            token = _created(admin)
        self._mechanism = self._accepted_mechanism(token)
        self._period_ms = token.expiry_ms - now_ms
        self._keep(token, token.expiry_ms, now_ms)
        owner = one_line(token.owner)
        logger.info("Spark's workers log in with the delegation token %s of %s", token.token_id, owner)

    def _keep(self, token: DelegationToken, expiry_ms: int, now_ms: int) -> None:
        self._token = token
        self._expiry_ms = expiry_ms
        self._renew_at_ms = now_ms + min((expiry_ms - now_ms) // 2, _RENEW_EVERY_MS)

    def _accepted_mechanism(self, token: DelegationToken) -> str:
        """Waits until all brokers accept the token, and returns the mechanism by which they do.

        :raises NoToken: if they do not accept it.
        """
        own = self._client.get("sasl.mechanism", "").strip().upper()
        failures: list[str] = []
        for mechanism in sorted(_SCRAM, key=lambda name: name != own):
            options = {**without_login(self._shared), **token.login_options(mechanism)}
            ends_ms = self._now_ms() + _PATIENCE_MS
            while True:
                try:
                    with self._open_admin(options) as admin:
                        admin.check_login()
                    return mechanism
                except SaslAuthenticationFailed as error:
                    if isinstance(error, UnsupportedMechanism) or self._now_ms() >= ends_ms:
                        failures.append(f"{mechanism}: {error}")
                        break
                self._sleep(_RETRY_S)
        raise NoToken(f"the brokers do not accept a delegation token ({'; '.join(failures)})")


def _created(admin: TokenAdmin) -> DelegationToken:
    try:
        return admin.create_delegation_token()
    except UnsupportedByBroker as error:
        raise NoToken(str(error)) from None
    except BrokerError as error:
        if error.code not in _NO_TOKENS:
            raise
        raise NoToken(_NO_TOKENS[error.code]) from None


def _is_token(client: Mapping[str, str]) -> bool:
    """Whether the driver has logged in with a token."""
    from headrace.client.security.credentials import jaas_credentials
    from headrace.properties import ConfigError

    line, mechanism = client.get("sasl.jaas.config", ""), client.get("sasl.mechanism", "").strip().upper()
    if not line.strip() or mechanism not in _SCRAM:
        return False
    try:
        return jaas_credentials(line, mechanism).is_token
    except ConfigError:
        return False


# ------------------------------------------------------------------------------------------- what Spark plans often

#: The logins of the batches and sinks that this process plans. Spark plans each micro-batch of a sink anew.
_LOGINS: dict[tuple[frozenset[tuple[str, str]], WorkerLogin], WorkerLogins] = {}


def kept_login(client: Mapping[str, str], policy: WorkerLogin) -> dict[str, str]:
    """Returns a login for workers. Calls of the same process with the same options share one token."""
    key = (frozenset(client.items()), policy)
    if key not in _LOGINS:
        _LOGINS[key] = WorkerLogins(client, policy)
    return _LOGINS[key].login()
