"""The client of a tree in this process."""

import pytest

from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import (
    BadVersionError,
    Check,
    Coordination,
    Create,
    EventType,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    SetData,
    WatchEvent,
)
from headrace.coordination.tree.host import TreeHost
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(clock: ManualClock) -> TreeHost:
    return TreeHost(clock)


@pytest.fixture
def client(host: TreeHost) -> Coordination:
    return LocalCoordination(host)


async def test_the_calls(client, clock):
    assert await client.create("/a", b"1") == "/a"
    data, stat = await client.get("/a")
    assert (data, stat.version, stat.ctime_ms) == (b"1", 0, clock.wall_ms())
    assert (await client.set("/a", b"2", version=0)).version == 1
    with pytest.raises(BadVersionError):
        await client.set("/a", b"3", version=0)
    assert await client.create("/a/n", sequence=True) == "/a/n0000000000"
    assert await client.children("/a") == ["n0000000000"]
    await client.delete("/a/n0000000000")
    assert await client.exists("/a/n0000000000") is None
    assert (await client.exists("/a")).num_children == 0
    with pytest.raises(NodeExistsError):
        await client.multi([Create("/b"), Create("/a")])
    assert await client.exists("/b") is None
    results = await client.multi([Check("/a", 1), Create("/b"), SetData("/b", b"x")])
    assert results[:2] == [None, "/b"]


async def test_parents_are_made_when_asked_for(client):
    with pytest.raises(NoNodeError):
        await client.create("/x/y/z")
    assert await client.create("/x/y/z", b"data", make_parents=True) == "/x/y/z"
    assert await client.create("/x/w/", sequence=True, make_parents=True) == "/x/w/0000000000"
    assert await client.children("/x") == ["w", "y"]


async def test_ephemerals_go_when_the_session_ends(host, client):
    other = LocalCoordination(host)
    await other.create("/controller", ephemeral=True)
    heard: list[WatchEvent] = []
    await client.exists("/controller", watch=heard.append)
    await other.close()
    await other.close()
    assert heard == [WatchEvent(EventType.DELETED, "/controller")]
    for call in (other.get("/"), other.exists("/"), other.children("/"), other.create("/x")):
        with pytest.raises(SessionExpiredError):
            await call


async def test_a_silent_session_is_expired(host, client, clock):
    await client.create("/mine", ephemeral=True)
    clock.advance(17_999)
    assert host.expire_sessions() == []
    host.touch(client.session_id)
    clock.advance(17_999)
    assert host.expire_sessions() == []
    clock.advance(1)
    assert host.expire_sessions() == [client.session_id]
    assert host.tree.exists("/mine") is None


async def test_a_watch_is_set_only_by_a_read_that_succeeds(client, host):
    heard: list[WatchEvent] = []
    for call in (client.get("/a", watch=heard.append), client.children("/a", watch=heard.append)):
        with pytest.raises(NoNodeError):
            await call
    assert len(host.tree.watches) == 0
    assert await client.exists("/a", watch=heard.append) is None
    await client.create("/a")
    assert heard == [WatchEvent(EventType.CREATED, "/a")]


async def test_watchers_are_told_after_the_change_and_in_order(host, client):
    heard: list[str] = []

    def on_parent(event: WatchEvent) -> None:
        heard.append(f"parent {event.type.name}")
        # A change made by a watcher is told after the rest of this one.
        host.submit(client.session_id, [SetData("/b", b"new")])

    await client.create("/b")
    await client.get("/b", watch=lambda event: heard.append(f"b {event.type.name}"))
    await client.children("/", watch=on_parent)
    await client.exists("/c", watch=lambda event: heard.append(f"c {event.type.name} {host.tree.get('/c')[0]!r}"))
    await client.exists("/d", watch=lambda event: heard.append(f"d {event.type.name}"))
    await client.multi([Create("/c", b"there"), Create("/d")])
    assert heard == ["c CREATED b'there'", "parent CHILD", "d CREATED", "b CHANGED"]


async def test_a_watcher_that_fails_is_logged_and_stops_no_other(client, caplog):
    heard: list[WatchEvent] = []

    def fail(event: WatchEvent) -> None:
        raise RuntimeError("watcher")

    await client.exists("/a", watch=fail)
    await client.exists("/a", watch=heard.append)
    await client.create("/a")
    assert len(heard) == 1
    assert "watcher" in caplog.text


async def test_watchers_can_be_called_by_a_loop(host):
    scheduled: list[tuple[object, WatchEvent]] = []
    client = LocalCoordination(host, call_soon=lambda watcher, event: scheduled.append((watcher, event)))
    heard: list[WatchEvent] = []
    watcher = heard.append
    await client.exists("/a", watch=watcher)
    await client.create("/a")
    assert heard == []
    assert scheduled == [(watcher, WatchEvent(EventType.CREATED, "/a"))]


async def test_a_tree_in_a_folder_outlives_its_host_but_sessions_do_not(tmp_path, clock):
    host = TreeHost.open(tmp_path, clock)
    client = LocalCoordination(host)
    await client.create("/kept", b"1")
    await client.create("/mine", ephemeral=True)
    host.close()
    host = TreeHost.open(tmp_path, clock)
    client = LocalCoordination(host)
    assert await client.children("/") == ["kept"]
    assert len(host.tree.sessions) == 1
    host.close()


@pytest.fixture
def expiring(host: TreeHost) -> ExpiringCoordination:
    return ExpiringCoordination(host)


async def test_a_session_that_is_lost_for_a_while(host, expiring):
    states: list[tuple[SessionState, int]] = []
    expiring.add_session_listener(lambda state: states.append((state, expiring.session_id)))
    before = expiring.session_id
    await expiring.create("/mine", ephemeral=True)
    expiring.lose_session()
    assert states == [(SessionState.LOST, before)]
    assert host.tree.exists("/mine") is None
    with pytest.raises(SessionExpiredError):
        await expiring.get("/")
    expiring.start_session()
    assert states[1:] == [(SessionState.CONNECTED, expiring.session_id)]
    assert expiring.session_id != before
    assert await expiring.children("/") == []


async def test_a_session_that_was_silent_for_too_long_is_lost_when_its_client_hears_of_it(host, expiring, clock):
    states: list[SessionState] = []
    expiring.add_session_listener(states.append)
    clock.advance(18_000)
    assert host.expire_sessions() == [expiring.session_id]
    assert states == []
    expiring.expire()
    assert states == [SessionState.LOST, SessionState.CONNECTED]


async def test_a_listener_that_fails_stops_no_other(expiring, caplog):
    def fail(state: SessionState) -> None:
        raise RuntimeError("listener")

    states: list[SessionState] = []
    expiring.add_session_listener(fail)
    expiring.add_session_listener(states.append)
    expiring.expire()
    assert len(states) == 2
    assert "listener" in caplog.text
