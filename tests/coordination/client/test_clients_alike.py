"""The interface: the same tests with a tree in this process, a tree that Headrace serves, and a real ZooKeeper."""

import asyncio

import pytest
from tree_harness import until

from headrace.coordination.interface import (
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)

pytestmark = pytest.mark.xdist_group("zookeeper")


async def test_the_calls(harness):
    client = await harness.client()
    assert await client.create("/a", b"1") == "/a"
    data, stat = await client.get("/a")
    assert (data, stat.version, stat.data_length, stat.ephemeral_owner) == (b"1", 0, 1, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert (await client.set("/a", b"2", version=0)).version == 1
    assert (await client.set("/a", b"")).version == 2
    assert (await client.get("/a"))[0] == b""
    assert await client.create("/a/n", sequence=True) == "/a/n0000000000"
    assert await client.create("/a/", sequence=True) == "/a/0000000001"
    assert await client.create("/a/b") == "/a/b"
    assert await client.children("/a") == ["0000000001", "b", "n0000000000"]
    assert await client.children("/") == ["a"]
    await client.delete("/a/b", version=0)
    assert await client.exists("/a/b") is None
    assert (await client.exists("/a")).num_children == 2
    assert (await client.exists("/")).num_children == 1


async def test_errors(harness):
    client = await harness.client()
    await client.create("/a/b", make_parents=True)
    await client.create("/e", ephemeral=True)
    for error, call in (
        (NodeExistsError, client.create("/a")),
        (NodeExistsError, client.create("/")),
        (NoNodeError, client.create("/x/y")),
        (NoNodeError, client.get("/x")),
        (NoNodeError, client.children("/x")),
        (NoNodeError, client.set("/x", b"")),
        (NoNodeError, client.delete("/x")),
        (BadVersionError, client.set("/a", b"", version=1)),
        (BadVersionError, client.delete("/a/b", version=1)),
        (NotEmptyError, client.delete("/a")),
        (NoChildrenForEphemeralsError, client.create("/e/x")),
        (BadArgumentsError, client.delete("/")),
        (BadArgumentsError, client.get("a")),
        (BadArgumentsError, client.create("/a//b")),
        (BadArgumentsError, client.create("/a/../b")),
        (BadArgumentsError, client.exists("/a/")),
    ):
        with pytest.raises(error) as caught:
            await call
        assert type(caught.value) is error
    assert await client.children("/") == ["a", "e"]


async def test_parents_are_made_when_asked_for(harness):
    client = await harness.client()
    assert await client.create("/x/y/z", b"data", make_parents=True) == "/x/y/z"
    assert await client.create("/x/w/", sequence=True, make_parents=True) == "/x/w/0000000000"
    assert await client.create("/x/y/v", make_parents=True) == "/x/y/v"
    assert await client.children("/x") == ["w", "y"]
    with pytest.raises(NodeExistsError):
        await client.create("/x/y/z", make_parents=True)
    await client.create("/e", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        await client.create("/e/f/g", make_parents=True)
    assert await client.children("/") == ["e", "x"]


async def test_several_who_make_the_same_parents(harness):
    clients = [await harness.client() for _ in range(3)]
    made = await asyncio.gather(
        *(client.create(f"/p/q/r/{index}", make_parents=True) for index, client in enumerate(clients))
    )
    assert made == ["/p/q/r/0", "/p/q/r/1", "/p/q/r/2"]


async def test_multi(harness):
    client = await harness.client()
    await client.create("/a")
    results = await client.multi(
        [
            Check("/a", 0),
            Create("/b", b"1"),
            SetData("/b", b"2", 0),
            Create("/b/", b"", sequence=True),
            Create("/gone", ephemeral=True),
            Delete("/gone"),
        ]
    )
    stat = results[2]
    assert isinstance(stat, Stat)
    assert (stat.version, stat.data_length) == (1, 1)
    assert results == [None, "/b", stat, "/b/0000000000", "/gone", None]
    assert await client.children("/") == ["a", "b"]
    assert await client.multi([]) == []


@pytest.mark.parametrize(
    ("operations", "error", "index"),
    [
        ([Create("/c"), Create("/a"), Create("/d")], NodeExistsError, 1),
        ([Check("/a", 1), Create("/c")], BadVersionError, 0),
        ([Create("/c"), Delete("/c"), SetData("/c", b"")], NoNodeError, 2),
        ([Create("/c"), Create("no path")], BadArgumentsError, 1),
        ([Create("/c"), Delete("/")], BadArgumentsError, 1),
    ],
)
async def test_a_multi_that_fails_does_nothing_and_says_what_failed(harness, operations, error, index):
    client = await harness.client()
    await client.create("/a")
    with pytest.raises(error) as caught:
        await client.multi(operations)
    assert caught.value.operation_index == index
    assert await client.children("/") == ["a"]


async def test_ephemerals_go_when_the_session_ends(harness):
    client, other = await harness.client(), await harness.client()
    heard: list[WatchEvent] = []
    await other.create("/controller", ephemeral=True)
    stat = await client.exists("/controller", watch=heard.append)
    assert stat.ephemeral_owner == other.session_id != client.session_id
    await other.close()
    await other.close()
    await until(lambda: heard)
    assert heard == [WatchEvent(EventType.DELETED, "/controller")]
    assert await client.exists("/controller") is None
    for call in (other.get("/"), other.exists("/"), other.children("/"), other.create("/x"), other.multi([])):
        with pytest.raises(SessionExpiredError):
            await call


async def test_a_watch_hears_once_and_only_what_it_watches(harness):
    client, other = await harness.client(), await harness.client()
    heard: list[tuple[str, EventType]] = []

    def note(name):
        return lambda event: heard.append((name, event.type))

    await client.create("/a")
    assert await client.exists("/b", watch=note("exists b")) is None
    await client.get("/a", watch=note("get a"))
    await client.children("/a", watch=note("children a"))
    await other.create("/b")
    await other.create("/a/x")
    await other.set("/a", b"1")
    await other.set("/a", b"2")
    await other.set("/b", b"2")
    await other.create("/a/y")
    await client.children("/a", watch=note("children a again"))
    await other.delete("/a/x")
    await until(lambda: len(heard) == 4)
    await client.get("/")
    assert heard == [
        ("exists b", EventType.CREATED),
        ("children a", EventType.CHILD),
        ("get a", EventType.CHANGED),
        ("children a again", EventType.CHILD),
    ]


async def test_who_watches_a_znode_in_two_ways_hears_of_its_deletion_once(harness):
    client = await harness.client()
    heard: list[WatchEvent] = []
    watcher = heard.append
    await client.create("/a")
    await client.get("/a", watch=watcher)
    await client.exists("/a", watch=watcher)
    await client.children("/a", watch=watcher)
    await client.delete("/a")
    await client.get("/")
    assert heard == [WatchEvent(EventType.DELETED, "/a")]


async def test_a_read_that_fails_sets_no_watch(harness):
    client = await harness.client()
    heard: list[WatchEvent] = []
    for call in (client.get("/a", watch=heard.append), client.children("/a", watch=heard.append)):
        with pytest.raises(NoNodeError):
            await call
    await client.create("/a")
    await client.set("/a", b"1")
    await client.create("/a/b")
    await client.get("/")
    assert heard == []


async def test_nobody_sees_a_change_before_its_event(harness):
    client, other = await harness.client(), await harness.client()
    heard: list[WatchEvent] = []
    await client.create("/a")
    for version in range(1, 41):
        heard.clear()
        await client.get("/a", watch=heard.append)
        change = asyncio.create_task(other.set("/a", b""))
        while (await client.get("/a"))[1].version < version:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert heard == [WatchEvent(EventType.CHANGED, "/a")]
        await change


async def test_a_watcher_may_watch_again(harness):
    client = await harness.client()
    seen: list[bytes] = []
    tasks: list[asyncio.Task[None]] = []

    async def read_again():
        seen.append((await client.get("/a", watch=on_change))[0])

    def on_change(_: WatchEvent) -> None:
        tasks.append(asyncio.create_task(read_again()))

    await client.create("/a", b"0")
    await read_again()
    for number in range(1, 5):
        await client.set("/a", str(number).encode())
        await until(lambda number=number: len(seen) == number + 1)
    assert seen == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_thousand_calls_in_flight_are_answered_in_order(harness):
    client = await harness.client()
    answered: list[str] = []

    async def make() -> None:
        answered.append(await client.create("/n-", sequence=True))

    await asyncio.gather(*(make() for _ in range(1_000)))
    assert answered == [f"/n-{number:010d}" for number in range(1_000)]


async def test_a_session_that_is_lost_is_told_and_another_begins(harness):
    client, other = await harness.client(), await harness.client()
    states: list[tuple[SessionState, int]] = []
    heard: list[WatchEvent] = []
    client.add_session_listener(lambda state: states.append((state, client.session_id)))
    before = client.session_id
    await client.create("/mine", ephemeral=True)
    await client.create("/kept")
    await client.get("/kept", watch=heard.append)
    await harness.end_session(client)
    await until(lambda: states and states[-1][0] is SessionState.CONNECTED and client.session_id != before)
    assert [state for state, _ in states if state is not SessionState.SUSPENDED][-2:] == [
        SessionState.LOST,
        SessionState.CONNECTED,
    ]
    assert await other.children("/") == ["kept"]
    await client.create("/mine", ephemeral=True)
    stat = await other.exists("/mine")
    assert stat.ephemeral_owner == client.session_id
    await other.set("/kept", b"1")
    await client.get("/")
    assert heard == []  # the watch went with the session


async def test_a_listener_that_was_removed_hears_nothing(harness):
    client = await harness.client()
    heard: list[SessionState] = []
    kept: list[SessionState] = []
    listener = heard.append
    client.add_session_listener(listener)
    client.add_session_listener(kept.append)
    client.remove_session_listener(listener)
    await harness.end_session(client)
    await until(lambda: SessionState.CONNECTED in kept[1:])
    assert heard == []
