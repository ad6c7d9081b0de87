"""Decides which settings of listeners may change while the broker runs (KIP-226).

Key and trust stores may change, for one listener at a time: only with the listener's prefix, and only on one broker.
So may the limits and threads of a listener. Everything else of a listener that stays is fixed until the broker starts
again. A listener that is added at run time may have all settings with its prefix.

A setting of TLS without a prefix may change if no open listener uses it. It then counts for listeners that are added
later. Kafka also stores a change that an open listener would have to follow and does not. Headrace refuses such a
change: a client would believe that it is in force. Connections to other brokers read their settings each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.registry import broker_key
from headrace.broker.configs.table_security import STORE_SETTINGS
from headrace.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.keys import Value

_RATE = "max.connection.creation.rate"
_MAY_CHANGE = STORE_SETTINGS | {"max.connections", _RATE, "num.network.threads"}
#: Settings of TLS that only connections to other brokers use.
_OF_LINKS = frozenset({"ssl.endpoint.identification.algorithm", "ssl.protocol"})


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


def refuse_no_new_connections(changed: Mapping[str, str]) -> None:
    """
    :raises InvalidRequest: if the rate of new connections would be 0, so that nobody could connect to change it again.
    """
    for name, value in changed.items():
        key = broker_key(name)
        if key is not None and key.name == _RATE and value.strip() == "0":
            raise InvalidRequest(f"Invalid value '{value}' for configuration {name}: must be at least 1")


def refuse_fixed_on_listeners(names: Iterable[str], present: BrokerConfig, future: BrokerConfig) -> None:
    """
    :raises InvalidRequest: if a setting of an existing listener would change that cannot change.
    """
    fixed = sorted(
        name for name in names if _value(present, name) != _value(future, name) and _is_fixed(name, present, future)
    )
    if fixed:
        raise InvalidRequest(
            f"Configs cannot be updated dynamically for existing listeners, restart the broker: {', '.join(fixed)}"
        )


def _value(config: BrokerConfig, name: str) -> Value:
    """Returns the value under exactly this name; None if it is not set."""
    return config[name] if name in config else None  # noqa: SIM401  a config has no get


def _is_fixed(name: str, present: BrokerConfig, future: BrokerConfig) -> bool:
    key = broker_key(name)
    if key is None or key.name in _MAY_CHANGE:
        return False
    remaining = {listener.name for listener in future.listeners.bound}
    staying = [listener for listener in present.listeners.bound if listener.name in remaining]
    if name.startswith(LISTENER_PREFIX):
        return name.startswith(tuple(f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in staying))
    if not name.startswith("ssl.") or name in _OF_LINKS:
        return False
    return any(
        listener.protocol.has_tls and present.of_listener(listener.name).name_of(name) == name for listener in staying
    )
