"""The index files: their bytes, their lookups, and the rebuilding of damaged ones."""

import struct
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.checkpoints import read_offsets, write_offsets
from headrace.log.disk import Disk
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.offset_index import OffsetIndex
from headrace.log.time_index import TimeIndex
from headrace.log.txn_index import AbortedTxn, TxnIndex

places = st.integers(0, 120)
rising = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 5000)), max_size=200)


def summed(steps):
    offset = position = 0
    entries = []
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    return entries


@settings(deadline=None, max_examples=50)
@given(steps=rising, probe=st.integers(0, 10**6))
def test_an_offset_index_finds_the_last_entry_at_or_below(tmp_path_factory, steps, probe):
    path = tmp_path_factory.mktemp("index") / "0.index"
    index, entries = OffsetIndex(Disk(), str(path)), summed(steps)
    for entry in entries:
        index.append(*entry)
    index.write_out()
    loaded = OffsetIndex(Disk(), str(path))
    assert loaded.load(10**9) == bool(steps)
    assert loaded.entries == index.entries
    if entries:
        assert path.read_bytes() == b"".join(struct.pack(">ii", *entry) for entry in entries)
        assert not OffsetIndex(Disk(), str(path)).load(entries[-1][1])
    assert index.lookup(probe) == max((p for o, p in entries if o <= probe), default=0)
    assert index.last_position_within(probe) == max((p for _, p in entries if p <= probe), default=0)
    index.truncate(probe, 10**9)
    kept = [entry for entry in entries if entry[0] < probe]
    assert path.read_bytes() == b"".join(struct.pack(">ii", *entry) for entry in kept)


@settings(deadline=None, max_examples=50)
@given(steps=rising, probe=st.integers(0, 10**6))
def test_a_time_index_says_before_which_offset_all_is_older(tmp_path_factory, steps, probe):
    path = tmp_path_factory.mktemp("index") / "0.timeindex"
    index, entries = TimeIndex(Disk(), str(path)), [(time, offset) for offset, time in summed(steps)]
    for entry in entries:
        index.append(*entry)
        index.append(entry[0] - 1, entry[1])
    index.write_out()
    assert index.lookup(probe) == max((o for t, o in entries if t < probe), default=0)
    loaded = TimeIndex(Disk(), str(path))
    assert loaded.load() == bool(steps)
    assert loaded.timestamps == index.timestamps
    if entries:
        assert path.read_bytes() == b"".join(struct.pack(">qi", *entry) for entry in entries)
    index.truncate(probe)
    assert list(index.relative_offsets) == [o for _, o in entries if o < probe]


def test_a_txn_index_ignores_a_torn_entry(tmp_path):
    path = tmp_path / "0.txnindex"
    entries = [AbortedTxn(1, 2, 3, 4), AbortedTxn(5, 6, 7, 8)]
    index = TxnIndex(Disk(), str(path))
    for entry in entries:
        index.append(entry)
    assert path.read_bytes() == b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
    path.write_bytes(path.read_bytes()[:-1])
    index = TxnIndex(Disk(), str(path))
    assert index.entries == entries[:1]
    index.append(entries[1])
    assert TxnIndex(Disk(), str(path)).entries == entries
    index.truncate(7)
    assert TxnIndex(Disk(), str(path)).entries == entries[:1]


def test_checkpoints_are_kafkas_text(tmp_path, caplog):
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    offsets = {("a", 0): 5, ("b-c.d", 12): 2**62}
    write_offsets(Disk(), path, offsets.items())
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == f"0\n2\na 0 5\nb-c.d 12 {2**62}\n"
    assert read_offsets(Disk(), path) == offsets
    for damaged in ("", "0\n3\na 0 5\n", "x\n", "1\n0\n", "\xff"):
        (tmp_path / "recovery-point-offset-checkpoint").write_text(damaged)
        assert read_offsets(Disk(), path) == {}
    assert "damaged" in caplog.text
    assert read_offsets(Disk(), str(tmp_path / "none")) == {}


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=30), st.integers(0, 120), st.integers(0, 120)
)
def test_epochs_and_offsets_both_rise(tmp_path_factory, begins, start, end):
    folder = str(tmp_path_factory.mktemp("epochs"))
    epochs, offset = LeaderEpochs(Disk(), folder), 0
    for epoch, step in begins:
        epochs.begin(epoch, offset)
        offset += step
    epochs.cut_start(min(start, offset))
    epochs.cut_end(end)
    loaded = LeaderEpochs(Disk(), folder)
    loaded.cut_start(min(start, offset))
    assert loaded.entries == epochs.entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(loaded.entries))
    epochs.write_out()
    assert LeaderEpochs(Disk(), folder).entries == epochs.entries


def test_an_epoch_is_written_down_with_its_first_batch(tmp_path):
    epochs = LeaderEpochs(Disk(), str(tmp_path))
    epochs.begin(1, 0)
    epochs.begin(2, 5, has_batch=False)
    assert epochs.latest == 2
    assert epochs.end_offset(1, 5) == (1, 5)
    assert LeaderEpochs(Disk(), str(tmp_path)).entries == [(1, 0)]
    epochs.begin(3, 5, has_batch=False)
    assert epochs.entries == [(1, 0), (3, 5)]
    epochs.begin(3, 5)
    assert LeaderEpochs(Disk(), str(tmp_path)).entries == epochs.entries == [(1, 0), (3, 5)]
    epochs.begin(4, 9, has_batch=False)
    epochs.cut_end(9)
    assert LeaderEpochs(Disk(), str(tmp_path)).entries == epochs.entries == [(1, 0), (3, 5)]
    epochs.begin(4, 9, has_batch=False)
    epochs.cut_start(6)
    epochs.write_out()
    assert LeaderEpochs(Disk(), str(tmp_path)).entries == [(3, 6)]
    epochs.begin(4, 9)
    assert LeaderEpochs(Disk(), str(tmp_path)).entries == epochs.entries == [(3, 6), (4, 9)]
