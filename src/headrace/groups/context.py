"""Holds the parts of a broker that groups use: a clock, a timer, settings, and the topics that exist."""

import builtins
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer


class Settings(Protocol):
    """The broker's settings, by Kafka's names. Groups read a setting each time, so a dynamic change applies at once."""

    def int(self, name: builtins.str) -> builtins.int: ...
    def bool(self, name: builtins.str) -> builtins.bool: ...
    def str(self, name: builtins.str) -> builtins.str: ...
    def list(self, name: builtins.str) -> tuple[builtins.str, ...]: ...


class KnownTopic(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: UUID
    partition_count: int
    #: For each partition, the racks of its replicas.
    racks: tuple[frozenset[str], ...] = ()


class TopicLookup(Protocol):
    """The topics that exist."""

    @property
    def version(self) -> int:
        """A number that changes whenever a topic is created, changed or deleted."""
        ...

    def topic(self, name: str) -> KnownTopic | None: ...
    def topic_by_id(self, topic_id: UUID) -> KnownTopic | None: ...
    def all_topics(self) -> Iterable[KnownTopic]: ...


class GroupContext(NamedTuple):
    """Everything that groups need from their broker."""

    clock: Clock
    timer: Timer
    settings: Settings
    topics: TopicLookup
    #: Returns the settings that a group has of its own, by the group's id.
    group_configs: Callable[[str], Mapping[str, str]] = lambda _: {}

    def group_int(self, group_id: str, name: str) -> int:
        """A group's own setting; if the group has none, the broker's setting ``group.<name>``."""
        own = self.group_configs(group_id).get(name)
        return self.settings.int(f"group.{name}") if own is None else int(own)
