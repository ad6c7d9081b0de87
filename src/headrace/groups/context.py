"""What groups need from the broker around them, and nothing more."""

import builtins
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer


class Settings(Protocol):
    """The broker's settings, by Kafka's names. Asked anew each time, so that a dynamic change holds at once."""

    def int(self, name: builtins.str) -> builtins.int: ...
    def bool(self, name: builtins.str) -> builtins.bool: ...
    def str(self, name: builtins.str) -> builtins.str: ...
    def list(self, name: builtins.str) -> tuple[builtins.str, ...]: ...


@dataclass(frozen=True, slots=True)
class KnownTopic:
    name: str
    topic_id: UUID
    partition_count: int
    #: For each partition, the racks of its replicas.
    racks: tuple[frozenset[str], ...] = ()


class TopicLookup(Protocol):
    @property
    def version(self) -> int:
        """Another number after any topic has come, changed or gone."""
        ...

    def topic(self, name: str) -> KnownTopic | None: ...
    def topic_by_id(self, topic_id: UUID) -> KnownTopic | None: ...
    def all_topics(self) -> Iterable[KnownTopic]: ...


@dataclass(frozen=True, slots=True)
class GroupContext:
    clock: Clock
    timer: Timer
    settings: Settings
    topics: TopicLookup
    #: By a group's id, the settings that it has of its own.
    group_configs: Callable[[str], Mapping[str, str]] = lambda _: {}

    def group_int(self, group_id: str, name: str) -> int:
        """A group's own setting, or the broker's of that name with ``group.`` before it."""
        own = self.group_configs(group_id).get(name)
        return self.settings.int(f"group.{name}") if own is None else int(own)
