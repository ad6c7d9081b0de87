"""AlterConfigs and IncrementalAlterConfigs: pure functions from the stored settings to the new stored settings.

A change is a triple (name, operation, value) with the operation's number in the protocol. If all changes of a resource
are valid, then the functions return the new settings. Otherwise they raise one exception, and nothing changes. For
topics and groups the exception is InvalidConfig. For brokers it is InvalidRequest, also for a wrong value, as in Kafka
(KAFKA-13609); a broker setting that asks for something that Headrace does not do (``table_refused.py``) is
InvalidConfig, and so is an operation on a list for a setting that is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from headrace.broker.configs.dynamic import check_dynamic
from headrace.broker.configs.ip_overrides import IP_OVERRIDES, resolved_overrides
from headrace.broker.configs.keys import ConfigKey, ConfigType, to_text
from headrace.broker.configs.listener_changes import (
    refuse_fixed_on_listeners,
    refuse_no_new_connections,
    refuse_without_prefix,
)
from headrace.broker.configs.refusals import refusal_line, refused_changes
from headrace.broker.configs.registry import broker_key
from headrace.broker.configs.thread_counts import check_thread_counts
from headrace.properties import ConfigError
from headrace.protocol.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.resources import ResourceKind

Change = tuple[str, int, str | None]


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def replace_resource(
    kind: ResourceKind, values: Sequence[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """AlterConfigs of a topic or a group: the given settings replace all settings of the resource."""
    replaced = _replaced(values)
    kind.validate(replaced, broker)
    return replaced


def alter_resource(
    kind: ResourceKind, overrides: Mapping[str, str], changes: Sequence[Change], broker: BrokerConfig
) -> dict[str, str]:
    """IncrementalAlterConfigs of a topic or a group."""
    changed = _changed(overrides, changes, kind.keys.get)
    kind.validate(changed, broker)
    return changed


def replace_broker(
    values: Sequence[tuple[str, str | None]], broker: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """AlterConfigs of a broker (``per_broker``) or of the cluster-wide default."""
    replaced = _replaced(values)
    _check_broker(replaced, list(replaced), broker, per_broker)
    return replaced


def alter_broker(
    overrides: Mapping[str, str], changes: Sequence[Change], broker: BrokerConfig, *, per_broker: bool
) -> dict[str, str]:
    """IncrementalAlterConfigs of a broker or of the cluster-wide default."""
    changed = _changed(overrides, changes, broker_key)
    _check_broker(changed, [name for name, _, _ in changes], broker, per_broker)
    return changed


def _replaced(values: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    _refuse_duplicates(name for name, _ in values)
    return {name: _not_null(name, value) for name, value in values}


def _refuse_duplicates(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidRequest(f"Configuration {name} is given twice in one request")
        seen.add(name)


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"Null value not supported for {name}")
    return value


def _changed(
    overrides: Mapping[str, str],
    changes: Sequence[Change],
    find_key: Callable[[str], ConfigKey | None],
) -> dict[str, str]:
    _refuse_duplicates(name for name, _, _ in changes)
    changed = dict(overrides)
    for name, number, value in changes:
        if number not in set(Operation):
            raise InvalidRequest(f"Unknown operation {number} for configuration {name}")
        operation = Operation(number)
        if operation is Operation.DELETE:
            changed.pop(name, None)
        elif operation is Operation.SET:
            changed[name] = _not_null(name, value)
        else:
            key = find_key(name)
            if key is None or key.type is not ConfigType.LIST:
                raise InvalidConfig(f"Can't {operation.name} to configuration {name}: its type is not LIST")
            changed[name] = _merged(key, changed.get(name), operation, _not_null(name, value))
    return changed


def _merged(key: ConfigKey, stored: str | None, operation: Operation, text: str) -> str:
    """Returns a list with items added or removed. A list that was never set begins as the default."""
    items = _items(to_text(key.default) if stored is None else stored)
    named = _items(text)
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*items, *named]))
    return ",".join(item for item in items if item not in named)


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


def _check_broker(overrides: Mapping[str, str], touched: Sequence[str], broker: BrokerConfig, per_broker: bool) -> None:
    refuse_without_prefix(name for name in touched if name in overrides)
    refuse_no_new_connections({name: overrides[name] for name in touched if name in overrides})
    layers = (broker.dynamic_default, overrides) if per_broker else (overrides, broker.dynamic_broker)
    found = refused_changes(broker.static, {**layers[0], **layers[1]})
    # Only the settings of this request are refused. A refused setting that was stored earlier is not in force, and
    # must not block other changes.
    refused = {name: refusal for name, refusal in found.items() if name in touched and name in overrides}
    if refused:
        raise InvalidConfig(refusal_line(refused))
    check_dynamic({name: overrides[name] for name in touched if name in overrides}, per_broker=per_broker)
    try:
        candidate = broker.candidate(overrides, per_broker=per_broker)
        if IP_OVERRIDES in touched:
            resolved_overrides(candidate.str(IP_OVERRIDES))
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    refuse_fixed_on_listeners(touched, broker, candidate)
    check_thread_counts(broker, candidate)
