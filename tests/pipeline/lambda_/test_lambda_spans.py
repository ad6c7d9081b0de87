"""Spans and cuts: in any order of operations, every offset is covered once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.lambda_.spans import (
    MAX_SPANS,
    CutLost,
    check_chain,
    merged,
    split_at,
    to_merge,
)
from headrace.pipeline.progress.offsets import updated
from headrace.pipeline.serving.catalog_tables.versions import Offsets, Span


def point(**topics: int) -> Offsets:
    return {topic: {0: offset} for topic, offset in topics.items()}


def span(number: int, first: int, end: int, rows: int = 1) -> Span:
    return Span("pages", 1, number, point(clicks=first), point(clicks=end), rows)


def test_a_cut_is_where_a_span_ends_or_the_chain_begins():
    chain = [span(1, 5, 10), span(2, 10, 20), span(3, 20, 30)]
    assert split_at(chain, point(clicks=5)) == ([], chain)
    assert split_at(chain, point(clicks=20)) == (chain[:2], chain[2:])
    assert split_at(chain, point(clicks=30)) == (chain, [])
    assert split_at([], point(clicks=17)) == ([], [])
    for offset in (0, 4, 15, 31):
        with pytest.raises(CutLost, match="no span ends"):
            split_at(chain, point(clicks=offset))
    crosswise = Span("pages", 1, 4, point(clicks=30), {"clicks": {0: 30, 1: 7}}, 1)
    with pytest.raises(CutLost):
        split_at([*chain, crosswise], {"clicks": {0: 30, 1: 6}})


def test_few_spans_are_left_alone_and_a_cut_under_way_too():
    chain = [span(number, number, number + 1, rows=10) for number in range(MAX_SPANS + 5)]
    assert to_merge(chain[:MAX_SPANS]) == []
    assert to_merge(chain) == chain
    assert to_merge(chain, point(clicks=3)) == chain[3:], "what the batch is going to cover will be gone soon"
    assert to_merge(chain, point(clicks=6)) == []
    with pytest.raises(CutLost):
        to_merge([span(1, 0, 10), *[span(10 + n, 10 + n, 11 + n) for n in range(20)]], point(clicks=5))


def test_large_spans_are_not_written_again_for_small_ones():
    chain = [span(0, 0, 1, rows=1000), *[span(n, n, n + 1, rows=10) for n in range(1, MAX_SPANS + 1)]]
    assert to_merge(chain) == chain[1:]
    made = merged(chain[1:], 120)
    assert made == Span("pages", 1, MAX_SPANS, point(clicks=1), point(clicks=MAX_SPANS + 1), 120)


def test_a_row_is_written_again_a_few_times_only():
    chain: list[Span] = []
    written = 0
    for number in range(3000):
        chain.append(span(number, number, number + 1, rows=100))
        if chosen := to_merge(chain):
            made = merged(chosen, sum(each.rows for each in chosen))  # the worst case: no key occurs twice
            chain = [*chain[: -len(chosen)], made]
            written += made.rows
        assert len(chain) <= MAX_SPANS
    check_chain(point(clicks=0), chain, point(clicks=3000))
    assert written / (3000 * 100) <= math.log2(3000), "of each row, on average"


# ------------------------------------------------------------------------------------------- any sequence of steps

places = st.tuples(st.sampled_from(["clicks", "orders"]), st.integers(0, 2))
micro_batches = st.dictionaries(places, st.integers(0, 50), max_size=3).map(lambda moved: ("read", moved))
steps = st.lists(
    st.one_of(micro_batches, micro_batches, micro_batches, st.sampled_from([("cut", {}), ("land", {}), ("merge", {})])),
    max_size=80,
)


@dataclass
class Model:
    """A view as the bookkeeping sees it; ``covered`` are the offsets that each span has read, one by one."""

    progress: Offsets = field(default_factory=dict)
    cut: Offsets = field(default_factory=dict)
    under_way: Offsets | None = None
    in_batch: list[tuple[str, int, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    covered: dict[int, list[tuple[str, int, int]]] = field(default_factory=dict)
    number: int = 0

    def read(self, moved: dict[tuple[str, int], int]) -> None:
        further: dict[str, dict[int, int]] = {}
        seen = []
        for (topic, partition), count in moved.items():
            start = self.progress.get(topic, {}).get(partition, 0)
            further.setdefault(topic, {})[partition] = start + count
            seen += [(topic, partition, offset) for offset in range(start, start + count)]
        self.number += 1
        after = updated(self.progress, further)
        self.spans.append(Span("pages", 1, self.number, self.progress, after, len(seen)))
        self.covered[self.number] = seen
        self.progress = after

    def start_batch(self) -> None:
        self.under_way = self.under_way or self.progress

    def land(self) -> None:
        if self.under_way is not None:
            gone, self.spans = split_at(self.spans, self.under_way)
            for each in gone:
                self.in_batch += self.covered.pop(each.span)
            self.cut, self.under_way = self.under_way, None

    def merge(self) -> None:
        if chosen := to_merge(self.spans, self.under_way):
            seen = [one for each in chosen for one in self.covered.pop(each.span)]
            made = merged(chosen, len(seen))
            self.covered[made.span] = seen
            at = self.spans.index(chosen[0])
            self.spans[at : at + len(chosen)] = [made]

    def check(self) -> None:
        check_chain(self.cut, self.spans, self.progress)
        assert self.covered.keys() == {each.span for each in self.spans}
        everything = self.in_batch + [one for seen in self.covered.values() for one in seen]
        expected = {
            (topic, partition, offset)
            for topic, partitions in self.progress.items()
            for partition, end in partitions.items()
            for offset in range(end)
        }
        assert len(everything) == len(set(everything)), "something is covered twice"
        assert set(everything) == expected


@settings(deadline=None, database=None)
@given(steps)
def test_everything_is_covered_once_whatever_happens(sequence):
    model = Model()
    for what, moved in sequence:
        match what:
            case "read":
                model.read(moved)
                model.merge()
            case "cut":
                model.start_batch()
            case "land":
                model.land()
            case "merge":
                model.merge()
        model.check()


def test_a_chain_with_a_gap_or_an_overlap_is_no_chain():
    for chain in ([span(1, 0, 10), span(2, 11, 20)], [span(1, 0, 10), span(2, 9, 20)], [span(1, 0, 19)],
                  [span(2, 0, 10), span(1, 10, 20)]):  # fmt: skip
        with pytest.raises(AssertionError):
            check_chain({}, chain, point(clicks=20))
