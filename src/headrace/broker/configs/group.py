"""The settings of a single group of the consumer protocol (KIP-848): heartbeat interval, session timeout, assignments.

The broker setting with the prefix ``group.`` is the default of a group's setting. Two more broker settings give the
minimum and the maximum of the group's own value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.keys import CLUSTER_WIDE, INT, MEDIUM, ConfigKey, Synonym
from headrace.broker.configs.table_groups import KEYS
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidConfig

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_PREFIX = "group."
_DEFAULTS = {
    key.name: key
    for key in KEYS
    if key.name.removeprefix(_PREFIX) in (_SESSION, _HEARTBEAT, "consumer.assignment.interval.ms")
}

GROUP_KEYS: Mapping[str, ConfigKey] = {
    name.removeprefix(_PREFIX): ConfigKey(
        name.removeprefix(_PREFIX), INT, key.default, key.check, MEDIUM, CLUSTER_WIDE, key.doc, (Synonym(name),)
    )
    for name, key in _DEFAULTS.items()
}


def effective_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, int]:
    """Returns every setting of a group with its typed value.

    :raises InvalidConfig: if a setting is unknown, or its value is not valid.
    """
    values = {name: broker.int(_PREFIX + name) for name in GROUP_KEYS}
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        try:
            value = key.parse(text)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        assert isinstance(value, int)
        values[name] = value
    return values


def validate_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """
    :raises InvalidConfig: if the group may not have these settings.
    """
    values = effective_group_config(overrides, broker)
    for name in overrides:
        least, most = (name.replace("consumer.", f"group.consumer.{bound}.") for bound in ("min", "max"))
        if values[name] < broker.int(least):
            raise InvalidConfig(f"{name} must be greater than or equal to {least}, which is {broker.int(least)}")
        if values[name] > broker.int(most):
            raise InvalidConfig(f"{name} must be less than or equal to {most}, which is {broker.int(most)}")
    if values[_SESSION] <= values[_HEARTBEAT]:
        raise InvalidConfig(f"{_SESSION} must be greater than {_HEARTBEAT}")
