"""Access control lists on disk, and who may read the files of a tree."""

import os
import stat

import pytest

from headrace.coordination.acls import ALL_PERMISSIONS, OPEN_ACL, AclEntry, Permission
from headrace.coordination.interface import Create
from headrace.coordination.tree.store import TreeStore, encode_record, session_secret
from headrace.coordination.tree.znode_tree import SetAcl

PRIVATE = (AclEntry(ALL_PERMISSIONS, "digest", "alice:hash"),)
READABLE = (*PRIVATE, AclEntry(Permission.READ, "world", "anyone"))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def fill(store):
    opened = store.tree.prepare_open_session(9_000, time_ms=4)
    store.commit(opened)
    creations = [
        Create("/open"), Create("/private", acl=PRIVATE), Create("/also", acl=PRIVATE), Create("/changed"),
        Create("/opened", acl=PRIVATE),
    ]  # fmt: skip
    store.commit(store.tree.prepare(opened.session_id, creations, time_ms=5))
    for change in (SetAcl("/changed", READABLE), SetAcl("/opened", OPEN_ACL), SetAcl("/opened", OPEN_ACL)):
        store.commit(store.tree.prepare_acl(opened.session_id, change, time_ms=6))


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_lists_are_there_again(tmp_path, is_snapshot):
    store = TreeStore(tmp_path)
    fill(store)
    if is_snapshot:
        store.snapshot()
    expected = store.tree.nodes
    store.close()
    nodes = TreeStore(tmp_path).tree.nodes
    assert nodes == expected
    assert nodes["/open"].acl is nodes["/opened"].acl is nodes["/"].acl is OPEN_ACL
    assert nodes["/private"].acl is nodes["/also"].acl
    assert [nodes[path].aversion for path in ("/open", "/changed", "/opened")] == [0, 1, 2]


def test_a_tree_from_before_there_were_lists_is_open(tmp_path):
    log = [
        [1, 1, 1, 5, [["open", 9_000]]],
        [1, 2, 1, 5, [["create", "/a", "x", False], ["create", "/a/b", "", True]]],
    ]
    (tmp_path / "tree.log").write_bytes(b"".join(map(encode_record, log)))
    store = TreeStore(tmp_path)
    assert {path: node.acl for path, node in store.tree.nodes.items()} == dict.fromkeys(("/", "/a", "/a/b"), OPEN_ACL)
    store.close()
    snapshot = [[1, 2, {"1": 9_000}, 2], ["/", "", 0, 0, 2, 0, 0, 0, 0, 1], ["/a", "x", 2, 2, 2, 5, 5, 0, 0, 0]]
    (tmp_path / "tree.snapshot").write_bytes(b"".join(map(encode_record, snapshot)))
    (tmp_path / "tree.log").write_bytes(b"")
    assert TreeStore(tmp_path).tree.nodes["/a"].acl is OPEN_ACL


def test_only_the_owner_may_read_a_tree(tmp_path):
    before = os.umask(0)
    try:
        store = TreeStore(tmp_path / "data" / "tree")
        fill(store)
        store.snapshot()
        session_secret(tmp_path / "data" / "tree")
        store.close()
    finally:
        os.umask(before)
    folder = tmp_path / "data" / "tree"
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == dict.fromkeys(
        ("tree.log", "tree.snapshot", "session.secret"), 0o600
    )


def test_files_that_others_could_read_are_closed(tmp_path):
    store = TreeStore(tmp_path)
    fill(store)
    store.snapshot()
    store.close()
    for name in ("tree.log", "tree.snapshot"):
        (tmp_path / name).chmod(0o644)
    TreeStore(tmp_path).close()
    assert [mode(tmp_path / name) for name in ("tree.log", "tree.snapshot")] == [0o600, 0o600]
