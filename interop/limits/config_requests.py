"""Settings and levels of loggers that change while a broker runs: what a broker accepts and refuses."""

from __future__ import annotations

from collections.abc import Sequence

from acls.session import until

from .clients import BROKER, BROKER_LOGGER, GROUP, Client
from .telemetry_requests import Steps

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_ID = "1"
#: Topics, brokers, loggers of brokers, subscriptions, groups.
_KINDS = 5
_LOGGER = "root"
#: A setting or logger, an operation, a value.
Change = tuple[str, int, str | None]

_LOGGERS: dict[str, tuple[str, Sequence[Change]]] = {
    "a level": (_ID, [(_LOGGER, _SET, "DEBUG")]),
    "every level": (_ID, [(_LOGGER, _SET, "TRACE")]),
    "fatal": (_ID, [(_LOGGER, _SET, "FATAL")]),
    "off": (_ID, [(_LOGGER, _SET, "OFF")]),
    "in lower case": (_ID, [(_LOGGER, _SET, "debug")]),
    "no level": (_ID, [(_LOGGER, _SET, "LOUD")]),
    "an empty level": (_ID, [(_LOGGER, _SET, "")]),
    "null": (_ID, [(_LOGGER, _SET, None)]),
    "an unknown logger": (_ID, [("no.such.logger", _SET, "DEBUG")]),
    "an empty logger": (_ID, [("", _SET, "DEBUG")]),
    "an unknown logger and a known one": (_ID, [(_LOGGER, _SET, "WARN"), ("no.such.logger", _SET, "DEBUG")]),
    "removing a level": (_ID, [(_LOGGER, _DELETE, None)]),
    "removing that of an unknown logger": (_ID, [("no.such.logger", _DELETE, None)]),
    "appending": (_ID, [(_LOGGER, _APPEND, "DEBUG")]),
    "subtracting": (_ID, [(_LOGGER, _SUBTRACT, "DEBUG")]),
    "a logger twice": (_ID, [(_LOGGER, _SET, "DEBUG"), (_LOGGER, _SET, "INFO")]),
    "another broker": ("7", [(_LOGGER, _SET, "DEBUG")]),
    "no broker": ("", [(_LOGGER, _SET, "DEBUG")]),
    "no number": ("one", [(_LOGGER, _SET, "DEBUG")]),
    "nothing": (_ID, []),
}


def logger_levels(address: str) -> Steps:
    with Client(address, "loggers") as client:
        for name, (resource, changes) in _LOGGERS.items():
            yield name, client.alter_configs(BROKER_LOGGER, resource, changes)
            yield f"{name}, only checked", client.alter_configs(BROKER_LOGGER, resource, changes, validate_only=True)
        for resource in (_ID, "7", "", "one"):
            yield f"described at {resource!r}", client.describe_configs(BROKER_LOGGER, resource, [_LOGGER])
        yield "an unknown logger described", client.describe_configs(BROKER_LOGGER, _ID, ["no.such.logger"])
        yield "all settings of loggers at once", client.replace_configs(BROKER_LOGGER, _ID, {_LOGGER: "INFO"})
        client.alter_configs(BROKER_LOGGER, _ID, [(_LOGGER, _SET, "WARN")])


