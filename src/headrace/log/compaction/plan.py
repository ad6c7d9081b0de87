"""Holds the values that the steps of compaction pass on: from the thread that owns the log to the one that cleans it,
and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.segment import Segment
from headrace.log.txn_index import AbortedTxn

#: Takes how many bytes were just read or written. It may wait, or raise to stop the cleaning.
Pace = Callable[[int], None]


class LastOfProducer(NamedTuple):
    """The last data offset of an active producer (None if only a marker is left), and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The state of a log when its cleaning was planned. The segments are closed, so their bytes do not change."""

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
    #: How many bytes are read at once, and collected for one write.
    chunk_bytes: int

    def offset_behind(self, segment: Segment) -> int:
        """The base offset of the next segment; for the last segment of the plan, the end of the cleaning."""
        at = self.segments.index(segment) + 1
        return self.segments[at].base_offset if at < len(self.segments) else self.first_uncleanable_offset


@dataclass(slots=True)
class CleanedGroup:
    """Neighbouring segments, and the size of the one that replaces them. It has the base offset of the first."""

    old: list[Segment]
    old_sizes_bytes: list[int]
    size_bytes: int = 0
    has_changed: bool = False


@dataclass(slots=True)
class CleanedSegments:
    plan: CleaningPlan
    #: The log is clean up to this offset once all groups are in place.
    end_offset: int
    groups: list[CleanedGroup] = field(default_factory=list)
    key_count: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
