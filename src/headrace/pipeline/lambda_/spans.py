"""Which offsets a Lambda view's results cover, without a database: cuts and spans.

::

    0             the batch's cut                                    progress
    |=== batch ===|-- span 3 --|-- span 9 --|- span 10 -|- span 11 --|            the log goes on

A **span** is what one micro-batch has read, from a point to a point (``points``); its number is that of the
micro-batch. Spans are a chain: each begins where the one before it ends, the first at the cut of the batch that serves,
the last ends at the progress. Everything up to the progress is covered once.

Two things happen to a chain. A batch **lands** (``split_at``): the spans up to its cut go, so the cut has to be the end
of a span, or where the chain begins. And spans are **merged** (``to_merge``), so that they stay few: the newest ones,
with those before them that are no larger, so that a row is written again only when its span has grown to twice its
size. Merging never takes away the point at which a batch under way is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.pipeline.progress.offsets import is_before, is_same
from headrace.pipeline.serving.catalog_tables import Offsets, Span
from headrace.pipeline.serving.errors import ServingError

#: So many spans are left alone.
MAX_SPANS = 16
_AT_ONCE = 8


class CutLost(ServingError):
    """A batch was cut where no span ends (any more): it covers a part of a result, which cannot be taken apart."""


def split_at(spans: Sequence[Span], cut: Offsets) -> tuple[list[Span], list[Span]]:
    """The spans that a batch covers, and those that are left.

    :raises CutLost: if that cannot be said of each of them.
    """
    covered = [span for span in spans if is_before(span.next_offsets, cut)]
    left = list(spans[len(covered) :])
    is_whole = all(is_before(cut, span.first_offsets) for span in left)
    ends = [covered[-1].next_offsets] if covered else [span.first_offsets for span in left[:1]]
    if not is_whole or not all(is_same(end, cut) for end in ends):
        raise CutLost(f"no span ends at {cut}: the batch does not fit the speed layer's results and is of no use")
    return covered, left


def to_merge(spans: Sequence[Span], cut: Offsets | None = None) -> list[Span]:
    """Neighbours that should become one; none if there are few enough.

    :param cut: of a batch under way. What it is going to cover is left alone: it will be gone soon.
    """
    loose = list(spans) if cut is None else split_at(spans, cut)[1]
    if len(loose) <= MAX_SPANS:
        return []
    start = len(loose) - _AT_ONCE
    rows = sum(span.rows for span in loose[start:])
    while start > 0 and loose[start - 1].rows <= rows:
        start -= 1
        rows += loose[start].rows
    return loose[start:]


def merged(spans: Sequence[Span], rows: int) -> Span:
    """One span in the place of these."""
    first, last = spans[0], spans[-1]
    return replace(last, first_offsets=first.first_offsets, rows=rows)


def check_chain(cut: Offsets, spans: Sequence[Span], progress: Offsets) -> None:
    """That everything from the cut to the progress is covered, and nothing twice."""
    at = cut
    for number, span in enumerate(spans):
        assert is_same(span.first_offsets, at), f"span {span.span} begins at {span.first_offsets}, not at {at}"
        assert is_before(at, span.next_offsets), f"span {span.span} ends before it begins"
        assert number == 0 or spans[number - 1].span < span.span, "spans are out of order"
        at = span.next_offsets
    assert is_same(at, progress), f"the chain ends at {at}, not at {progress}"
