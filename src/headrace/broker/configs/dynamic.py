"""Decides which settings of a broker may change while the broker runs, and for whom (KIP-226).

The registry has the answer in its column ``update``. A setting of Apache Kafka that has no meaning here is read-only: a
change of it would promise something. A name that neither Headrace nor Apache Kafka has may be stored, as in Kafka,
which keeps such settings for plug-ins.

A request that changes a setting must be right (:func:`check_dynamic`). The znode tree may have settings that are not:
Apache Kafka or an older Headrace may have stored them. The broker does not use such a setting, and uses all others
(:func:`unusable_settings`), as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.broker.configs.keys import Update
from headrace.broker.configs.registry import broker_key, without_meaning
from headrace.broker.configs.table_security import OF_NEW_LISTENERS
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidRequest


def check_dynamic(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """
    :param per_broker: whether the settings are of one broker, and not of the whole cluster.
    :raises InvalidRequest: if a setting cannot change at run time, or not for the whole cluster at once, or if its
        value is not valid.
    """
    fixed = _names(overrides, Update.READ_ONLY)
    if fixed:
        raise InvalidRequest(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    single = () if per_broker else _names(overrides, Update.PER_BROKER)
    if single:
        raise InvalidRequest(f"Cannot update these configs for the whole cluster, name a broker: {', '.join(single)}")
    problems = [problem for name, text in overrides.items() if (problem := _value_problem(name, text)) is not None]
    if problems:
        raise InvalidRequest("; ".join(problems))


def unusable_settings(stored: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """Returns the stored settings that the broker cannot use, each with the reason."""
    unusable = {name: f"{name} is read-only" for name in _names(stored, Update.READ_ONLY)}
    if not per_broker:
        single = _names(stored, Update.PER_BROKER)
        unusable |= {name: f"{name} can only be set on one broker" for name in single}
    for name, text in stored.items():
        problem = None if name in unusable else _value_problem(name, text)
        if problem is not None:
            unusable[name] = problem
    return unusable


def update_mode(name: str) -> Update | None:
    """Returns how a setting may change, also if the name has a listener's prefix; None for a name that nobody knows."""
    key = broker_key(name)
    if key is not None:
        is_of_new_listener = name != key.name and key.name in OF_NEW_LISTENERS
        return Update.PER_BROKER if is_of_new_listener else key.update
    return None if without_meaning(name) is None else Update.READ_ONLY


def _names(names: Iterable[str], update: Update) -> list[str]:
    return sorted(name for name in names if update_mode(name) is update)


def _value_problem(name: str, text: str) -> str | None:
    key = broker_key(name)
    if key is not None:
        try:
            key.parse(text)
        except ConfigError as error:
            return str(error)
    return None
