"""The tree on disk: a log that is cut at any byte loads all complete records."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.coordination.interface import Create, Delete, Operation, SetData
from headrace.coordination.tree.store import CorruptTreeError, TreeStore, decode_data, encode_data, encode_record
from headrace.coordination.tree.znode_tree import Transaction, ZnodeTree


def submit(store: TreeStore, session_id: int, *operations: Operation) -> None:
    store.commit(store.tree.prepare(session_id, operations, time_ms=5))


def open_session(store: TreeStore) -> int:
    transaction = store.tree.prepare_open_session(9_000, time_ms=4)
    store.commit(transaction)
    return transaction.session_id


def content(tree: ZnodeTree) -> object:
    return tree.last_zxid, tree.sessions, tree.nodes


def fill(store: TreeStore) -> list[Transaction]:
    """A bit of everything; what was committed."""
    session_id = open_session(store)
    transactions: list[Transaction] = []

    def do(*operations: Operation) -> None:
        transactions.append(store.tree.prepare(session_id, operations, time_ms=5))
        store.commit(transactions[-1])

    do(Create("/a", "é主".encode()), Create("/a/n_", b"\xff\x00", sequence=True))
    do(Create("/mine", ephemeral=True))
    do(SetData("/a", b'{"version":1}'))
    do(Create("/null", None), Create("/nulled", b"x"), SetData("/nulled", None), Create("/empty", b""))
    do(Create("/gone"))
    do(Delete("/gone"))
    other = open_session(store)
    store.commit(store.tree.prepare_close_session(other, time_ms=6))
    return transactions


def test_what_was_committed_is_there_again(tmp_path):
    store = TreeStore(tmp_path)
    fill(store)
    expected = content(store.tree)
    store.close()
    store.close()
    again = TreeStore(tmp_path)
    assert content(again.tree) == expected
    assert again.tree.get("/a")[0] == b'{"version":1}'
    assert again.tree.get("/a/n_0000000000")[0] == b"\xff\x00"
    assert again.tree.ephemerals(1) == ["/mine"]
    assert [again.tree.nodes[path].data for path in ("/null", "/nulled", "/empty")] == [None, None, b""]
    again.close()


def test_a_headrace_that_does_not_know_null_reads_it_as_empty():
    # Until null was kept, such a value was read by its base64 alone.
    assert encode_data(None)["base64"] == ""
    assert decode_data(encode_data(None)) is None
    assert decode_data("") == decode_data({"base64": ""}) == b""


def test_a_change_has_reached_the_file_before_the_call_returns(tmp_path):
    store = TreeStore(tmp_path)
    fill(store)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(tmp_path / "tree.log", copy)
    again = TreeStore(copy)
    assert content(again.tree) == content(store.tree)
    again.close()
    store.close()


@pytest.mark.parametrize("snapshot_after", [None, 3])
def test_cut_at_every_byte_it_loads_to_the_last_whole_transaction_and_goes_on(tmp_path, snapshot_after):
    source = tmp_path / "source"
    store = TreeStore(source)
    session_id = open_session(store)
    for number in range(3):
        submit(store, session_id, Create(f"/before-{number}"))
    if snapshot_after is not None:
        store.snapshot()
    ends: list[int] = [(source / "tree.log").stat().st_size]
    states = [content_copy(store)]
    for number in range(4):
        submit(store, session_id, Create(f"/n{number}", bytes([255, number])), SetData("/", b"x" * number))
        ends.append((source / "tree.log").stat().st_size)
        states.append(content_copy(store))
    store.close()
    log = (source / "tree.log").read_bytes()
    for cut in range(ends[0], len(log) + 1):
        folder = tmp_path / "cut"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        os.truncate(folder / "tree.log", cut)
        whole = max(index for index, end in enumerate(ends) if end <= cut)
        loaded = TreeStore(folder)
        assert content_copy(loaded) == states[whole]
        assert (folder / "tree.log").stat().st_size == ends[whole]
        submit(loaded, session_id, Create("/after"))
        loaded.close()
        again = TreeStore(folder)
        assert again.tree.exists("/after") is not None
        again.close()


def content_copy(store: TreeStore) -> object:
    return store.tree.last_zxid, [(path, store.tree.get(path)) for path in sorted(store.tree.nodes)]


@pytest.mark.parametrize("tail", [b"\x00" * 64, b"\xff" * 64, b"\x00\x00\x00\x05\x00\x00\x00\x00hello"])
def test_what_is_not_a_record_is_cut_off_and_said(tmp_path, tail, caplog):
    store = TreeStore(tmp_path)
    fill(store)
    expected = content(store.tree)
    store.close()
    with open(tmp_path / "tree.log", "ab") as file:
        file.write(tail)
    again = TreeStore(tmp_path)
    assert content(again.tree) == expected
    assert f"cut off {len(tail)} bytes" in caplog.text
    again.close()


def test_a_long_log_becomes_a_snapshot(tmp_path):
    store = TreeStore(tmp_path, snapshot_at_bytes=2_000)
    session_id = open_session(store)
    for number in range(200):
        submit(store, session_id, SetData("/", b"%d" % number))
        assert (tmp_path / "tree.log").stat().st_size < 2_100
    submit(store, session_id, Create("/mine", ephemeral=True))
    expected = content(store.tree)
    store.close()
    assert (tmp_path / "tree.snapshot").exists()
    again = TreeStore(tmp_path)
    assert content(again.tree) == expected
    assert again.tree.ephemerals(session_id) == ["/mine"]
    again.close()


def test_dying_between_snapshot_and_emptying_the_log_repeats_nothing(tmp_path):
    store = TreeStore(tmp_path)
    fill(store)
    expected = content(store.tree)
    log = (tmp_path / "tree.log").read_bytes()
    store.snapshot()
    store.close()
    (tmp_path / "tree.log").write_bytes(log)
    (tmp_path / "tree.snapshot.new").write_bytes(b"half a snaps")
    again = TreeStore(tmp_path)
    assert content(again.tree) == expected
    again.snapshot()
    again.close()


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-1], lambda data: data[:5], lambda data: b"", lambda data: data[:20] + b"?" + data[21:]],
)
def test_a_damaged_snapshot_is_refused(tmp_path, damage):
    store = TreeStore(tmp_path)
    fill(store)
    store.snapshot()
    store.close()
    path = tmp_path / "tree.snapshot"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptTreeError):
        TreeStore(tmp_path)


def test_a_missing_snapshot_is_noticed(tmp_path):
    store = TreeStore(tmp_path)
    fill(store)
    store.snapshot()
    open_session(store)
    store.close()
    (tmp_path / "tree.snapshot").unlink()
    with pytest.raises(CorruptTreeError, match="snapshot missing"):
        TreeStore(tmp_path)


def test_a_folder_has_one_owner(tmp_path):
    store = TreeStore(tmp_path)
    with pytest.raises(BlockingIOError):
        TreeStore(tmp_path)
    store.close()
    TreeStore(tmp_path).close()


class FullDisk:
    """Takes half of what it is given, then nothing."""

    def __init__(self) -> None:
        self.calls = 0

    def write(self, fd: int, data: memoryview) -> int:
        self.calls += 1
        if self.calls > 1:
            raise OSError(28, "No space left on device")
        return REAL_WRITE(fd, data[: len(data) // 2])


REAL_WRITE = os.write


def test_a_full_disk_refuses_the_change_and_harms_nothing_after(tmp_path, monkeypatch):
    store = TreeStore(tmp_path)
    session_id = open_session(store)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", FullDisk().write)
        with pytest.raises(OSError, match="No space"):
            submit(store, session_id, Create("/refused"))
    assert store.tree.exists("/refused") is None
    submit(store, session_id, Create("/later"))
    store.close()
    again = TreeStore(tmp_path)
    assert again.tree.children("/") == ["later"]
    again.close()


def test_a_snapshot_that_cannot_be_written_does_not_fail_the_change(tmp_path, monkeypatch, caplog):
    store = TreeStore(tmp_path, snapshot_at_bytes=1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        session_id = open_session(store)
        submit(store, session_id, Create("/a"))
    assert "cannot write a snapshot" in caplog.text
    store.close()
    again = TreeStore(tmp_path)
    assert again.tree.children("/") == ["a"]
    again.close()


def test_an_unknown_layout_is_refused(tmp_path):
    (tmp_path / "tree.log").write_bytes(encode_record([2, 1, 1, 0, []]))
    with pytest.raises(CorruptTreeError, match="layout version 2"):
        TreeStore(tmp_path)


WRITER = """
import sys
from pathlib import Path
from headrace.coordination.interface import Create
from headrace.coordination.tree.store import TreeStore
store = TreeStore(Path(sys.argv[1]), snapshot_at_bytes=20_000)
transaction = store.tree.prepare_open_session(9_000, 0)
store.commit(transaction)
for number in range(1_000_000):
    store.commit(store.tree.prepare(transaction.session_id, [Create(f"/{number}")], 0))
    print(number, flush=True)
"""


def test_killed_under_load_it_has_all_that_was_answered(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answered = -1
        while answered < 700:
            answered = int(process.stdout.readline())
        process.kill()
        rest = process.stdout.read().split(b"\n")[:-1]
        answered = int(rest[-1]) if rest else answered
    store = TreeStore(tmp_path)
    found = {int(name) for name in store.tree.children("/")}
    assert found in ({*range(answered + 1)}, {*range(answered + 2)})
    store.close()
