"""Offsets of a source to those of its mirror: nothing is ever missed, and little is read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.mirror.offset_syncs import OffsetSyncs, encode_run
from headrace.client.mirror.offset_translation import OffsetTranslation, Piece, Run, slot_of, thinned
from headrace.client.types import TopicPartition

#: Gaps at the source and at the target before a run, and its length.
RUNS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 6)), max_size=300)
ORDERS_0 = TopicPartition("orders", 0)


class Mirrored:
    """Records as they lie on both sides, and the translation between."""

    def __init__(self, runs, first_source=0, first_target=0):
        self.translation = OffsetTranslation()
        self.stored: dict[tuple[int, int], Run] = {}
        #: (offset here, offset there) of each record.
        self.records: list[tuple[int, int]] = []
        self.pieces: list[Piece] = []
        source, target = first_source, first_target
        for source_gap, target_gap, length in runs:
            source, target = source + source_gap, target + target_gap
            piece = Piece(source, target, length)
            self.pieces.append(piece)
            run = self.translation.add(piece)
            self.stored[slot_of(run.number)] = run
            self.records += [(source + at, target + at) for at in range(length)]
            source, target = source + length, target + length
        self.source_end = source

    def exact(self, offset: int) -> int | None:
        """Returns the offset of the next record for a reader at the source's offset; None behind the last record."""
        return next((there for here, there in self.records if here >= offset), None)

    def read_again(self, offset: int) -> int:
        """How many records from before the offset come again at its translation."""
        translated = self.translation.translate(offset)
        return sum(1 for here, there in self.records if here < offset and there >= translated)


@given(RUNS, st.integers(0, 50), st.integers(0, 50))
def test_nothing_is_missed(runs, first_source, first_target):
    mirrored = Mirrored(runs, first_source, first_target)
    for offset in range(mirrored.source_end + 3):
        translated, exact = mirrored.translation.translate(offset), mirrored.exact(offset)
        if exact is not None:
            assert translated <= exact
        elif runs:
            assert translated == mirrored.records[-1][1] + 1


@given(RUNS)
def test_what_is_recent_is_exact(runs):
    mirrored = Mirrored(runs)
    for piece in mirrored.pieces[-60:]:
        for offset in range(piece.source_first, piece.source_first + piece.length + 1):
            assert mirrored.read_again(offset) == 0


@given(RUNS)
def test_what_a_compacted_topic_keeps_is_what_is_kept(runs):
    mirrored = Mirrored(runs)
    loaded = OffsetTranslation(mirrored.stored.values())
    assert loaded.source_end == mirrored.translation.source_end
    for offset in range(mirrored.source_end + 2):
        assert loaded.translate(offset) == mirrored.translation.translate(offset)


def test_history_is_thinned_by_age():
    mirrored = Mirrored([(0, 1, 10)] * 20_000)
    assert len(mirrored.translation) < 32 * 15
    for age in (100, 1_000, 10_000):
        offset = 10 * (20_000 - age)
        exact = 11 * (20_000 - age) + 1
        behind = exact - mirrored.translation.translate(offset)
        assert 0 <= behind <= 11 * age / 16
    assert mirrored.translation.translate(0) == 1


@given(RUNS, RUNS, st.integers(0, 30))
def test_a_source_that_begins_anew(before, after, again_from):
    """Its log was deleted or cut: the offsets that count are those of what came last."""
    first = Mirrored(before)
    target = first.records[-1][1] + 1 if first.records else 0
    second = Mirrored([])
    second.translation = first.translation
    source = again_from
    for source_gap, target_gap, length in after:
        source, target = source + source_gap, target + target_gap
        second.translation.add(Piece(source, target, length))
        second.records += [(source + at, target + at) for at in range(length)]
        source, target = source + length, target + length
    for offset in range(again_from, source):
        assert second.translation.translate(offset) <= second.exact(offset)


def test_a_run_that_goes_on_keeps_its_number():
    translation = OffsetTranslation()
    assert translation.add(Piece(5, 0, 10)) == Run(0, 5, 0, 10)
    assert translation.add(Piece(15, 10, 5)) == Run(0, 5, 0, 15)
    assert translation.add(Piece(20, 16, 1)) == Run(1, 20, 16, 1)
    assert [translation.translate(offset) for offset in (0, 5, 19, 20, 21, 99)] == [0, 0, 14, 16, 17, 17]


def test_a_mirror_that_lost_its_end():
    translation = OffsetTranslation([Run(0, 0, 0, 10), Run(1, 10, 11, 10), Run(2, 20, 22, 10)])
    translation.add(Piece(10, 11, 5))
    assert translation.translate(25) == 16
    assert translation.translate(4) == 4


def test_nothing_is_translated_before_anything_is_mirrored():
    assert OffsetTranslation().translate(7) is None
    assert OffsetTranslation().source_end is None


@given(st.integers(0, 200), st.integers(2, 40))
def test_thinning_keeps_the_ends(count, most):
    pieces = [Piece(at * 3, at * 2, 1) for at in range(count)]
    kept = thinned(pieces, most)
    assert len(kept) == min(count, most)
    assert kept == sorted(set(kept))
    if count:
        assert (kept[0], kept[-1]) == (pieces[0], pieces[-1])


def test_runs_are_stored_and_loaded():
    syncs = OffsetSyncs()
    syncs.start(ORDERS_0, "id-1")
    stored = list(syncs.add(ORDERS_0, "id-1", [Piece(0, 5, 3), Piece(3, 8, 2), Piece(9, 10, 1)]))
    assert len(stored) == 2
    assert stored[0] == (
        b'{"topic":"orders","partition":0,"level":-1,"slot":0}',
        b'{"topic_id":"id-1","number":0,"source":0,"target":5,"count":5}',
    )
    loaded = OffsetSyncs()
    for key, value in stored:
        loaded.load(key, value)
    translation = loaded.start(ORDERS_0, "id-1")
    assert (translation.translate(4), translation.translate(9), translation.source_end) == (9, 10, 10)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"{}", b"{}"), (b"[]", b"7"), (b"\xff", b"{}"), (b'{"topic":"a"}', b"null")]
)
def test_what_others_wrote_is_left_alone(key, value):
    syncs = OffsetSyncs()
    syncs.load(key, value)
    assert syncs.start(ORDERS_0, "").source_end is None


def test_runs_of_a_deleted_topic_do_not_count():
    syncs = OffsetSyncs()
    syncs.load(*encode_run(ORDERS_0, "the old one", Run(0, 0, 0, 9)))
    assert syncs.start(ORDERS_0, "the new one").source_end is None
