"""Client quotas: what a broker accepts, refuses, stores and finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from acls.session import until

from .clients import Client, Component, Entity
from .telemetry_requests import Steps

_PRODUCE, _REQUESTS, _CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"
_USER: Entity = (("user", "scene"),)
_EXACT, _DEFAULT, _ANY = range(3)

Change = tuple[Entity, Mapping[str, float | None]]
#: One request each. The sequence's user has a quota before, and must have the same quota after a refused change.
_CHANGES: dict[str, tuple[Change, ...]] = {
    "negative": ((_USER, {_PRODUCE: -1}),),
    "zero": ((_USER, {_PRODUCE: -0.0}),),
    "NaN": ((_USER, {_PRODUCE: math.nan}),),
    "NaN per cent": ((_USER, {_REQUESTS: math.nan}),),
    "infinity": ((_USER, {_PRODUCE: math.inf}),),
    "infinity per cent": ((_USER, {_REQUESTS: math.inf}),),
    "minus infinity": ((_USER, {_REQUESTS: -math.inf}),),
    "half a byte": ((_USER, {_PRODUCE: 0.5}),),
    "a fraction of a byte": ((_USER, {_PRODUCE: 1000.5}),),
    "hardly anything": ((_USER, {_PRODUCE: 1e-9}),),
    "hardly a fraction": ((_USER, {_PRODUCE: 1000 + 1e-8}),),
    "more than a long": ((_USER, {_PRODUCE: 1e19}),),
    "connections, more than an int": (((("ip", "127.0.0.9"),), {_CONNECTIONS: 3e9}),),
    "connections, a fraction": (((("ip", "127.0.0.9"),), {_CONNECTIONS: 1.5}),),
    "unknown key": ((_USER, {"bytes_on_mondays": 1}),),
    "empty key": ((_USER, {"": 1}),),
    "removing an unknown key": ((_USER, {"bytes_on_mondays": None}),),
    "removing what is not there": ((_USER, {_REQUESTS: None}),),
    "a key of ips for a user": ((_USER, {_CONNECTIONS: 1}),),
    "a key of users for an ip": (((("ip", "127.0.0.9"),), {_PRODUCE: 1}),),
    "a good and a bad key": ((_USER, {_PRODUCE: 2000, "bytes_on_mondays": 1}),),
    "no change": ((_USER, {}),),
    "unknown type": (((("planet", "earth"),), {_PRODUCE: 1}),),
    "empty type": (((("", "earth"),), {_PRODUCE: 1}),),
    "a type twice": (((("user", "scene"), ("user", "other")), {_PRODUCE: 1}),),
    "no entity": (((), {_PRODUCE: 1}),),
    "empty user": (((("user", ""),), {_PRODUCE: 1}),),
    "empty client id": (((("client-id", ""),), {_PRODUCE: 1}),),
    "empty ip": (((("ip", ""),), {_CONNECTIONS: 1}),),
    "an ip and a user": (((("ip", "127.0.0.9"), ("user", "scene")), {_PRODUCE: 1}),),
    "an ip and a client id": (((("ip", "127.0.0.9"), ("client-id", "scene")), {_CONNECTIONS: 1}),),
    "an ip without an address": (((("ip", "no.such.host.invalid"),), {_CONNECTIONS: 1}),),
    "an ip that cannot be": (((("ip", "300.300.300.300"),), {_CONNECTIONS: 1}),),
    "removing from an ip without an address": (((("ip", "no.such.host.invalid"),), {_CONNECTIONS: None}),),
    "a bad and a good entity": ((_USER, {_PRODUCE: -1}), ((("user", "good"),), {_PRODUCE: 3000})),
    "an unknown type and a good entity": (((("planet", "x"),), {_PRODUCE: 1}), ((("user", "good"),), {_PRODUCE: 4000})),
}


def _wait_for(client: Client, entity: Entity, limit: float) -> None:
    """Makes a good change, and waits until the broker shows it: earlier changes are in force then."""
    assert [each.rpartition(": ")[2] for each in client.alter_quotas((entity, {_PRODUCE: limit}))] == ["none"]
    until(lambda: str(client.quotas()).count(f"={limit:g}") > 0, "the quota is in force")


def changes(address: str) -> Steps:
    """Each change, its error, and the quotas that the broker has afterwards."""
    with Client(address, "quotas") as client:
        for number, (name, change) in enumerate(_CHANGES.items()):
            _wait_for(client, _USER, 1000)
            yield name, client.alter_quotas(*change)
            _wait_for(client, (("user", "marker"),), 70_000 + number)
            yield f"{name}, then", [each for each in client.quotas() if "marker" not in each]
            _remove_all(client)


def validated(address: str) -> Steps:
    """The same changes, which are only checked."""
    with Client(address, "quotas") as client:
        _wait_for(client, _USER, 1000)
        for name, change in _CHANGES.items():
            yield name, client.alter_quotas(*change, validate_only=True)
        _wait_for(client, (("user", "marker"),), 70_000)
        yield "then", [each for each in client.quotas() if "marker" not in each]
        _remove_all(client)


_ALL: tuple[Entity, ...] = (
    (("user", "scene"),),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
    (("user", "scene"), ("client-id", "app")),
    (("user", "scene"), ("client-id", None)),
    (("user", None), ("client-id", "app")),
    (("user", None), ("client-id", None)),
)
_FILTERS: dict[str, tuple[Component, ...]] = {
    "all": (),
    "a user": (("user", _EXACT, "scene"),),
    "another user": (("user", _EXACT, "other"),),
    "an empty user": (("user", _EXACT, ""),),
    "the default user": (("user", _DEFAULT, None),),
    "any user": (("user", _ANY, None),),
    "a client id": (("client-id", _EXACT, "app"),),
    "any client id": (("client-id", _ANY, None),),
    "a user and a client id": (("user", _EXACT, "scene"), ("client-id", _EXACT, "app")),
    "a user and any client id": (("user", _EXACT, "scene"), ("client-id", _ANY, None)),
    "any user and the default client id": (("user", _ANY, None), ("client-id", _DEFAULT, None)),
    "an ip": (("ip", _EXACT, "127.0.0.9"),),
    "any ip": (("ip", _ANY, None),),
    "the default ip": (("ip", _DEFAULT, None),),
    "an ip and a user": (("ip", _ANY, None), ("user", _ANY, None)),
    "a user twice": (("user", _ANY, None), ("user", _EXACT, "scene")),
    "an unknown type": (("planet", _ANY, None),),
    "an empty type": (("", _ANY, None),),
    "an unknown match": (("user", 3, None),),
    "a negative match": (("user", -1, None),),
    "exact without a name": (("user", _EXACT, None),),
    "default with a name": (("user", _DEFAULT, "scene"),),
    "any with a name": (("user", _ANY, "scene"),),
}


def filters(address: str) -> Steps:
    with Client(address, "quotas") as client:
        for number, entity in enumerate(_ALL):
            _wait_for(client, entity, 1e12 + number)
        for name, ip in (("127.0.0.9", "127.0.0.9"), ("the default", None)):
            assert client.alter_quotas(((("ip", ip),), {_CONNECTIONS: 1e6})), name
        _wait_for(client, (("user", "marker"),), 70_000)
        for version in (0, 1):
            for is_strict in (False, True):
                for name, components in _FILTERS.items():
                    found = client.quotas(*components, is_strict=is_strict, version=version)
                    yield f"{name}, v{version}{', strict' if is_strict else ''}", found
        _remove_all(client)


def mutations(address: str) -> Steps:
    """Topics that are created and deleted above ``controller_mutation_rate`` (KIP-599).

    A throttled connection is muted, so each request has a connection of its own.
    """

    def ask(step: str, work: Callable[[Client], str]) -> tuple[str, str]:
        with Client(address, "mutations") as client:
            return step, work(client)

    with Client(address, "quotas") as operator:
        operator.alter_quotas(((("client-id", "mutations"),), {"controller_mutation_rate": 1.0}))
        _wait_for(operator, (("user", "marker"),), 70_000)
        yield ask("a burst of 30 partitions", lambda client: client.create_topic("burst", 30))
        yield ask("another topic", lambda client: client.create_topic("refused", 1))
        yield ask("another topic, only checked", lambda client: client.create_topic("checked", 1, validate_only=True))
        yield ask("another topic, v5", lambda client: client.create_topic("old", 1, version=5))
        yield ask("a topic that exists", lambda client: client.create_topic("burst", 1))
        yield ask("a topic with a bad name", lambda client: client.create_topic("a/b", 1))
        yield ask("more partitions", lambda client: client.create_partitions("burst", 31))
        yield ask("more partitions, v2", lambda client: client.create_partitions("burst", 31, version=2))
        yield ask("fewer partitions", lambda client: client.create_partitions("burst", 3))
        yield ask("a deletion", lambda client: client.delete_topic("burst"))
        yield ask("a deletion, v4", lambda client: client.delete_topic("burst", version=4))
        yield ask("a deletion of what is not there", lambda client: client.delete_topic("nowhere"))
        _remove_all(operator)
        for topic in ("old", "refused", "burst"):
            operator.delete_topic(topic)


def _remove_all(client: Client) -> None:
    found = client.ask_quotas()
    for entity, keys in found:
        client.alter_quotas((entity, dict.fromkeys(keys)))
    until(lambda: not client.ask_quotas(), "no quota is left")


REQUEST_SEQUENCES = {
    "changed quotas": changes,
    "validated quotas": validated,
    "filtered quotas": filters,
    "controller mutations": mutations,
}
