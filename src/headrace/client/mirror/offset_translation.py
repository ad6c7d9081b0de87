"""Offsets of a source partition to those of its mirror: no I/O.

A mirror keeps the order of records but not their offsets: what compaction or transactions left out at the source is no
gap in the mirror, and the mirror has markers of its own transactions. So offsets are translated by *runs*: so many
records, from one offset on here and from another on there. Runs are numbered, and both their number and their place in
the mirror only grow. Their places at the source may go back, if the source's log was cut or made anew.

Not all runs are kept. Run n has the level of its trailing zeros in binary, and of each level the last 32 are kept::

    level 0   runs  1  3  5  7 ...      the last 64 runs without a gap
    level 1   runs  2  6 10 14 ...      then every second one of the last 128
    level 2   runs  4 12 20 28 ...      then every fourth of the last 256
    run 0     always

This takes little room however long a mirror lasts, and is the coarser the longer ago it was. What is kept has a key
(:func:`slot_of`), so that a compacted topic forgets the same runs by itself.

An offset is translated by the last run that begins at or before it. Behind that run's end the answer is the end: what
follows there has not been mirrored yet, or its run was forgotten. So who reads on in the mirror may read something
again, but misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_KEPT_A_LEVEL = 32

Slot = tuple[int, int]
_FIRST: Slot = (-1, 0)


class Run(NamedTuple):
    """Records without a gap on either side."""

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
    """Level and place of a run; a later one of the same slot takes its place."""
    if number == 0:
        return _FIRST
    level = (number & -number).bit_length() - 1
    return level, (number >> (level + 1)) % _KEPT_A_LEVEL


def thinned(pieces: list[Piece], most: int) -> list[Piece]:
    """At most so many of them, evenly, with the first and the last. Whatever is left out, nothing is missed."""
    assert most >= 2
    if len(pieces) <= most:
        return pieces
    step = (len(pieces) - 1) / (most - 1)
    return [pieces[round(at * step)] for at in range(most)]


class OffsetTranslation:
    """Of one partition."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: dict[Slot, Run] = {}
        self._last: Run | None = None
        for run in sorted(runs):
            self._keep(run)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def source_end(self) -> int | None:
        """Behind the last record that was mirrored; None if none was."""
        return None if self._last is None else self._last.source_end

    def add(self, piece: Piece) -> Run:
        """
        :return: the run as it is to be stored: a new one, or the last one, longer.
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
            # The mirror's log has lost its end; what was there is not there any more.
            self._runs = {slot: one for slot, one in self._runs.items() if one.target_end <= run.target_first}
        self._runs[slot_of(run.number)] = self._last = run

    def translate(self, source_offset: int) -> int | None:
        """Where in the mirror to read on, for who would do so there at the source; None: nothing is mirrored."""
        for run in sorted(self._runs.values(), reverse=True):
            if run.source_first <= source_offset:
                return run.target_first + min(source_offset - run.source_first, run.length)
        first = self._runs.get(_FIRST)
        return None if first is None else first.target_first
