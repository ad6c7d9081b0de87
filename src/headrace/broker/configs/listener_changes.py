"""Decides which settings of listeners may change while the broker runs (KIP-226).

Key and trust stores may change, for one listener at a time: only with the listener's prefix, and only on one broker.
So may the limits and threads of a listener. Everything else of an existing listener is fixed until the broker starts
again. Kafka stores some changes of the other settings, and uses them for listeners that are added later, or after the
next start. Headrace refuses such a change: a client would believe that it is in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.registry import broker_key
from headrace.broker.configs.table_security import STORE_SETTINGS
from headrace.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.keys import Value

_MAY_CHANGE = STORE_SETTINGS | {"max.connections", "max.connection.creation.rate", "num.network.threads"}


def refuse_without_prefix(names: Iterable[str]) -> None:
    """
    :raises InvalidRequest: if a setting of a store has no listener's prefix.
    """
    bare = sorted(STORE_SETTINGS.intersection(names))
    if bare:
        raise InvalidRequest(
            f"These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{', '.join(bare)}"
        )


def refuse_fixed_on_listeners(names: Iterable[str], present: BrokerConfig, future: BrokerConfig) -> None:
    """
    :raises InvalidRequest: if a setting of an existing listener would change that cannot change.
    """
    fixed = sorted(name for name in names if _is_fixed(name, present) and _value(present, name) != _value(future, name))
    if fixed:
        raise InvalidRequest(
            f"Configs cannot be updated dynamically for existing listeners, restart the broker: {', '.join(fixed)}"
        )


def _value(config: BrokerConfig, name: str) -> Value:
    """Returns the value under exactly this name; None if it is not set."""
    return config[name] if name in config else None  # noqa: SIM401  a config has no get


def _is_fixed(name: str, config: BrokerConfig) -> bool:
    key = broker_key(name)
    if key is None or key.name in _MAY_CHANGE:
        return False
    if not name.startswith(LISTENER_PREFIX):
        return name.startswith("ssl.")
    prefixes = tuple(f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in config.listeners.bound)
    return name.startswith(prefixes)
