"""Represents a segment's loaded indexes in the pool that limits how many segments have their indexes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.log.segment import Segment


class LoadedIndexes:
    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @property
    def used(self) -> bool:
        return self._segment.used

    @used.setter
    def used(self, value: bool) -> None:
        self._segment.used = value

    def evict(self) -> None:
        """Drops the indexes, unless some entries are not in the files yet, as in an active segment."""
        offsets, times = self._segment.offset_index, self._segment.time_index
        if offsets is not None and times is not None and offsets.is_written and times.is_written:
            self._segment.unload_indexes()
