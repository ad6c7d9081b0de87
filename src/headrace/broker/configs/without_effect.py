"""Finds settings that are valid, and have no effect. Kafka accepts them, so a broker starts, and warns.

A user who writes ``listener.name.externl.ssl.client.auth=required`` believes that clients need a certificate. A user
who sets ``sasl.enabled.mechanisms`` and forgets ``listeners`` believes that clients log in. A user who sets a trust
store for ZooKeeper believes that the connection is encrypted. A user who names a metrics reporter expects that it gets
the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.registry import broker_key
from headrace.security.sasl.mechanism import MECHANISMS

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

_CLIENT_AUTH = "ssl.client.auth"
_REPORTERS = "metric.reporters"
#: What asks for TLS or for logins, without a listener's prefix.
_TLS_SETTINGS = (_CLIENT_AUTH, "ssl.keystore.location", "ssl.keystore.key")
_SASL_SETTINGS = ("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol")
_ZOOKEEPER_TLS, _ZOOKEEPER_TLS_SWITCH = "zookeeper.ssl.", "zookeeper.ssl.client.enable"
_MECHANISMS = frozenset(mechanism.lower() for mechanism in MECHANISMS)


def without_effect(config: BrokerConfig) -> Iterator[str]:
    """Yields one line per setting. The lines show no values."""
    prefixes = [f"{LISTENER_PREFIX}{listener.name.lower()}." for listener in config.listeners.bound]
    for name in config.static:
        key = broker_key(name)
        if key is None or not name.startswith(LISTENER_PREFIX):
            continue
        prefix = next((one for one in prefixes if name.startswith(one)), None)
        if prefix is None:
            yield f"{name} has no effect: there is no such listener (its name has to be in lower case)"
            continue
        mechanism = name.removeprefix(prefix).removesuffix(key.name).removesuffix(".")
        if mechanism and mechanism not in _MECHANISMS:
            yield f"{name} has no effect: {mechanism} is not one of {', '.join(sorted(_MECHANISMS))}"
    yield from _without_a_listener(config)
    if config.list(_REPORTERS):
        yield f"{_REPORTERS} has no effect: no class is loaded; metrics are served at headrace.metrics.listener"
    for listener in config.listeners.bound:
        has_own = config.of_listener(listener.name).name_of(_CLIENT_AUTH) != _CLIENT_AUTH
        has_both = listener.protocol.has_tls and listener.protocol.has_sasl
        if has_both and not has_own and config.str(_CLIENT_AUTH) != "none":
            yield (
                f"{_CLIENT_AUTH} has no effect on listener {listener.name}, because clients log in there by SASL: to "
                f"ask for certificates, too, set {LISTENER_PREFIX}{listener.name.lower()}.{_CLIENT_AUTH}"
            )
    if config.is_in_cluster and not config.bool(_ZOOKEEPER_TLS_SWITCH):
        names = [name for name in config.static if name.startswith(_ZOOKEEPER_TLS) and name != _ZOOKEEPER_TLS_SWITCH]
        if names:
            yield (
                f"{', '.join(sorted(names))} has no effect: the connection to ZooKeeper is not encrypted; set "
                f"{_ZOOKEEPER_TLS_SWITCH}=true"
            )


def _without_a_listener(config: BrokerConfig) -> Iterator[str]:
    """Yields a line if no listener has TLS, or no listener has logins, and settings ask for them."""
    protocols = [listener.protocol for listener in config.listeners.bound]
    for is_there, settings, feature, examples in (
        (any(one.has_tls for one in protocols), _TLS_SETTINGS, "TLS", "SSL or SASL_SSL"),
        (any(one.has_sasl for one in protocols), _SASL_SETTINGS, "logins", "SASL_SSL or SASL_PLAINTEXT"),
    ):
        names = [name for name in settings if config.static.get(name, "").strip() not in ("", "none")]
        if names and not is_there:
            verb = "have" if len(names) > 1 else "has"
            yield f"{', '.join(names)} {verb} no effect: no listener has {feature}; add {examples} to listeners"
