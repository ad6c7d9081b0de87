"""The log levels of a broker's loggers: config resource BROKER_LOGGER (KIP-412).

A level is in force at once, in this process only, and is not stored: a broker that starts again has the levels of its
start. So a broker that stops restores the levels that it has changed; another broker in the same process may go on.

A client sees these names:

* ``root``: Python's root logger. Around an embedded broker it is the application's root logger, too.
* ``headrace``, ``headrace.broker`` and so on: our own loggers, one per module and package. A module that the broker has
  not imported yet has no logger; it will have the level of its package.
* ``kafka.authorizer.logger`` and ``kafka.request.logger``: our loggers of these names.
* ``kafka``, ``org.apache.kafka`` and others: Kafka's names of loggers of ours (:data:`KAFKA_NAMES`). All names of one
  logger show the same level. These names are always there, so a script for Kafka finds them.

Loggers of other libraries, and of the application around an embedded broker, are not shown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from logging import CRITICAL, DEBUG, ERROR, INFO, NOTSET, WARNING, getLogger
from typing import TYPE_CHECKING

from headrace.broker.configs.resources import Source
from headrace.protocol.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.alter import Change
    from headrace.broker.configs.describe import Entry

logger = getLogger(__name__)

ROOT = "root"
_OURS = "headrace"
#: Loggers that have the same name in Kafka and here, and what they log.
LOGGERS_OF_KAFKA = {
    "kafka.authorizer.logger": "denied operations at INFO, allowed ones at DEBUG",
    "kafka.request.logger": "at DEBUG a line per answered request: who sent it, and its times; not the bodies",
}

#: Names of Apache Kafka's loggers, and ours that write the same. Kafka's own logging file has levels for these names.
KAFKA_NAMES = {
    "kafka": _OURS,
    "org.apache.kafka": _OURS,
    "kafka.server": "headrace.broker",
    "org.apache.kafka.server": "headrace.broker",
    "kafka.server.KafkaApis": "headrace.broker.network.dispatch",
    "kafka.server.ReplicaManager": "headrace.broker.replicas",
    "kafka.network": "headrace.broker.network",
    "kafka.log": "headrace.log",
    "org.apache.kafka.storage.internals.log": "headrace.log",
    "kafka.coordinator.group": "headrace.groups",
    "org.apache.kafka.coordinator.group": "headrace.groups",
    "kafka.coordinator.transaction": "headrace.transactions",
    "org.apache.kafka.coordinator.transaction": "headrace.transactions",
    "org.apache.kafka.clients": "headrace.client",
    "kafka.zookeeper": "headrace.coordination",
    "kafka.controller": "headrace.controller",
    "org.apache.kafka.controller": "headrace.controller",
    "kafka.log.LogCleaner": "headrace.log.compaction",
    "org.apache.kafka.storage.internals.log.LogCleaner": "headrace.log.compaction",
    "state.change.logger": "headrace.broker.replicas",
}

#: Kafka's levels. Nothing of ours is logged below DEBUG, so TRACE shows as much as DEBUG.
LEVELS = {"FATAL": CRITICAL, "ERROR": ERROR, "WARN": WARNING, "INFO": INFO, "DEBUG": DEBUG, "TRACE": 5}

_SET, _DELETE = 0, 1


def kafka_level(level: int) -> str:
    """Returns Kafka's name of a level of Python. A level between two has the name of the lower one."""
    if level > CRITICAL:
        return "OFF"
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


class Loggers:
    """The loggers of this process, as a broker shows and changes them."""

    def __init__(self) -> None:
        #: The levels of the changed loggers before the first change.
        self._before: dict[str, int] = {}

    def levels(self) -> dict[str, str]:
        """Returns every name that is shown, with the level in force."""
        ours = [name for name in tuple(logging.root.manager.loggerDict) if name.startswith(f"{_OURS}.")]
        named = {name: name for name in (_OURS, *ours, *LOGGERS_OF_KAFKA)} | KAFKA_NAMES
        levels = {name: kafka_level(_level_in_force(target)) for name, target in named.items()}
        return {ROOT: kafka_level(logging.root.level), **levels}

    def describe(self, names: Sequence[str] | None) -> list[Entry]:
        """Returns the levels as the ``configs`` of a DescribeConfigs result; with ``names``, only of these loggers."""
        return [
            {
                "name": name,
                "value": level,
                "read_only": False,
                "config_source": int(Source.BROKER_LOGGER),
                "is_sensitive": False,
                "synonyms": (),
                "config_type": 0,
                "documentation": "",
            }
            for name, level in sorted(self.levels().items())
            if names is None or name in names
        ]

    def alter(self, changes: Sequence[Change], *, validate_only: bool) -> None:
        """Sets levels, and removes levels so that a logger has the level of its parent. All changes, or none.

        :raises InvalidConfig: if there is no such logger or level.
        :raises InvalidRequest: if the operation is not possible for loggers.
        """
        _check(changes, self.levels().keys())
        if validate_only:
            return
        for name, operation, level in changes:
            changed = _logger_of(name)
            self._before.setdefault(changed.name, changed.level)
            changed.setLevel(NOTSET if operation == _DELETE else LEVELS[str(level)])
            logger.warning("the log level of %s is now %s", name, kafka_level(changed.getEffectiveLevel()))

    def restore(self) -> None:
        """Undoes all changes."""
        for name, level in self._before.items():
            getLogger(name).setLevel(level)
        self._before.clear()


def _check(changes: Sequence[Change], known: Iterable[str]) -> None:
    names = [name for name, _, _ in changes]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"The logger {name} is given twice in one request")
    for name, operation, level in changes:
        if operation not in (_SET, _DELETE):
            raise InvalidRequest(f"Operation {operation} is not allowed for the logger {name}: set or delete its level")
        if operation == _SET and level is None:
            raise InvalidRequest(f"Null value not supported for {name}")
        if name not in known:
            raise InvalidConfig(f"Logger {name} does not exist")
        if operation == _SET and level not in LEVELS:
            raise InvalidConfig(
                f"Cannot set the log level of {name} to {level}: the levels are {', '.join(sorted(LEVELS))}"
            )
        if operation == _DELETE and name == ROOT:
            raise InvalidRequest(f"The log level of the {ROOT} logger cannot be removed: it has no parent")


def _logger_of(name: str) -> logging.Logger:
    return logging.root if name == ROOT else getLogger(KAFKA_NAMES.get(name, name))


def _level_in_force(name: str) -> int:
    """Returns the level of a logger, or of its nearest parent that has one. It creates no logger."""
    loggers = logging.root.manager.loggerDict
    while name:
        found = loggers.get(name)
        if isinstance(found, logging.Logger) and found.level:
            return found.level
        name = name.rpartition(".")[0]
    return logging.root.level
