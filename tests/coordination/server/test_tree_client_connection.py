"""One client of a served tree: sessions on a manual clock, the order of watch events, the error codes of ZooKeeper."""

import struct

import pytest
from connection_harness import ConnectionHarness
from kazoo import exceptions as refused
from kazoo.protocol.serialization import (
    Auth,
    CheckVersion,
    Connect,
    Create,
    Create2,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    Reconfig,
    SetACL,
    SetData,
    Sync,
    Transaction,
    write_string,
)
from kazoo.security import OPEN_ACL_UNSAFE

from headrace.coordination.server.jute import Malformed
from headrace.coordination.tree.store import TreeStore

ADD_WATCH, SET_WATCHES, SET_WATCHES2, CHECK_WATCHES, REMOVE_WATCHES = 106, 101, 105, 17, 18
PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2


def create(path, data=b"", flags=PERSISTENT, acl=OPEN_ACL_UNSAFE):
    return Create(path, data, acl, flags)


def strings(*texts):
    return struct.pack(">i", len(texts)) + b"".join(map(write_string, texts))


@pytest.fixture
def harness():
    return ConnectionHarness()


# Connecting


def test_a_session_gets_the_timeout_that_it_wants_within_two_and_twenty_ticks(harness):
    assert harness.client(10_000).timeout_ms == 10_000
    assert harness.client(1).timeout_ms == 2_000
    assert harness.client(1_000_000).timeout_ms == 20_000
    assert harness.client().session_id != harness.client().session_id


def test_a_client_older_than_read_only_mode_gets_the_older_answer(harness):
    client = harness.connection()
    request = bytes(Connect(0, 0, 10_000, 0, bytes(16), False).serialize())
    client.connection.receive(request[:-1])
    assert len(client._frames.pop()) == 4 + 4 + 8 + 4 + 16


def test_a_session_outlives_its_connection(harness):
    client = harness.client()
    client.ask(create("/mine", flags=EPHEMERAL))
    client.connection.connection_lost()
    harness.passes(9_999)
    again = client.comes_back()
    assert again.session_id == client.session_id
    harness.passes(9_999)
    again.ping()
    harness.passes(9_999)
    assert again.ask(Exists("/mine", None)).ephemeralOwner == client.session_id


def test_a_client_that_comes_back_takes_its_session_from_the_old_connection(harness):
    client = harness.client()
    client.ask(GetChildren("/", print))
    again = client.comes_back()
    assert client.is_closed
    assert not again.is_closed
    assert len(harness.host.tree.watches) == 0
    client.connection.connection_lost()
    again.ask(GetChildren("/", print))
    assert len(harness.host.tree.watches) == 1


@pytest.mark.parametrize("wrong", [{"password": b"x" * 16}, {"password": b""}, {"session_id": 77}, {"session_id": -1}])
def test_who_has_no_such_session_is_told_that_it_has_expired(harness, wrong):
    client = harness.client()
    other = client.comes_back(**wrong)
    assert (other.timeout_ms, other.session_id, other.is_closed) == (0, 0, True)
    client.ping()


def test_a_client_of_another_tree_is_turned_away(harness):
    client = harness.connection()
    with pytest.raises(Malformed, match="has seen"):
        client.connect(last_zxid=1)


def test_a_connection_that_says_nothing_is_closed(harness):
    silent, client = harness.connection(), harness.client()
    harness.passes(9_999)
    client.ping()
    assert not silent.is_closed
    harness.passes(1)
    assert silent.is_closed
    assert not client.is_closed
    assert list(harness.service.connections) == [client.connection]


# Expiry


def test_a_silent_session_expires_and_its_ephemerals_go(harness):
    silent, client = harness.client(10_000), harness.client(20_000)
    silent.ask(create("/here", flags=EPHEMERAL))
    client.ask(Exists("/here", print))
    harness.passes(9_999)
    assert client.take_events() == []
    harness.passes(1)
    assert client.take_events() == [("deleted", "/here")]
    assert silent.is_closed
    assert silent.comes_back().timeout_ms == 0
    assert harness.service.sessions.expired_count == 1


def test_every_request_keeps_a_session_alive(harness):
    client = harness.client(10_000)
    for request in (create("/a"), GetData("/a", None), SetData("/a", b"", -1)):
        harness.passes(9_000)
        client.ask(request)
    harness.passes(9_999)
    client.ping()
    harness.passes(10_000)
    assert client.is_closed


