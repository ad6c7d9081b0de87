"""Computes which offsets the results of a Lambda view cover: cuts and spans. Does no I/O.

::

    0             the batch's cut                                    progress
    |=== batch ===|-- span 3 --|-- span 9 --|- span 10 -|- span 11 --|            the log goes on

The **cut** of a batch is the offsets up to which it counts. A **span** is what one micro-batch has read, from offsets
to offsets; its number is that of the micro-batch. Spans form a chain: each begins where the one before it ends, the
first begins at the cut of the batch that serves, and the last ends at the progress. So everything up to the progress is
covered once.

Two things change a chain. When a batch is **committed** (``split_at``), the spans up to its cut are removed, so the cut
has to be the end of a span or the start of the chain. And spans are **merged** (``to_merge``), so that there are few of
them: the newest ones, with those before them that are not larger. So a row is written again only when its span has
grown to twice its size. Merging never removes the cut of a batch in progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.pipeline.progress.offsets import is_before, is_same
from headrace.pipeline.serving.catalog_tables.versions import Offsets, Span
from headrace.pipeline.serving.errors import ServingError

#: Up to this many spans are not merged.
MAX_SPANS = 16
_MERGE_AT_LEAST = 8


class CutLost(ServingError):
    """No span ends at the cut of a batch: the batch covers a part of a span, and a span cannot be divided."""


def split_at(spans: Sequence[Span], cut: Offsets) -> tuple[list[Span], list[Span]]:
    """Splits spans into the spans that a batch covers, and the rest.

    :raises CutLost: if the batch covers a part of a span.
    """
    covered = [span for span in spans if is_before(span.next_offsets, cut)]
    left = list(spans[len(covered) :])
    is_whole = all(is_before(cut, span.first_offsets) for span in left)
    ends = [covered[-1].next_offsets] if covered else [span.first_offsets for span in left[:1]]
    if not is_whole or not all(is_same(end, cut) for end in ends):
        raise CutLost(
            f"no span ends at the cut {cut}: the batch does not fit the results of the speed layer and is discarded"
        )
    return covered, left


def to_merge(spans: Sequence[Span], cut: Offsets | None = None) -> list[Span]:
    """Adjacent spans that should be merged; empty if there are few enough.

    :param cut: the cut of a batch in progress. Spans before it are not merged: the batch will replace them soon.
    """
    loose = list(spans) if cut is None else split_at(spans, cut)[1]
    if len(loose) <= MAX_SPANS:
        return []
    start = len(loose) - _MERGE_AT_LEAST
    rows = sum(span.rows for span in loose[start:])
    while start > 0 and loose[start - 1].rows <= rows:
        start -= 1
        rows += loose[start].rows
    return loose[start:]


def merged(spans: Sequence[Span], rows: int) -> Span:
    """The span that replaces these spans."""
    first, last = spans[0], spans[-1]
    return replace(last, first_offsets=first.first_offsets, rows=rows)


def check_chain(cut: Offsets, spans: Sequence[Span], progress: Offsets) -> None:
    """Asserts that the spans cover everything from the cut to the progress, and nothing twice."""
    at = cut
    for number, span in enumerate(spans):
        assert is_same(span.first_offsets, at), f"span {span.span} begins at {span.first_offsets}, not at {at}"
        assert is_before(at, span.next_offsets), f"span {span.span} ends before it begins"
        assert number == 0 or spans[number - 1].span < span.span, "spans are out of order"
        at = span.next_offsets
    assert is_same(at, progress), f"the chain ends at {at}, not at {progress}"
