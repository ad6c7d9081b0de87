"""Makes the logins of a broker, if one of its listeners has SASL. Without one, no module of SASL is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.authentication.authentication import Authentication
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metrics.counters import LoginCounts
    from headrace.broker.runtime import BrokerRuntime


def make_authentication(
    config: BrokerConfig, runtime: BrokerRuntime, users: ScramUsers, counts: dict[str, LoginCounts]
) -> Authentication | None:
    if not any(listener.protocol.has_sasl for listener in config.listeners.bound):
        return None
    from headrace.broker.authentication.authentication import Authentication

    return Authentication(config, runtime, users, counts)
