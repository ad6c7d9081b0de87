"""The logins of a broker: which mechanisms each listener has, and whom they let in.

``configs/sasl_rules.py`` checks the settings of a listener before a broker starts, and before a change is accepted. A
change is in force for the next login.

=================  ==========================================================================================
PLAIN              users and passwords of the listener's JAAS line (``user_NAME="password"``)
SCRAM              users of the znode tree (``scram_users.py``), and delegation tokens
OAUTHBEARER        users of an OpenID provider, whose keys sign their tokens (``oauth.py``)
=================  ==========================================================================================
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.authentication.login import Login, LoginRules
from headrace.broker.configs.sasl_rules import enabled_mechanisms, jaas_entry
from headrace.broker.metrics.counters import LoginCounts
from headrace.coordination import retried_changes
from headrace.coordination.interface import NodeExistsError, NoNodeError
from headrace.coordination.paths import SASL_SECRET
from headrace.security.sasl.mechanism import OAUTHBEARER, PLAIN, ServerMechanism
from headrace.security.sasl.plain import PlainServer, PlainUsers
from headrace.security.sasl.scram import HASHES
from headrace.security.sasl.scram_server import Decoys, ScramAccount, ScramServer

if TYPE_CHECKING:
    from headrace.broker.authentication.oauth import TokenValidation
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.listener_config import ListenerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.coordination.interface import Coordination
    from headrace.security.sasl.scram import ScramCredential

_SECRET_BYTES = 32

#: Finds the account of a delegation token by a mechanism and the token's id.
FindToken = Callable[[str, str], ScramAccount | None]


def _no_tokens(_mechanism: str, _token_id: str) -> None:
    return None


class Accounts:
    """Finds users and delegation tokens for SCRAM."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users
        self.find_token: FindToken = _no_tokens

    def __call__(self, mechanism: str, name: str, *, is_token: bool) -> ScramAccount | None:
        return self.find_token(mechanism, name) if is_token else self._users.account_of(mechanism, name)


class Authentication:
    """Makes the login of each connection of a listener with SASL."""

    def __init__(
        self, config: BrokerConfig, runtime: BrokerRuntime, users: ScramUsers, counts: dict[str, LoginCounts]
    ) -> None:
        """
        :param counts: the counts of each listener, for the metrics.
        """
        self.accounts = Accounts(users)
        self._config = config
        self._runtime = runtime
        self._users = users
        self._counts = counts
        self._decoys = Decoys(secrets.token_bytes(_SECRET_BYTES), users.shapes_of)
        self._rules: dict[str, LoginRules] = {}
        self._plain_users: dict[str, PlainUsers] = {}
        self._validations: dict[str, TokenValidation] = {}
        config.on_any_change(self._forget)

    async def load(self, coordination: Coordination, find_token: FindToken) -> None:
        """Reads the secret of the cluster's decoys, which the first broker with SCRAM makes, and files with keys.

        :raises StartError: if a file has no keys.
        """
        self.accounts.find_token = find_token
        enabled = {
            listener.name: enabled_mechanisms(self._config.of_listener(listener.name))
            for listener in self._config.listeners.bound
            if listener.protocol.has_sasl
        }
        for listener, mechanisms in enabled.items():
            if OAUTHBEARER in mechanisms:
                self._token_validation(listener).prepare()
        if any(HASHES.keys() & set(mechanisms) for mechanisms in enabled.values()):
            self._decoys = Decoys(await _secret_of(coordination), self._users.shapes_of)

    def login_on(self, listener: str) -> Login:
        """Makes the login of a new connection."""
        rules = self._rules.get(listener)
        if rules is None:
            rules = self._rules[listener] = self._rules_of(listener)
        return Login(rules)

    def _rules_of(self, listener: str) -> LoginRules:
        config, settings = self._config, self._config.of_listener(listener)
        return LoginRules(
            clock=self._runtime.clock,
            run_blocking=self._runtime.run_blocking,
            mechanisms=lambda: enabled_mechanisms(settings),
            start_mechanism=lambda mechanism: self._start_mechanism(listener, mechanism),
            max_reauth_ms=lambda mechanism: config.of_listener(listener, mechanism).int("connections.max.reauth.ms"),
            counts=self._counts.setdefault(listener, LoginCounts()),
            delay_failure=lambda: self._delay(settings),
            max_login_bytes=lambda: settings.int("sasl.server.max.receive.size"),
            max_request_bytes=lambda: config.int("socket.request.max.bytes"),
        )

    def _start_mechanism(self, listener: str, mechanism: str) -> ServerMechanism:
        if mechanism in HASHES:
            return ScramServer(mechanism, self.accounts, self._decoy_for)
        if mechanism == OAUTHBEARER:
            return self._token_validation(listener).start()
        assert mechanism == PLAIN, "sasl_rules.py refuses other mechanisms"
        users = self._plain_users.get(listener)
        if users is None:
            entry = jaas_entry(self._config.of_listener(listener, mechanism), mechanism)
            users = self._plain_users[listener] = PlainUsers(entry.users if entry is not None else {})
        return PlainServer(users)

    def _decoy_for(self, mechanism: str, name: str, *, is_token: bool) -> ScramCredential:
        return self._decoys(mechanism, name, is_token=is_token)

    def _token_validation(self, listener: str) -> TokenValidation:
        validation = self._validations.get(listener)
        if validation is None:
            from headrace.broker.authentication.oauth import token_validation  # few brokers have OAUTHBEARER

            settings = self._config.of_listener(listener, OAUTHBEARER)
            validation = self._validations[listener] = token_validation(settings, self._runtime.clock)
        return validation

    async def _delay(self, settings: ListenerConfig) -> None:
        delay_ms = settings.int("connection.failed.authentication.delay.ms")
        if delay_ms > 0:
            done = self._runtime.loop.create_future()
            self._runtime.timer.schedule(delay_ms, lambda: None if done.done() else done.set_result(None))
            await done

    def _forget(self, names: frozenset[str]) -> None:
        if any("sasl." in name for name in names):
            self._plain_users.clear()
            self._validations.clear()


async def _secret_of(coordination: Coordination) -> bytes:
    while True:
        try:
            secret, _ = await coordination.get(SASL_SECRET)
        except NoNodeError:
            secret = secrets.token_bytes(_SECRET_BYTES)
            try:
                await retried_changes.create_persistent(coordination, SASL_SECRET, secret, make_parents=True)
            except NodeExistsError:
                continue
        return secret
