"""Remembers where some batches of a segment begin in its file, so that most reads need neither index nor scan.

Two kinds of reads are common. A consumer at the end of the log reads the newest batches: the positions of the last
batches are remembered, without gaps between their offsets. A consumer that is catching up reads on where its last read
ended: that boundary is remembered as a hint, by the offset with which the next read will begin.
"""

from bisect import bisect_right

#: How many of the last batches are remembered, at least and at most.
_RECENT_KEPT, _RECENT_MAX = 64, 128
_HINTS_MAX = 16
UNKNOWN_POSITION = -1


class BatchPositions:
    __slots__ = ("_end_offset", "_hints", "_offsets", "_positions")

    def __init__(self) -> None:
        #: The base offsets of the last batches, and where each of them begins in the file.
        self._offsets: list[int] = []
        self._positions: list[int] = []
        #: The offset behind the last of them.
        self._end_offset = -1
        self._hints: dict[int, int] = {}

    def remember(self, base_offset: int, position: int, next_offset: int) -> None:
        """Notes where a batch was appended. A gap before its offset drops what was remembered before."""
        offsets = self._offsets
        if base_offset != self._end_offset:
            offsets = self._offsets = []
            self._positions = []
        elif len(offsets) >= _RECENT_MAX:
            del offsets[:-_RECENT_KEPT]
            del self._positions[:-_RECENT_KEPT]
        offsets.append(base_offset)
        self._positions.append(position)
        self._end_offset = next_offset

    def hint(self, base_offset: int, position: int) -> None:
        """Notes where a batch begins, because the next read will probably begin there."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[base_offset] = position

    def find(self, offset: int, size_bytes: int) -> int:
        """Returns the position of the batch with an offset: the size of the file for offsets behind the last batch, or
        UNKNOWN_POSITION if the batch is not remembered."""
        offsets = self._offsets
        if offsets and offset >= offsets[0]:
            if offset >= self._end_offset:
                return size_bytes
            return self._positions[bisect_right(offsets, offset) - 1]
        return self._hints.get(offset, UNKNOWN_POSITION)

    def boundary_within(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """The last boundary of batches at most ``max_bytes`` behind another one. If the first batch is larger: its end,
        or its start where ``at_least_one`` is false. UNKNOWN_POSITION if the batch at ``start`` is not remembered."""
        positions = self._positions
        if not positions or start < positions[0]:
            return UNKNOWN_POSITION
        at = bisect_right(positions, start + max_bytes) - 1
        if positions[at] > start:
            return positions[at]
        if not at_least_one:
            return start
        return positions[at + 1] if at + 1 < len(positions) else end


#: Shared by all segments that are not loaded, so that an idle segment costs no lists. Nothing is ever added to it.
NO_POSITIONS = BatchPositions()
