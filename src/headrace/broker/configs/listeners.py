"""Parses the listeners: ``listeners``, ``advertised.listeners``, the protocol map and the listener between brokers.

A listener has a name, and ``listener.security.protocol.map`` gives the name a security protocol. Names are compared in
upper case. Listeners of KRaft controllers (``controller.listener.names``) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from re import compile as regex
from typing import NamedTuple

from headrace.broker.configs.keys import Value
from headrace.properties import ConfigError

_ENDPOINT = regex(r"([^:/\s]+)://(?:\[([0-9a-fA-F:.%]*)\]|([0-9a-zA-Z\-._]*)):([0-9]{1,5})")


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_sasl(self) -> bool:
        return self.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.endswith("SSL")


class ListenerAddress(NamedTuple):
    """The address of a listener. An empty host is every interface, port 0 any free port. IPv6 has no brackets."""

    name: str
    host: str
    port: int
    protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(NamedTuple):
    bound: tuple[ListenerAddress, ...]
    #: The addresses that clients use. The broker replaces an empty host or port 0 after it has bound the socket.
    advertised: tuple[ListenerAddress, ...]
    inter_broker: str

    def protocol_of(self, name: str) -> SecurityProtocol:
        """Returns the protocol of a listener that the broker has bound."""
        return next(listener.protocol for listener in self.bound if listener.name == name)


def parse_listeners(values: Mapping[str, Value], given: frozenset[str]) -> Listeners:
    """Returns the listeners that the values describe.

    :param given: the names of the settings that are set.
    :raises ConfigError: if a listener is not valid.
    """
    protocols = _protocol_map(_text(values, "listener.security.protocol.map"))
    controllers = {name.upper() for name in _items(values, "controller.listener.names")}
    bound = _parse("listeners", _items(values, "listeners"), protocols, controllers)
    ports = [listener.port for listener in bound if listener.port != 0]
    hosts = {(listener.host, listener.port) for listener in bound if listener.port != 0}
    if len(hosts) < len(ports):
        raise ConfigError("Invalid value for configuration listeners: each listener must have its own port")
    advertised_items = _items(values, "advertised.listeners")
    advertised = _parse("advertised.listeners", advertised_items, protocols, controllers) if advertised_items else bound
    _check_advertised(bound, advertised)
    return Listeners(bound, advertised, _inter_broker(values, given, advertised))


def _text(values: Mapping[str, Value], name: str) -> str:
    value = values[name]
    assert isinstance(value, str)
    return value


def _items(values: Mapping[str, Value], name: str) -> Sequence[str]:
    value = values[name]
    assert value is None or isinstance(value, tuple)
    return value or ()


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for pair in filter(None, (item.strip() for item in text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not name or not colon or protocol not in SecurityProtocol.__members__:
            raise ConfigError(
                f"Invalid value {pair!r} for configuration listener.security.protocol.map: "
                f"must be NAME:PROTOCOL with a protocol of {', '.join(SecurityProtocol)}"
            )
        protocols[name] = SecurityProtocol(protocol)
    return protocols


def _parse(
    config: str, items: Sequence[str], protocols: Mapping[str, SecurityProtocol], controllers: set[str]
) -> tuple[ListenerAddress, ...]:
    listeners: dict[str, ListenerAddress] = {}
    for item in items:
        match = _ENDPOINT.fullmatch(item)
        if match is None or int(match[4]) > 65535:
            raise ConfigError(f"Invalid value {item!r} for configuration {config}: must be NAME://HOST:PORT")
        name = match[1].upper()
        if name in controllers:
            continue
        if name not in protocols:
            raise ConfigError(
                f"Invalid value {item!r} for configuration {config}: "
                f"listener.security.protocol.map has no protocol for {name}"
            )
        if name in listeners:
            raise ConfigError(f"Invalid value {item!r} for configuration {config}: {name} appears twice")
        listeners[name] = ListenerAddress(name, match[2] or match[3] or "", int(match[4]), protocols[name])
    if not listeners:
        raise ConfigError(
            f"Invalid value {','.join(items)!r} for configuration {config}: must have at least one listener"
        )
    return tuple(listeners.values())


def _check_advertised(bound: Sequence[ListenerAddress], advertised: Sequence[ListenerAddress]) -> None:
    names = {listener.name for listener in bound}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigError(
                f"Invalid value '{listener}' for configuration advertised.listeners: listeners has no {listener.name}"
            )
        if advertised is not bound and listener.host in ("0.0.0.0", "::"):
            raise ConfigError(
                f"Invalid value '{listener}' for configuration advertised.listeners: "
                f"must be an address that a client can connect to"
            )


def _inter_broker(values: Mapping[str, Value], given: frozenset[str], advertised: Sequence[ListenerAddress]) -> str:
    name = values["inter.broker.listener.name"]
    if name is not None and "security.inter.broker.protocol" in given:
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol may be set")
    config = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
    listener = str(values[config]).upper()
    if listener not in {one.name for one in advertised}:
        raise ConfigError(f"Invalid value {listener!r} for configuration {config}: must be the name of a listener")
    return listener