def test_sessions_are_not_charged_for_a_time_in_which_we_slept(harness):
    client = harness.client(10_000)
    client.ask(create("/here", flags=EPHEMERAL))
    harness.clock.advance(60_000)
    harness.timer.advance()  # before its ping is read, which came meanwhile
    client.ping()
    assert client.ask(GetChildren("/", None)) == ["here"]
    harness.passes(9_999)
    assert not client.is_closed
    harness.passes(10_000)
    assert client.is_closed


def test_a_closed_session_takes_its_ephemerals_at_once(harness):
    client, other = harness.client(), harness.client()
    client.ask(create("/here", flags=EPHEMERAL))
    client.close()
    assert client.is_closed
    assert other.ask(GetChildren("/", None)) == []
    assert client.comes_back().timeout_ms == 0
    harness.passes(100_000)
    assert harness.service.sessions.expired_count == 1  # the other one


def test_sessions_have_their_whole_timeout_again_after_a_restart(tmp_path):
    harness = ConnectionHarness(TreeStore.open(tmp_path))
    client = harness.client()
    client.ask(create("/here", flags=EPHEMERAL))
    harness.passes(9_000)
    harness.host.close()
    restarted = ConnectionHarness(TreeStore.open(tmp_path), harness.clock)
    restarted.passes(9_999)
    client.harness = restarted
    again = client.comes_back()
    again.ask(GetData("/here", print))
    watcher = restarted.client()
    watcher.ask(Delete("/here", -1))
    assert again.take_events() == [("deleted", "/here")]
    restarted.passes(10_000)
    assert again.comes_back().timeout_ms == 0
    restarted.host.close()


# Requests


def test_create_in_all_modes(harness):
    client = harness.client()
    assert client.ask(create("/a", b"x")) == "/a"
    assert client.ask(create("/a/n-", flags=SEQUENTIAL)) == "/a/n-0000000000"
    path, stat = client.ask(Create2("/a/n-", b"yz", OPEN_ACL_UNSAFE, SEQUENTIAL | EPHEMERAL))
    assert (path, stat.ephemeralOwner, stat.dataLength) == ("/a/n-0000000001", client.session_id, 2)
    assert client.ask(GetData("/a", None))[0] == b"x"
    assert client.ask(GetChildren("/a", None)) == ["n-0000000000", "n-0000000001"]
    names, stat = client.ask(GetChildren2("/a", None))
    assert (len(names), stat.numChildren, stat.cversion) == (2, 2, 2)


def test_what_is_not_supported_says_so(harness):
    client = harness.client()
    for mode in (4, 5, 6):
        with pytest.raises(refused.UnimplementedError):
            client.ask(create("/x", flags=mode))
    with pytest.raises(refused.BadArgumentsError):
        client.ask(create("/x", flags=9))
    with pytest.raises(refused.UnimplementedError):
        client.ask(Reconfig("", "", "", 1))
    with pytest.raises(refused.UnimplementedError):
        client.ask_raw(4711, b"whatever")
    assert client.ask(GetChildren("/", None)) == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (create("/a"), refused.NodeExistsError),
        (create("/x/y"), refused.NoNodeError),
        (create("/e/y"), refused.NoChildrenForEphemeralsError),
        (create("x"), refused.BadArgumentsError),
        (create(""), refused.BadArgumentsError),
        (create("/a\0b"), refused.BadArgumentsError),
        (Delete("/a", -1), refused.NotEmptyError),
        (Delete("/a/b", 7), refused.BadVersionError),
        (Delete("/x", -1), refused.NoNodeError),
        (Delete("/", -1), refused.BadArgumentsError),
        (SetData("/a", b"", 7), refused.BadVersionError),
        (SetData("/x", b"", -1), refused.NoNodeError),
        (GetData("/x", None), refused.NoNodeError),
        (Exists("/x", None), refused.NoNodeError),
        (GetChildren("/x", None), refused.NoNodeError),
        (GetChildren2("/x", None), refused.NoNodeError),
        (GetACL("/x"), refused.NoNodeError),
        (SetACL("/a", [], -1), refused.InvalidACLError),
        (SetACL("/a", OPEN_ACL_UNSAFE, 1), refused.BadVersionError),
        (SetACL("/x", OPEN_ACL_UNSAFE, -1), refused.NoNodeError),
        (CheckVersion("/a", 7), refused.BadVersionError),
    ],
)
def test_refusals_have_zookeepers_codes(harness, request_, error):
    client = harness.client()
    for path, flags in (("/a", 0), ("/a/b", 0), ("/e", EPHEMERAL)):
        client.ask(create(path, flags=flags))
    before = harness.host.tree.last_zxid
    with pytest.raises(error):
        client.ask(request_)
    assert harness.host.tree.last_zxid == before


