"""The options of a mirror, and the events that it reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.client.errors import HeadraceError
from headrace.client.mirror.topic_names import OWN_PREFIX, TopicNames
from headrace.client.mirror.topics import MirroredTopic
from headrace.client.types import TopicPartition

Config = Mapping[str, object]


class MirrorError(HeadraceError):
    """The mirror cannot go on, and a new attempt would not help."""


@dataclass(frozen=True, kw_only=True)
class MirrorOptions:
    """The options of a mirror. Client options have Kafka's names; the mirror sets those that its guarantees need."""

    names: TopicNames
    source_admin: Config
    target_admin: Config
    consumer: Config
    producer: Config
    #: The name of the mirror. Its positions and its transactions have this name.
    name: str = "mirror"
    #: Whether the mirror ends at the end offsets that the source had at the start.
    is_once: bool = False
    #: Where to start with partitions that were never mirrored.
    start: Literal["earliest", "latest"] = "earliest"
    is_exactly_once: bool = True
    #: The groups whose committed offsets are copied to the target.
    groups: re.Pattern[str] | None = None
    sync_groups_every_ms: int = 10_000
    refresh_topics_every_ms: int = 60_000
    #: How long a transaction collects records.
    commit_every_ms: int = 1_000
    #: Whether an error that a new session will probably not repair ends the mirror.
    ends_on_failure: bool = True

    @property
    def own_name(self) -> str:
        """The name of the group of its positions, and its transactional id."""
        return f"{OWN_PREFIX}{self.name}"

    @property
    def syncs_topic(self) -> str:
        return f"{OWN_PREFIX}{self.name}.offset-syncs"


class MirrorEvents:
    """Receives the events of a mirror. Subclasses override the methods that they need."""

    def mirroring(self, topic: MirroredTopic) -> None:
        """The mirror has started to copy a topic."""

    def moved(self, done_offsets: int, lag_offsets: int) -> None:
        """Reports progress: the offsets that are copied or being copied, and the offsets that are left."""

    def groups_moved(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Committed offsets of groups were copied to the target."""

    def note(self, text: str) -> None:
        """Reports something that the user should know."""

    def failed(self, error: HeadraceError) -> None:
        """Reports an error after which the mirror tries again."""
