"""Makes the logins of a broker when its first listener with SASL is opened. Until then nothing of SASL is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.authentication.authentication import Authentication, FindToken
    from headrace.broker.authentication.login import Login
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metrics.counters import LoginCounts
    from headrace.broker.runtime import BrokerRuntime
    from headrace.coordination.interface import Coordination


class Logins:
    def __init__(
        self, config: BrokerConfig, runtime: BrokerRuntime, users: ScramUsers, counts: dict[str, LoginCounts]
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._users = users
        self._counts = counts
        self._authentication: Authentication | None = None

    async def load(self, coordination: Coordination, find_token: FindToken) -> None:
        """Prepares logins on the listeners of the present settings.

        :raises StartError: if nobody could log in on a listener.
        """
        if not any(listener.protocol.has_sasl for listener in self._config.listeners.bound):
            return
        if self._authentication is None:
            from headrace.broker.authentication.authentication import Authentication

            self._authentication = Authentication(self._config, self._runtime, self._users, self._counts)
        await self._authentication.load(coordination, find_token)

    def login_on(self, listener: str) -> Login:
        """Makes the login of a new connection. :meth:`load` was called before."""
        assert self._authentication is not None, "nobody would have to log in"
        return self._authentication.login_on(listener)