def test_the_small_ones(harness):
    client = harness.client()
    client.ask(create("/a"))
    client.ask(create("/a/e", flags=EPHEMERAL))
    assert client.ask(Sync("/a")) == "/a"
    acls, stat = client.ask(GetACL("/a"))
    assert (acls, stat.numChildren) == (OPEN_ACL_UNSAFE, 1)
    assert client.ask(SetACL("/a", OPEN_ACL_UNSAFE, -1)).aversion == 1
    assert client.ask_raw(104, write_string("/")) == struct.pack(">i", 2)
    assert client.ask_raw(103, write_string("/")) == strings("/a/e")
    assert client.ask_raw(103, write_string("/b")) == strings()
    assert client.ask_raw(107, b"") == struct.pack(">i", 1) + write_string("ip") + write_string("127.0.0.1")


def test_who_wants_to_prove_who_he_is_in_another_way_is_turned_away(harness):
    client = harness.client()
    with pytest.raises(refused.AuthFailedError):
        client.ask_raw(Auth.type, Auth(0, "sasl", "me").serialize())
    assert client.is_closed


def test_a_multi_happens_wholly_or_not_at_all(harness):
    client = harness.client()
    client.ask(create("/a"))
    path, is_checked, stat, is_deleted = client.ask(
        Transaction([create("/b"), CheckVersion("/a", 0), SetData("/b", b"x", 0), Delete("/a", -1)])
    )
    assert (path, is_checked, stat.version, is_deleted) == ("/b", True, 1, True)
    results = client.ask(Transaction([create("/c"), Delete("/x", -1), create("/d")]))
    assert [type(result) for result in results] == [
        refused.RolledBackError,
        refused.NoNodeError,
        refused.RuntimeInconsistency,
    ]
    results = client.ask(Transaction([create("/c"), create("/d", flags=4)]))
    assert [type(result) for result in results] == [refused.RolledBackError, refused.UnimplementedError]
    assert client.ask(GetChildren("/", None)) == ["b"]
    assert client.ask(Transaction([])) == []


def test_a_multi_of_reads(harness):
    client = harness.client()
    client.ask(create("/a", b"x"))
    body = b"".join(
        struct.pack(">i?i", number, False, -1) + write_string(path) + b"\0"
        for number, path in ((4, "/a"), (8, "/"), (4, "/x"))
    )
    reply = client.ask_raw(22, body + struct.pack(">i?i", -1, True, -1))
    assert reply.startswith(struct.pack(">i?i", 4, False, 0) + b"\0\0\0\1x")
    assert reply.endswith(
        struct.pack(">i?i", 8, False, 0)
        + strings("a")
        + struct.pack(">i?i", -1, False, -101)
        + struct.pack(">i", -101)
        + struct.pack(">i?i", -1, True, -1)
    )


def test_a_multi_of_reads_has_results_of_bounded_size(harness):
    """A frame of 1 MB has room for 40,000 reads of a znode of 1 MB, which would be an answer of 40 GB."""
    client = harness.client()
    client.ask(create("/large", bytes(1_000_000)))
    read = struct.pack(">i?i", 4, False, -1) + write_string("/large") + b"\0"
    done = struct.pack(">i?i", -1, True, -1)
    assert len(client.ask_raw(22, read * 16 + done)) > 16_000_000
    with pytest.raises(Malformed, match="multi of reads"):
        client.ask_raw(22, read * 17 + done)


def test_a_disk_that_refuses_changes_nothing_and_ends_nothing(tmp_path, monkeypatch):
    store = TreeStore.open(tmp_path)
    harness = ConnectionHarness(store)
    client = harness.client()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", full)
        with pytest.raises(refused.SystemZookeeperError):
            client.ask(create("/a"))
        harness.passes(10_000)  # the session expires, and cannot be closed
        assert not client.is_closed
    assert harness.service.sessions.expired_count == 0
    harness.passes(1_000)
    assert harness.service.sessions.expired_count == 1
    harness.host.close()


# Watches


def test_watches_fire_once_and_before_the_answer_to_the_change(harness):
    client, other = harness.client(), harness.client()
    with pytest.raises(refused.NoNodeError):
        client.ask(Exists("/a", print))
    with pytest.raises(refused.NoNodeError):
        client.ask(GetData("/b", print))  # sets no watch
    client.ask(GetChildren("/", print))
    client.ask(create("/a"))
    assert client.events == [("created", "/a"), ("child", "/")]
    client.ask(create("/b"))
    client.ask(GetData("/a", print))
    other.ask(SetData("/a", b"1", -1))
    other.ask(SetData("/a", b"2", -1))
    assert client.take_events() == [("changed", "/a")]
    client.ask(GetData("/a", print))
    client.ask(GetChildren2("/a", print))
    client.ask(GetChildren("/", print))
    other.ask(Delete("/a", -1))
    assert client.take_events() == [("deleted", "/a"), ("child", "/")]
    assert other.events == []


