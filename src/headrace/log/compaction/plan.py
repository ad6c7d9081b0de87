"""What the steps of compaction hand each other: from the thread that owns the log to the one that cleans, and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.segment import Segment
from headrace.log.txn_index import AbortedTxn

#: Told how many bytes were just read or written; it may wait, or raise to stop the work.
Pace = Callable[[int], None]


class LastOfProducer(NamedTuple):
    """Where an active producer stands: the last offset of its data (None if only a marker is left), its epoch."""

    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What a log was when it was decided to clean it. The segments are closed, so their bytes do not change."""

    name: str
    segments: tuple[Segment, ...]
    sizes_bytes: tuple[int, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    config: LogConfig
    aborted: tuple[AbortedTxn, ...]
    last_of_producers: Mapping[int, LastOfProducer]
    now_ms: int
    disk: Disk
    max_keys: int

    def offset_behind(self, segment: Segment) -> int:
        """Where the next segment begins; behind the last of the plan, where cleaning must end."""
        at = self.segments.index(segment) + 1
        return self.segments[at].base_offset if at < len(self.segments) else self.first_uncleanable_offset


@dataclass(slots=True)
class CleanedGroup:
    """Segments, and the one that shall stand in their place under the first one's base offset."""

    old: list[Segment]
    old_sizes_bytes: list[int]
    size_bytes: int = 0
    has_changed: bool = False


@dataclass(slots=True)
class CleanedSegments:
    plan: CleaningPlan
    #: Up to here the log is clean once all groups are in place.
    end_offset: int
    groups: list[CleanedGroup] = field(default_factory=list)
    key_count: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