#: Refused on one broker and for all brokers, or on one of the two.
_SETTINGS: dict[str, Sequence[Change]] = {
    "twice as many threads": [("num.io.threads", _SET, "16")],
    "too many threads": [("num.io.threads", _SET, "33")],
    "too few threads": [("num.io.threads", _SET, "1")],
    "no threads": [("num.io.threads", _SET, "0")],
    "no number": [("num.io.threads", _SET, "many")],
    "a fraction": [("num.io.threads", _SET, "8.5")],
    "an empty number": [("num.io.threads", _SET, "")],
    "null": [("num.io.threads", _SET, None)],
    "a read-only setting": [("num.partitions", _SET, "3")],
    "another read-only setting": [("log.dirs", _SET, "/tmp/other")],
    "removing a read-only setting": [("num.partitions", _DELETE, None)],
    "an unknown setting": [("no.such.setting", _SET, "1")],
    "an empty name": [("", _SET, "1")],
    "a setting twice": [("num.io.threads", _SET, "8"), ("num.io.threads", _SET, "9")],
    "a good and a bad setting": [("background.threads", _SET, "11"), ("num.io.threads", _SET, "x")],
    "removing what is not there": [("num.replica.fetchers", _DELETE, None)],
    "appending to a number": [("num.io.threads", _APPEND, "8")],
    "appending to a list": [("log.cleanup.policy", _APPEND, "compact")],
    "subtracting from a list": [("log.cleanup.policy", _SUBTRACT, "compact")],
    "an unknown operation": [("num.io.threads", 9, "8")],
    "no cleanup policy": [("log.cleanup.policy", _SET, "burn")],
    "no compression": [("compression.type", _SET, "brotli")],
    "a negative size": [("message.max.bytes", _SET, "-1")],
    "a size of nothing": [("message.max.bytes", _SET, "0")],
    "no replicas": [("min.insync.replicas", _SET, "0")],
    "retention of nothing": [("log.retention.ms", _SET, "0")],
    "retention without an end": [("log.retention.ms", _SET, "-1")],
    "retention of less than nothing": [("log.retention.ms", _SET, "-2")],
    "a ratio above one": [("log.cleaner.min.cleanable.ratio", _SET, "1.5")],
    "a small buffer": [("log.cleaner.dedupe.buffer.size", _SET, "1000")],
    "no boolean": [("unclean.leader.election.enable", _SET, "maybe")],
    "connections of less than nothing": [("max.connections", _SET, "-1")],
    "no connections": [("max.connections.per.ip", _SET, "0")],
    "overrides": [("max.connections.per.ip.overrides", _SET, "127.0.0.9:5")],
    "overrides without a number": [("max.connections.per.ip.overrides", _SET, "127.0.0.9")],
    "no rate": [("max.connection.creation.rate", _SET, "0")],
    "a throttle": [("leader.replication.throttled.rate", _SET, "1000000000")],
    "a throttle of less than nothing": [("leader.replication.throttled.rate", _SET, "-1")],
    "a listener's setting": [("listener.name.plaintext.max.connections", _SET, "1000")],
    "a setting of no listener": [("listener.name.moon.max.connections", _SET, "1000")],
    "listeners without a port": [("listeners", _SET, "PLAINTEXT")],
    "a password": [("ssl.keystore.password", _SET, "secret")],
    "a key store that is not there": [("listener.name.plaintext.ssl.keystore.location", _SET, "/no/such.jks")],
    "nothing": [],
}


def broker_settings(address: str) -> Steps:
    with Client(address, "settings") as client:
        for resource, where in ((_ID, "one broker"), ("", "all brokers")):
            for name, changes in _SETTINGS.items():
                yield f"{name}, {where}", client.alter_configs(BROKER, resource, changes)
                client.alter_configs(
                    BROKER, resource, [(name, _DELETE, None) for name in {one[0] for one in changes} if name]
                )
        for resource in ("7", "-1", "one", " 1"):
            yield f"at the broker {resource!r}", client.alter_configs(BROKER, resource, [("num.io.threads", _SET, "8")])
            yield f"described at {resource!r}", client.describe_configs(BROKER, resource, ["num.io.threads"])


def listed_resources(address: str) -> Steps:
    """ListConfigResources. Of the topics, groups and subscriptions only those of the sequence are shown."""
    with Client(address, "lists") as client:
        assert client.create_topic("listed", 1).startswith("none")
        assert client.alter_subscription("listed", interval_ms="1000") == "none"
        assert client.alter_configs(GROUP, "listed", [("consumer.session.timeout.ms", _SET, "50000")]) == "none"
        until(lambda: len(client.list_resources([])) >= _KINDS, "the broker knows all resources")
        yield "v0", client.list_resources(None)
        for kinds in ([], [2], [4], [8], [16], [32], [2, 4], [16, 16], [0], [1], [7], [64], [2, 64], [-1]):
            yield f"kinds {kinds}", client.list_resources(kinds)
        client.alter_subscription("listed", interval_ms=None)
        client.alter_configs(GROUP, "listed", [("consumer.session.timeout.ms", _DELETE, None)])
        client.delete_topic("listed")


REQUEST_SEQUENCES = {
    "logger levels": logger_levels,
    "broker settings": broker_settings,
    "listed resources": listed_resources,
}
