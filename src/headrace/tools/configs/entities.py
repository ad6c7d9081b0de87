"""The entities of ``headrace configs``, changes to their settings, and the output in the words of Kafka's tool.

No I/O. An entity is a topic, a broker, the loggers of a broker, a group, a user or a subscription to client metrics.
The name None means all entities of that type. The name ``""`` means the defaults of all brokers.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.client.admin.types import ConfigChange, ConfigEntry, ConfigResource, ResourceKind
from headrace.tools.shared.commands import UsageError

#: A comma outside of brackets.
_COMMA = re.compile(r",(?=[^\]]*(?:\[|$))")
_NAME = re.compile(r"[$a-zA-Z0-9._-]+")


class EntityType(NamedTuple):
    """Kafka's word for the type, our clients' word, the type's own flag, and the source of its own settings."""

    name: str
    #: None for users: their credentials have requests of their own.
    kind: ResourceKind | None
    flag: str
    source: str

    @property
    def singular(self) -> str:
        return self.name.removesuffix("s") if self.name != "client-metrics" else "client-metric"


USERS = "users"
TYPES = {
    each.name: each
    for each in (
        EntityType("topics", "topic", "topic", "DYNAMIC_TOPIC_CONFIG"),
        EntityType("brokers", "broker", "broker", "DYNAMIC_BROKER_CONFIG"),
        EntityType("broker-loggers", "broker_logger", "broker_logger", "DYNAMIC_BROKER_LOGGER_CONFIG"),
        EntityType("client-metrics", "client_metrics", "client_metrics", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        EntityType("groups", "group", "group", "DYNAMIC_GROUP_CONFIG"),
        EntityType(USERS, None, "user", ""),
    )
}
#: Entities with quotas, which our brokers do not have yet.
_WITHOUT_SETTINGS = ("clients", "ips")
LOGGERS = "broker-loggers"
_OF_BROKERS = ("brokers", LOGGERS)
DEFAULTS = ""


class Entity(NamedTuple):
    type: EntityType
    name: str | None

    @property
    def is_default(self) -> bool:
        return self.name == DEFAULTS

    @property
    def resource(self) -> ConfigResource:
        assert self.name is not None
        assert self.type.kind is not None
        return ConfigResource(self.type.kind, self.name)


def entity_of(options: Namespace) -> Entity:
    """The one entity that the options name: by its own flag, or by type and name."""
    by_flag = [Entity(each, getattr(options, each.flag)) for each in TYPES.values() if getattr(options, each.flag)]
    if options.broker_defaults:
        by_flag.append(Entity(TYPES["brokers"], DEFAULTS))
    if by_flag and (options.entity_type or options.entity_name is not None or options.entity_default):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if len(by_flag) > 1:
        raise UsageError("name exactly one entity")
    entity = by_flag[0] if by_flag else _by_type(options)
    if entity.type.name in _OF_BROKERS and entity.name and not entity.name.isdecimal():
        raise UsageError(
            f"The entity name for {entity.type.name} must be a valid integer broker id, but it is: {entity.name}"
        )
    return entity


def _by_type(options: Namespace) -> Entity:
    if options.entity_type is None:
        raise UsageError("At least one entity type must be specified")
    if options.entity_type in _WITHOUT_SETTINGS:
        raise UsageError(f"{options.entity_type} have quotas, which Headrace lacks; name another entity type")
    if options.entity_type not in TYPES:
        raise UsageError(
            f"Invalid entity type {options.entity_type}, the entity type must be one of {', '.join(TYPES)}"
        )
    if options.entity_default:
        if options.entity_type != "brokers" or options.entity_name is not None:
            raise UsageError("--entity-default goes with --entity-type brokers and without --entity-name")
        return Entity(TYPES["brokers"], DEFAULTS)
    if options.entity_name == "":
        raise UsageError("--entity-name is empty")
    return Entity(TYPES[options.entity_type], options.entity_name)


# ------------------------------------------------------------------------------------------------------------ changes


def parse_added(text: str) -> dict[str, str]:
    """Parses ``a=1,b=[x,y]``. Brackets keep the commas of a value together."""
    settings: dict[str, str] = {}
    for pair in filter(None, map(str.strip, _COMMA.split(text))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise UsageError(
                'Invalid entity config: all configs to be added must be in the format "key=val" or  "key=[val1,val2]" '
                "to group values which contain commas."
            )
        if not _NAME.fullmatch(name):
            raise UsageError(f"Invalid character found for config key: {name}")
        settings[name] = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    return settings


def changes(added: dict[str, str], deleted: str | None) -> list[ConfigChange]:
    names = [name.strip() for name in (deleted or "").split(",") if name.strip()]
    both = added.keys() & set(names)
    if both:
        raise UsageError(f"{', '.join(sorted(both))}: added and deleted at once")
    sets = [ConfigChange(name, value) for name, value in added.items()]
    return sets + [ConfigChange(name, None, "delete") for name in names]


def names_to_be_there(entity: Entity, wanted: Iterable[ConfigChange]) -> list[str]:
    """The names that the entity must have already: deleted settings, and loggers, because a logger cannot be added."""
    return [change.name for change in wanted if change.value is None or entity.type.name == LOGGERS]


# ------------------------------------------------------------------------------------------------------------- output


def own_entries(entity: Entity, entries: Iterable[ConfigEntry], *, with_all: bool) -> list[ConfigEntry]:
    """The settings that are the entity's own, or all that count for it."""
    source = "DYNAMIC_DEFAULT_BROKER_CONFIG" if entity.is_default else entity.type.source
    is_shown = with_all or entity.type.name == LOGGERS
    return sorted(entry for entry in entries if is_shown or entry.source == source)


def heading(entity: Entity, *, with_all: bool) -> str:
    if entity.is_default:
        return f"Default configs for {entity.type.name} in the cluster are:"
    return f"{'All' if with_all else 'Dynamic'} configs for {entity.type.singular} {entity.name} are:"


def lines(entity: Entity, entries: Iterable[ConfigEntry], *, with_all: bool) -> Iterator[str]:
    yield heading(entity, with_all=with_all)
    for entry in entries:
        synonyms = ", ".join(f"{each.source}:{each.name}={_text(each.value)}" for each in entry.synonyms)
        sensitive = str(entry.is_sensitive).lower()
        yield f"  {entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def value(entity: Entity, entries: Iterable[ConfigEntry]) -> dict[str, object]:
    """The value for ``--json``."""
    return {
        "entityType": entity.type.name,
        "entityName": None if entity.is_default else entity.name,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source,
                "isSensitive": entry.is_sensitive,
                "isReadOnly": entry.is_read_only,
                "synonyms": [
                    {"source": each.source, "name": each.name, "value": each.value} for each in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }


def _text(value: str | None) -> str:
    return "null" if value is None else value
