"""Finds a setting by its name.

There are four kinds of known names: the names in the tables; the same names with a listener's prefix
(``listener.name.internal.ssl.keystore.location``, or with a mechanism after the listener); names that Apache Kafka has
and that have no meaning here, which are accepted and ignored, so that a ``server.properties`` of Kafka works; and names
that are refused, because ignoring them would leave something unprotected (``table_refused.py``).
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.configs import (
    table_cluster,
    table_groups,
    table_log,
    table_network,
    table_replication,
    table_security,
    table_topic,
)
from headrace.broker.configs.keys import ConfigKey
from headrace.broker.configs.listener_config import LISTENER_PREFIX
from headrace.broker.configs.refusals import refused_row

#: The subjects of a broker's settings, in the order of the docs.
SUBJECTS: Mapping[str, tuple[ConfigKey, ...]] = {
    "Network and metrics": table_network.KEYS,
    "Cluster and topics": table_cluster.KEYS,
    "Log": table_log.KEYS,
    "Replication and quotas": table_replication.KEYS,
    "Groups and transactions": table_groups.KEYS,
    "Security": table_security.KEYS,
}

BROKER_KEYS: Mapping[str, ConfigKey] = {key.name: key for keys in SUBJECTS.values() for key in keys}
TOPIC_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in table_topic.KEYS}

#: Broker settings that are the default of a topic's setting. If one of them changes, the config of any log may change.
TOPIC_DEFAULT_NAMES = frozenset(synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms)

#: Prefixes of names that Apache Kafka has and that have no meaning here, with the reason.
WITHOUT_MEANING: Mapping[str, str] = {
    "auto.include.jmx.reporter": "there is no JMX",
    "broker.heartbeat.interval.ms": "there is no KRaft quorum",
    "broker.session.timeout.ms": "there is no KRaft quorum",
    "controller.performance.": "there is no KRaft quorum",
    "controller.quorum.": "there is no KRaft quorum",
    "cordoned.log.dirs": "data folders cannot be cordoned",
    "early.start.listeners": "there is no KRaft quorum",
    "eligible.leader.replicas.enable": "there is no KRaft quorum",
    "follower.fetch.last.tiered.offset.enable": "there is no tiered storage",
    "group.consumer.regex.refresh.interval.ms": "patterns have no interval of their own",
    "group.coordinator.background.threads": "coordinators run on the event loop",
    "group.coordinator.cached.buffer.max.bytes": "coordinators do not cache buffers",
    "group.coordinator.new.enable": "there is one coordinator",
    "group.share.": "there are no share groups",
    "group.streams.": "there are no streams groups",
    "initial.broker.registration.timeout.ms": "there is no KRaft quorum",
    "internal.metadata.": "there is no KRaft quorum",
    "kafka.metrics.": "metrics are served at headrace.metrics.listener",
    "log.initial.task.delay.ms": "background tasks start with the broker",
    "log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and .after.max.ms",
    "metadata.": "there is no KRaft quorum",
    "metrics.recording.level": "all metrics are always recorded",
    "offsets.commit.required.acks": "a commit waits for all in-sync replicas",
    "process.roles": "every node is a broker, and any of them may be the controller",
    "producer.id.expiration.check.interval.ms": "the interval is fixed",
    "remote.": "there is no tiered storage",
    "sasl.login.refresh.": "a broker gets a new token after 80 % of the lifetime of its token",
    "sasl.mechanism.controller.protocol": "there is no KRaft quorum",
    "server.max.startup.time.ms": "the start has no time limit",
    "share.": "there are no share groups",
    "unclean.leader.election.interval.ms": "there is no KRaft quorum",
    "unstable.": "there are no unstable versions",
    "zookeeper.metadata.migration.": "there is no KRaft quorum",
}


def broker_key(name: str) -> ConfigKey | None:
    """Returns the row of a broker's setting, also if the name has a listener's (and mechanism's) prefix."""
    key = BROKER_KEYS.get(name)
    if key is not None or not name.startswith(LISTENER_PREFIX):
        return key
    _, _, base = name.removeprefix(LISTENER_PREFIX).partition(".")
    return BROKER_KEYS.get(base) or BROKER_KEYS.get(base.partition(".")[2])


def without_meaning(name: str) -> str | None:
    """Returns why a setting of Apache Kafka is ignored here, or None if the name is not such a setting.

    A setting that is refused with some values (``table_refused.py``) is ignored with all others.
    """
    row = refused_row(name)
    if row is not None:
        return f"this feature does not exist yet ({row.missing}), and the value does not ask for it"
    return next((reason for start, reason in WITHOUT_MEANING.items() if name.startswith(start)), None)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Returns the broker settings that a broker setting can get its value from, the strongest first."""
    if name.startswith(LISTENER_PREFIX):
        key = broker_key(name)
        return (name,) if key is None else (name, key.name)
    return _SAME_IN_OTHER_UNITS.get(name, (name,))


_SAME_IN_OTHER_UNITS: Mapping[str, tuple[str, ...]] = {
    synonym.name: tuple(other.name for other in key.synonyms)
    for key in TOPIC_KEYS.values()
    if len(key.synonyms) > 1
    for synonym in key.synonyms
}
