"""Translates offsets of a source partition to offsets of its mirror. No I/O.

A mirror keeps the order of records, but not their offsets. Gaps that compaction or transactions left at the source do
not exist in the mirror, and the mirror has the markers of its own transactions. So offsets are translated by *runs*. A
run is a number of records that have consecutive offsets on both sides: from one offset on at the source, and from
another offset on in the mirror. Runs are numbered. The numbers and the offsets in the mirror only grow. The offsets at
the source may go back, if the source's log was truncated or created again.

Not all runs are kept. The level of run n is the number of trailing zeros of n in binary. Of each level, the last 32
runs are kept::

    level 0   runs  1  3  5  7 ...      the last 64 runs without a gap
    level 1   runs  2  6 10 14 ...      then every second one of the last 128
    level 2   runs  4 12 20 28 ...      then every fourth of the last 256
    run 0     always

This takes little space however long a mirror runs. Old offsets are translated less exactly than new ones. A run has a
key (:func:`slot_of`), so that a compacted topic drops the same runs.

An offset is translated by the last run that begins at or before it. Behind the end of that run, the result is the end
of the run: the records that follow are not mirrored yet, or their run was dropped. So a reader of the mirror may read
some records again, but misses none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_KEPT_PER_LEVEL = 32

Slot = tuple[int, int]
_FIRST: Slot = (-1, 0)


class Run(NamedTuple):
    """Records with consecutive offsets on both sides."""

    number: int
    source_first: int
    target_first: int
    length: int

    @property
    def source_end(self) -> int:
        return self.source_first + self.length

    @property
    def target_end(self) -> int:
        return self.target_first + self.length


class Piece(NamedTuple):
    """A run that has no number yet."""

    source_first: int
    target_first: int
    length: int


def slot_of(number: int) -> Slot:
    """Returns level and slot of a run. A later run of the same level and slot replaces it."""
    if number == 0:
        return _FIRST
    level = (number & -number).bit_length() - 1
    return level, (number >> (level + 1)) % _KEPT_PER_LEVEL


def thinned(pieces: list[Piece], most: int) -> list[Piece]:
    """Returns at most ``most`` pieces, evenly chosen, with the first and the last. Readers still miss no record."""
    assert most >= 2
    if len(pieces) <= most:
        return pieces
    step = (len(pieces) - 1) / (most - 1)
    return [pieces[round(at * step)] for at in range(most)]


class OffsetTranslation:
    """The runs of one partition."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: dict[Slot, Run] = {}
        self._last: Run | None = None
        for run in sorted(runs):
            self._keep(run)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def source_end(self) -> int | None:
        """The source offset behind the last mirrored record; None if no record was mirrored."""
        return None if self._last is None else self._last.source_end

    def add(self, piece: Piece) -> Run:
        """
        :return: the run to store: a new run, or the last run with more records.
        """
        last = self._last
        assert piece.length > 0, "a run of no records"
        if last is None:
            run = Run(0, *piece)
        elif (last.source_end, last.target_end) == piece[:2]:
            run = last._replace(length=last.length + piece.length)
        else:
            run = Run(last.number + 1, *piece)
        self._keep(run)
        return run

    def _keep(self, run: Run) -> None:
        last = self._last
        if last is not None and last.number < run.number and last.target_end > run.target_first:
            # The mirror's log was truncated, so the runs behind its new end are gone.
            self._runs = {slot: one for slot, one in self._runs.items() if one.target_end <= run.target_first}
        self._runs[slot_of(run.number)] = self._last = run

    def translate(self, source_offset: int) -> int | None:
        """Returns the offset in the mirror that corresponds to an offset at the source; None if nothing is mirrored."""
        for run in sorted(self._runs.values(), reverse=True):
            if run.source_first <= source_offset:
                return run.target_first + min(source_offset - run.source_first, run.length)
        first = self._runs.get(_FIRST)
        return None if first is None else first.target_first