def test_changes_are_told_in_their_order(harness):
    client, other = harness.client(), harness.client()
    for name in "abc":
        client.ask(create(f"/{name}"))
        client.ask(GetData(f"/{name}", print))
    other.ask(Transaction([SetData("/c", b"", -1), Delete("/a", -1), SetData("/b", b"", -1)]))
    assert client.take_events() == [("changed", "/c"), ("deleted", "/a"), ("changed", "/b")]


def test_watches_go_with_the_connection(harness):
    client, other = harness.client(), harness.client()
    client.ask(GetChildren("/", print))
    client.connection.connection_lost()
    again = client.comes_back()
    other.ask(create("/a"))
    assert again.take_events() == []


def test_a_client_that_was_away_is_told_what_it_missed(harness):
    client, other = harness.client(), harness.client()
    for name in ("kept", "changed", "deleted", "parent", "quiet"):
        client.ask(create(f"/{name}"))
    seen = harness.host.tree.last_zxid
    client.connection.connection_lost()
    other.ask(SetData("/changed", b"", -1))
    other.ask(Delete("/deleted", -1))
    other.ask(create("/parent/child"))
    other.ask(create("/came"))
    again = client.comes_back()
    data, exist = strings("/kept", "/changed", "/deleted"), strings("/came", "/nowhere")
    children = strings("/parent", "/quiet", "/deleted")
    again.ask_raw(SET_WATCHES, struct.pack(">q", seen) + data + exist + children)
    assert again.events == [
        ("changed", "/changed"),
        ("deleted", "/deleted"),
        ("created", "/came"),
        ("child", "/parent"),
        ("deleted", "/deleted"),
    ]
    other.ask(SetData("/kept", b"", -1))
    other.ask(create("/nowhere"))
    other.ask(create("/quiet/child"))
    assert again.take_events() == [("changed", "/kept"), ("created", "/nowhere"), ("child", "/quiet")]


def test_persistent_watches_stay(harness):
    client, other = harness.client(), harness.client()
    other.ask(create("/a"))
    assert client.ask_raw(ADD_WATCH, write_string("/a") + struct.pack(">i", 0)) == bytes(4)
    other.ask(SetData("/a", b"", -1))
    other.ask(SetData("/a", b"", -1))
    other.ask(create("/a/b"))
    other.ask(SetData("/a/b", b"", -1))
    other.ask(Delete("/a/b", -1))
    assert client.take_events() == [("changed", "/a"), ("changed", "/a"), ("child", "/a"), ("child", "/a")]
    client.ask(GetData("/a", print))  # fires once for both
    other.ask(SetData("/a", b"", -1))
    assert client.take_events() == [("changed", "/a")]
    client.ask_raw(CHECK_WATCHES, write_string("/a") + struct.pack(">i", 4))
    with pytest.raises(refused.NoWatcherError):
        client.ask_raw(CHECK_WATCHES, write_string("/a") + struct.pack(">i", 2))
    client.ask_raw(REMOVE_WATCHES, write_string("/a") + struct.pack(">i", 3))
    other.ask(SetData("/a", b"", -1))
    assert client.take_events() == []
    with pytest.raises(refused.NoWatcherError):
        client.ask_raw(REMOVE_WATCHES, write_string("/a") + struct.pack(">i", 3))
    for number in (ADD_WATCH, REMOVE_WATCHES):
        with pytest.raises(refused.BadArgumentsError):
            client.ask_raw(number, write_string("/a") + struct.pack(">i", 9))


def test_recursive_watches_hear_of_all_below(harness):
    client, other = harness.client(), harness.client()
    client.ask_raw(SET_WATCHES2, bytes(8) + strings() * 4 + strings("/a"))
    for path in ("/a", "/a/b", "/a/b/c", "/ab"):
        other.ask(create(path))
    other.ask(SetData("/a/b", b"", -1))
    other.ask(Delete("/a/b/c", -1))
    assert client.take_events() == [
        ("created", "/a"),
        ("created", "/a/b"),
        ("created", "/a/b/c"),
        ("changed", "/a/b"),
        ("deleted", "/a/b/c"),
    ]
    client.connection.connection_lost()
    assert len(harness.host.tree.watches) == 0
