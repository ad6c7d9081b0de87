"""What a mirror is told, and what it tells."""

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
    """The mirror cannot go on, and trying again would not help."""


@dataclass(frozen=True, kw_only=True)
class MirrorOptions:
    """The clients' options by Kafka's names; the mirror sets what its guarantees rest on by itself."""

    names: TopicNames
    source_admin: Config
    target_admin: Config
    consumer: Config
    producer: Config
    #: Which mirror this is: its positions and its transactions go by it.
    name: str = "mirror"
    #: Ends when it has caught up with where the source ended at the start.
    is_once: bool = False
    #: Where partitions begin that were never mirrored.
    start: Literal["earliest", "latest"] = "earliest"
    is_exactly_once: bool = True
    #: Which groups' offsets are translated to the target.
    groups: re.Pattern[str] | None = None
    sync_groups_every_ms: int = 10_000
    refresh_topics_every_ms: int = 60_000
    #: How long a transaction may go on taking in records.
    commit_every_ms: int = 1_000
    #: Whether what trying again would hardly mend ends the mirror.
    ends_on_failure: bool = True

    @property
    def own_name(self) -> str:
        """Of the group of its positions, and of its transactions."""
        return f"{OWN_PREFIX}{self.name}"

    @property
    def syncs_topic(self) -> str:
        return f"{OWN_PREFIX}{self.name}.offset-syncs"


class MirrorEvents:
    """What happens; to be overridden by who wants to know."""

    def mirroring(self, topic: MirroredTopic) -> None:
        """A topic is mirrored from now on."""

    def moved(self, done_offsets: int, lag_offsets: int) -> None:
        """So many offsets of the source are behind, committed or on the way, and so many ahead."""

    def groups_moved(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Groups have new offsets at the target."""

    def note(self, text: str) -> None:
        """Something that one should know."""

    def failed(self, error: HeadraceError) -> None:
        """Something failed that may pass: the mirror tries again."""
