"""The znode tree: the rules of ZooKeeper, and replaying transactions builds the same tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.interface import (
    BadArgumentsError,
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    Stat,
    WatchEvent,
)
from headrace.coordination.tree.znode_tree import AppliedTransaction, Transaction, ZnodeTree


class Tree:
    """A tree with its history, and one open session."""

    def __init__(self) -> None:
        self.tree = ZnodeTree()
        self.history: list[Transaction] = []
        self.time_ms = 1_000
        self.session_id = self.open_session()

    def apply(self, transaction: Transaction) -> AppliedTransaction:
        self.history.append(transaction)
        return self.tree.apply(transaction)

    def open_session(self) -> int:
        transaction = self.tree.prepare_open_session(10_000, self.time_ms)
        self.apply(transaction)
        return transaction.session_id

    def close_session(self, session_id: int) -> AppliedTransaction:
        return self.apply(self.tree.prepare_close_session(session_id, self.time_ms))

    def do(self, *operations: Operation, session_id: int | None = None) -> AppliedTransaction:
        return self.apply(self.tree.prepare(session_id or self.session_id, operations, self.time_ms))

    def stat(self, path: str) -> Stat:
        return self.tree.get(path)[1]


@pytest.fixture
def tree() -> Tree:
    return Tree()


def same(one: ZnodeTree, other: ZnodeTree) -> bool:
    return (one.last_zxid, one.sessions, one.nodes) == (other.last_zxid, other.sessions, other.nodes)


def test_a_new_znode_has_its_data_and_its_numbers(tree):
    tree.time_ms = 5_000
    assert tree.do(Create("/a", b"one")).results == ["/a"]
    data, stat = tree.tree.get("/a")
    assert data == b"one"
    assert stat == Stat(
        czxid=2, mzxid=2, ctime_ms=5_000, mtime_ms=5_000, version=0, cversion=0, aversion=0, ephemeral_owner=0,
        data_length=3, num_children=0, pzxid=2,
    )  # fmt: skip


def test_setting_data_counts_up_its_version(tree):
    tree.do(Create("/a", b"one"))
    tree.time_ms = 7_000
    (stat,) = tree.do(SetData("/a", b"three")).results
    assert stat == tree.stat("/a")
    assert (stat.version, stat.mzxid, stat.mtime_ms, stat.czxid, stat.data_length) == (1, 3, 7_000, 2, 5)


def test_children_coming_and_going_count_up_cversion_and_pzxid(tree):
    tree.do(Create("/a"))
    tree.do(Create("/a/x"))
    tree.do(Create("/a/y"))
    tree.do(Delete("/a/x"))
    stat = tree.stat("/a")
    assert (stat.cversion, stat.num_children, stat.pzxid, stat.version) == (3, 1, 5, 0)
    assert tree.tree.children("/a") == ["y"]


def test_sequence_numbers_have_ten_digits_and_are_never_given_twice(tree):
    tree.do(Create("/q"))
    assert tree.do(Create("/q/n_", sequence=True)).results == ["/q/n_0000000000"]
    assert tree.do(Create("/q/", sequence=True)).results == ["/q/0000000001"]
    tree.do(Delete("/q/n_0000000000"))
    assert tree.do(Create("/q/n_", sequence=True), Create("/q/n_", sequence=True)).results == [
        "/q/n_0000000002",
        "/q/n_0000000003",
    ]


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/"), NodeExistsError),
        (Create("/missing/x"), NoNodeError),
        (Create("/temporary/x"), NoChildrenForEphemeralsError),
        (Delete("/missing"), NoNodeError),
        (Delete("/a"), NotEmptyError),
        (Delete("/a/b", version=1), BadVersionError),
        (Delete("/"), BadArgumentsError),
        (SetData("/missing", b""), NoNodeError),
        (SetData("/a", b"", version=7), BadVersionError),
        (Check("/a", version=7), BadVersionError),
        (Check("/missing"), NoNodeError),
        (Create("no-slash"), BadArgumentsError),
        (Create(""), BadArgumentsError),
        (Create("/a/"), BadArgumentsError),
        (Create("/a//b"), BadArgumentsError),
        (Create("/a/../b"), BadArgumentsError),
        (Create("/a/."), BadArgumentsError),
        (Create("/a/\x00"), BadArgumentsError),
        (Create("/a/\x7f"), BadArgumentsError),
        (Create("/a/\ud800"), BadArgumentsError),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(tree, operation, error):
    tree.do(Create("/a"), Create("/a/b"), Create("/temporary", ephemeral=True))
    before = tree.tree.last_zxid
    with pytest.raises(error):
        tree.do(Create("/fine"), operation)
    assert tree.tree.last_zxid == before
    assert tree.tree.exists("/fine") is None


def test_a_path_may_be_in_any_language(tree):
    tree.do(Create("/主题"))
    assert tree.tree.children("/") == ["主题"]


@pytest.mark.parametrize("read", ["get", "children"])
def test_reading_what_is_not_there(tree, read):
    with pytest.raises(NoNodeError):
        getattr(tree.tree, read)("/missing")
    assert tree.tree.exists("/missing") is None


def test_a_multi_sees_what_it_has_done_so_far(tree):
    outcome = tree.do(
        Create("/a"),
        Create("/a/b"),
        SetData("/a", b"x", version=0),
        Check("/a", version=1),
        Delete("/a/b"),
        Delete("/a"),
    )
    assert outcome.results[:2] == ["/a", "/a/b"]
    assert isinstance(outcome.results[2], Stat)
    assert outcome.results[3:] == [None, None, None]
    assert tree.tree.children("/") == []
    with pytest.raises(NodeExistsError):
        tree.do(Create("/a"), Create("/a"))
    with pytest.raises(NoNodeError):
        tree.do(Create("/a"), Delete("/a"), Delete("/a"))


def test_ephemeral_znodes_go_with_their_session(tree):
    other = tree.open_session()
    tree.do(Create("/mine", ephemeral=True), Create("/kept"))
    tree.do(Create("/theirs", ephemeral=True), session_id=other)
    assert tree.stat("/theirs").ephemeral_owner == other
    tree.close_session(other)
    assert tree.tree.children("/") == ["kept", "mine"]
    tree.do(Delete("/mine"))
    tree.close_session(tree.session_id)
    assert tree.tree.children("/") == ["kept"]


def test_a_closed_session_can_do_nothing(tree):
    tree.close_session(tree.session_id)
    with pytest.raises(SessionExpiredError):
        tree.do(Create("/a"))
    with pytest.raises(SessionExpiredError):
        tree.close_session(tree.session_id)
    with pytest.raises(SessionExpiredError):
        tree.tree.touch(tree.session_id, 0)
    assert tree.open_session() != tree.session_id


def test_a_silent_session_expires_after_its_timeout(tree):
    tree.tree.touch(tree.session_id, 100)
    assert tree.tree.expired_sessions(10_099) == []
    assert tree.tree.expired_sessions(10_100) == [tree.session_id]
    tree.tree.touch(tree.session_id, 10_100)
    assert tree.tree.expired_sessions(20_099) == []


def test_a_session_without_time_is_refused(tree):
    with pytest.raises(BadArgumentsError):
        tree.tree.prepare_open_session(0, 0)


def events(outcome: AppliedTransaction) -> list[tuple[EventType, str]]:
    return [(delivery.event.type, delivery.event.path) for delivery in outcome.deliveries]


def ignore(event: WatchEvent) -> None:
    pass


def test_a_data_watch_fires_once_for_creation_change_or_deletion(tree):
    def watched() -> None:
        tree.tree.watches.add_data(tree.session_id, "/a", ignore)
        tree.tree.watches.add_data(tree.session_id, "/a", ignore)

    watched()
    assert events(tree.do(Create("/a"))) == [(EventType.CREATED, "/a")]
    assert events(tree.do(SetData("/a", b"1"))) == []
    watched()
    assert events(tree.do(SetData("/a", b"2"), SetData("/a", b"3"))) == [(EventType.CHANGED, "/a")]
    watched()
    assert events(tree.do(Create("/a/b"))) == []
    assert events(tree.do(Delete("/a/b"), Delete("/a"))) == [(EventType.DELETED, "/a")]
    assert len(tree.tree.watches) == 0


def test_a_child_watch_fires_for_children_and_for_the_end_of_the_parent(tree):
    def watched() -> None:
        tree.tree.watches.add_children(tree.session_id, "/a", ignore)

    tree.do(Create("/a"))
    watched()
    assert events(tree.do(SetData("/a", b"1"))) == []
    assert events(tree.do(Create("/a/b"))) == [(EventType.CHILD, "/a")]
    watched()
    assert events(tree.do(SetData("/a/b", b"1"))) == []
    assert events(tree.do(Delete("/a/b"))) == [(EventType.CHILD, "/a")]
    watched()
    tree.tree.watches.add_data(tree.session_id, "/a", ignore)
    assert events(tree.do(Delete("/a"))) == [(EventType.DELETED, "/a")]


def test_watches_fire_in_the_order_of_the_changes(tree):
    tree.do(Create("/a"), Create("/b"))
    tree.tree.watches.add_children(tree.session_id, "/", ignore)
    tree.tree.watches.add_data(tree.session_id, "/c", ignore)
    tree.tree.watches.add_data(tree.session_id, "/b", ignore)
    tree.tree.watches.add_data(tree.session_id, "/a", ignore)
    outcome = tree.do(SetData("/a", b""), Create("/c"), Delete("/b"))
    assert events(outcome) == [
        (EventType.CHANGED, "/a"),
        (EventType.CREATED, "/c"),
        (EventType.CHILD, "/"),
        (EventType.DELETED, "/b"),
    ]


def test_the_end_of_a_session_fires_the_watches_of_others_and_drops_its_own(tree):
    other = tree.open_session()
    tree.do(Create("/controller", ephemeral=True), session_id=other)
    tree.tree.watches.add_data(tree.session_id, "/controller", ignore)
    tree.tree.watches.add_data(other, "/controller", ignore)
    outcome = tree.close_session(other)
    assert [(one.session_id, one.event.type) for one in outcome.deliveries] == [(tree.session_id, EventType.DELETED)]
    assert len(tree.tree.watches) == 0


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x"])
DATA = st.none() | st.binary(max_size=3)
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(Delete, PATHS, st.integers(-1, 2)),
    st.builds(SetData, PATHS, DATA, st.integers(-1, 2)),
    st.builds(Check, PATHS, st.integers(-1, 2)),
)


@given(
    st.lists(st.one_of(st.lists(OPERATIONS, min_size=1, max_size=4), st.sampled_from(["open", "close"])), max_size=30)
)
def test_the_same_transactions_make_the_same_tree_and_its_numbers_hold(steps):
    tree = Tree()
    for step in steps:
        session_id = max(tree.tree.sessions)
        if step == "open":
            tree.open_session()
        elif step == "close":
            tree.close_session(session_id)
            if not tree.tree.sessions:
                tree.open_session()
        else:
            before = tree.tree.last_zxid
            try:
                tree.do(*step, session_id=session_id)
            except CoordinationError:
                assert tree.tree.last_zxid == before
    replayed = ZnodeTree()
    for transaction in tree.history:
        replayed.apply(transaction)
    assert same(tree.tree, replayed)
    for path, node in tree.tree.nodes.items():
        inside = [other for other in tree.tree.nodes if other != "/" and other.rpartition("/")[0] == path.rstrip("/")]
        assert sorted(node.children) == sorted(other.rpartition("/")[2] for other in inside)
        assert node.created_count >= len(node.children)
        assert node.stat().data_length == len(node.data or b"")
        if node.ephemeral_owner:
            assert path in tree.tree.ephemerals(node.ephemeral_owner)
