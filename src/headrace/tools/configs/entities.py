"""The entities of ``headrace configs``, changes to their settings, and the output in the words of Kafka's tool.

No I/O. An entity is a topic, a broker, the loggers of a broker, a group, a user or a subscription to client metrics.
The name None means all entities of that type. The name ``""`` means the defaults of all brokers. Users, clients and ips
have quotas (``quota_entities.py``); users and clients may be named together.
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
    #: None for entities with quotas: quotas and credentials have requests of their own.
    kind: ResourceKind | None
    flag: str
    source: str

    @property
    def singular(self) -> str:
        return self.name.removesuffix("s") if self.name != "client-metrics" else "client-metric"


USERS, CLIENTS, IPS = "users", "clients", "ips"
WITH_QUOTAS = (USERS, CLIENTS, IPS)
TYPES = {
    each.name: each
    for each in (
        EntityType("topics", "topic", "topic", "DYNAMIC_TOPIC_CONFIG"),
        EntityType(CLIENTS, None, "client", ""),
        EntityType(USERS, None, "user", ""),
        EntityType("brokers", "broker", "broker", "DYNAMIC_BROKER_CONFIG"),
        EntityType("broker-loggers", "broker_logger", "broker_logger", "DYNAMIC_BROKER_LOGGER_CONFIG"),
        EntityType(IPS, None, "ip", ""),
        EntityType("client-metrics", "client_metrics", "client_metrics", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        EntityType("groups", "group", "group", "DYNAMIC_GROUP_CONFIG"),
    )
}
#: Entities that have defaults for all entities of the type, with a flag of their own.
_WITH_DEFAULTS = (CLIENTS, USERS, "brokers", IPS)
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


def entities_of(options: Namespace) -> list[Entity]:
    """The entity that the options name, by its own flag or by type and name; or a user and a client."""
    by_flag = _by_flags(options)
    if by_flag and (options.entity_types or options.entity_names):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    entities = by_flag or _by_types(options.entity_types, options.entity_names)
    names = [entity.type.name for entity in entities]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(sorted(twice))}")
    if len(names) > 1 and set(names) != {USERS, CLIENTS}:
        raise UsageError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")
    for entity in entities:
        _check(entity)
    return entities


def _by_flags(options: Namespace) -> list[Entity]:
    """The order is that of Kafka's tool: it decides what the tool says about a user and a client."""
    named = [Entity(each, getattr(options, each.flag)) for each in TYPES.values()]
    for entity in named:
        if entity.name == "":
            raise UsageError(f"--{entity.type.flag.replace('_', '-')} is empty")
    defaults = [TYPES[name] for name in _WITH_DEFAULTS if getattr(options, f"{TYPES[name].flag}_defaults")]
    return [*(entity for entity in named if entity.name), *(Entity(each, DEFAULTS) for each in defaults)]


def _by_types(types: list[str], names: list[str | None]) -> list[Entity]:
    """Pairs types with names in the order in which the command line has them.

    :param names: None is the default entity.
    """
    if not types:
        raise UsageError("At least one entity type must be specified")
    unknown = [each for each in types if each not in TYPES]
    if unknown:
        raise UsageError(f"Invalid entity type {unknown[0]}, the entity type must be one of {', '.join(TYPES)}")
    if len(names) > len(types):
        raise UsageError("More entity names specified than entity types")
    if "" in names:
        raise UsageError("--entity-name is empty")
    named = [Entity(TYPES[each], name or DEFAULTS) for each, name in zip(types, names, strict=False)]
    return named + [Entity(TYPES[each], None) for each in types[len(names) :]]


def _check(entity: Entity) -> None:
    if entity.is_default and entity.type.name not in _WITH_DEFAULTS:
        raise UsageError(f"--entity-default must not be specified with {entity.type.name}")
    if entity.type.name in _OF_BROKERS and entity.name and not entity.name.isdecimal():
        raise UsageError(
            f"The entity name for {entity.type.name} must be a valid integer broker id, but it is: {entity.name}"
        )


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


def completed(entity: Entity) -> str:
    """The line that says whose settings were changed."""
    if entity.is_default:
        return f"Completed updating default config for {entity.type.name} in the cluster."
    return f"Completed updating config for {entity.type.singular} {entity.name}."


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
