"""The client over a network: connections that break, answers that are lost, servers that are down."""

import asyncio
import socket
import struct
import threading

import pytest
from tree_harness import until

from headrace.coordination.client.chroot import parse_connect
from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import (
    BadArgumentsError,
    ConnectionLostError,
    Create,
    EventType,
    NodeExistsError,
    SessionExpiredError,
    SessionState,
    WatchEvent,
)

pytestmark = pytest.mark.xdist_group("zookeeper")


def listen(client):
    states: list[SessionState] = []
    client.add_session_listener(states.append)
    return states


async def cut_and_back(harness, client):
    states = listen(client)
    harness.proxy(client).cut()
    await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])


# Connections that break


async def test_the_session_goes_on_on_another_connection(remote):
    client, other = await remote.client(), await remote.client()
    before = client.session_id
    await client.create("/mine", ephemeral=True)
    await cut_and_back(remote, client)
    assert client.session_id == before
    assert (await other.exists("/mine")).ephemeral_owner == before


async def test_watches_are_told_what_they_missed_and_watch_on(remote):
    client, other = await remote.client(), await remote.client()
    heard: list[tuple[str, WatchEvent]] = []

    def note(name):
        return lambda event: heard.append((name, event))

    for path in ("/changed", "/deleted", "/parent", "/again", "/same", "/quiet", "/gone"):
        await client.create(path)
    await client.get("/changed", watch=note("data"))
    await client.exists("/deleted", watch=note("data"))
    await client.exists("/created", watch=note("data"))
    await client.children("/parent", watch=note("children"))
    await client.get("/again", watch=note("data"))
    await client.get("/same", watch=note("data"))
    await client.children("/quiet", watch=note("children"))
    await client.children("/gone", watch=note("children"))
    states = listen(client)
    remote.proxy(client).cut(for_good=True)
    await until(lambda: states == [SessionState.SUSPENDED])
    await other.set("/changed", b"1")
    await other.delete("/deleted")
    await other.create("/created")
    await other.create("/parent/child")
    await other.delete("/again")
    await other.create("/again")
    await other.delete("/gone")
    remote.proxy(client).mend()
    await client.get("/")  # waits for the connection, and comes after what was missed
    assert heard == [
        ("data", WatchEvent(EventType.CHANGED, "/changed")),
        ("data", WatchEvent(EventType.DELETED, "/deleted")),
        ("data", WatchEvent(EventType.CREATED, "/created")),
        ("children", WatchEvent(EventType.CHILD, "/parent")),
        ("data", WatchEvent(EventType.CHANGED, "/again")),
        ("children", WatchEvent(EventType.DELETED, "/gone")),
    ]
    heard.clear()
    await other.set("/same", b"1")
    await other.create("/quiet/child")
    await other.set("/changed", b"2")
    await until(lambda: len(heard) == 2)
    assert heard == [
        ("data", WatchEvent(EventType.CHANGED, "/same")),
        ("children", WatchEvent(EventType.CHILD, "/quiet")),
    ]


async def test_a_connection_that_breaks_again_while_watches_are_set_anew(remote):
    client, other = await remote.client(), await remote.client()
    heard: list[WatchEvent] = []
    proxy = remote.proxy(client)
    for number in range(20):
        await client.exists(f"/{number}", watch=heard.append)
    states = listen(client)
    client.add_session_listener(lambda _: proxy.cut() if states.count(SessionState.CONNECTED) < 3 else None)
    proxy.cut()
    await until(lambda: states.count(SessionState.CONNECTED) == 3)
    for number in range(20):
        await other.create(f"/{number}")
    await until(lambda: len(heard) == 20)
    assert sorted(event.path for event in heard) == sorted(f"/{number}" for number in range(20))


async def test_what_is_answered_is_timed(remote):
    client = await remote.client()
    before = client.request_times.count
    await client.create("/timed")
    with pytest.raises(NodeExistsError):
        await client.create("/timed")
    assert client.request_times.count == before + 2
    assert all(took_ns > 0 for took_ns in client.request_times.recent_ns)


async def test_calls_wait_for_a_connection(remote):
    client = await remote.client()
    states = listen(client)
    remote.proxy(client).cut(for_good=True)
    await until(lambda: states)
    calls = [asyncio.create_task(call) for call in (client.create("/a", b"1"), client.get("/a"), client.delete("/a"))]
    given_up = asyncio.create_task(client.create("/never"))
    await until(lambda: remote.proxy(client).refused_count)
    given_up.cancel()
    assert not any(call.done() for call in calls)
    remote.proxy(client).mend()
    assert await calls[0] == "/a"
    assert (await calls[1])[0] == b"1"
    await calls[2]
    assert await client.children("/") == []


async def test_a_change_whose_answer_was_lost_is_not_known_and_a_read_is_asked_again(remote):
    client, other = await remote.client(), await remote.client()
    proxy = remote.proxy(client)
    proxy.hold_answers()
    change = asyncio.create_task(client.create("/a"))
    read = asyncio.create_task(client.children("/"))
    together = asyncio.create_task(client.multi([Create("/b")]))
    while len(await other.children("/")) < 2:
        pass
    proxy.cut()
    proxy.let_answers_go()
    for lost in (change, together):
        with pytest.raises(ConnectionLostError):
            await lost
    assert await read == ["a", "b"]
    with pytest.raises(NodeExistsError):
        await client.create("/a")


async def test_all_calls_are_under_way_at_once(remote):
    client, other = await remote.client(), await remote.client()
    proxy = remote.proxy(client)
    proxy.hold_answers()
    calls = [asyncio.create_task(client.create(f"/{number}")) for number in range(50)]
    while len(await other.children("/")) < 50:
        pass
    assert not any(call.done() for call in calls)
    proxy.let_answers_go()
    assert await asyncio.gather(*calls) == [f"/{number}" for number in range(50)]


# Sessions that are over


async def test_calls_of_a_session_that_is_over_are_refused_and_later_ones_wait_for_the_next(remote):
    client = await remote.client()
    states = listen(client)
    before = client.session_id
    credentials = remote.credentials(client)
    remote.proxy(client).cut(for_good=True)
    await until(lambda: states)
    waiting = [asyncio.create_task(call) for call in (client.create("/a", ephemeral=True), client.get("/"))]
    await remote.end_session(client, credentials)
    remote.proxy(client).mend()
    for call in waiting:
        with pytest.raises(SessionExpiredError):
            await call
    await client.create("/b", ephemeral=True)
    assert client.session_id != before
    assert await client.children("/") == ["b"]
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


async def test_a_client_that_was_away_for_too_long(served_harness):
    client = await served_harness.client(session_timeout_ms=4_000)
    other = await served_harness.client(session_timeout_ms=40_000)
    states = listen(client)
    await client.create("/mine", ephemeral=True)
    served_harness.proxy(client).cut(for_good=True)
    await until(lambda: states and len(served_harness.service.connections) == 1)
    served_harness.clock.advance(4_000)
    served_harness.timer.advance()
    assert await other.exists("/mine") is None
    assert states == [SessionState.SUSPENDED]  # nobody can tell it
    served_harness.proxy(client).mend()
    await until(lambda: len(states) == 3)
    assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


async def test_many_sessions_one_after_the_other(remote):
    client = await remote.client()
    ids = {client.session_id}
    for _ in range(3):
        states = listen(client)
        await remote.end_session(client)
        await until(lambda states=states: SessionState.LOST in states and states[-1] is SessionState.CONNECTED)
        ids.add(client.session_id)
        await client.create("/mine", ephemeral=True)
    assert len(ids) == 4


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack(">iiqi", 16, 999_999, 1, 0),  # an answer to nothing
        struct.pack(">iiqi", 16, -1, -1, 0),  # an event of nothing
        struct.pack(">i", 3) + b"abc",
    ],
)
async def test_a_server_that_talks_nonsense_is_left(remote, nonsense, caplog):
    client = await remote.client()
    states = listen(client)
    before = client.session_id
    remote.proxy(client).say(nonsense)
    await until(lambda: SessionState.CONNECTED in states)
    assert states[-2:] == [SessionState.LOST, SessionState.CONNECTED]
    assert client.session_id != before
    assert await client.children("/") == []
    assert "the connection to ZooKeeper failed" in caplog.text


async def test_closing_without_a_connection(remote):
    client = await remote.client()
    states = listen(client)
    remote.proxy(client).cut(for_good=True)
    await until(lambda: states)
    waiting = asyncio.create_task(client.get("/"))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(SessionExpiredError):
        await waiting
    assert states == [SessionState.SUSPENDED]  # who closes knows


async def test_what_was_asked_before_closing_is_done(remote):
    client, other = await remote.client(), await remote.client()
    calls = [asyncio.create_task(client.create(f"/{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await client.close()
    assert await asyncio.gather(*calls) == [f"/{number}" for number in range(20)]
    assert len(await other.children("/")) == 20


# Where it connects to


async def test_a_chroot_is_made_and_not_seen(remote):
    heard: list[WatchEvent] = []
    outer = await remote.client()
    inner = await remote.client(f"{remote.chroot}/in/side/")
    assert await outer.children("/in") == ["side"]
    await inner.children("/", watch=heard.append)
    assert await inner.create("/a/b", make_parents=True) == "/a/b"
    assert await outer.exists("/in/side/a/b") is not None
    assert await inner.multi([Create("/c"), Create("/a/n-", sequence=True)]) == ["/c", "/a/n-0000000001"]
    await inner.exists("/d", watch=heard.append)
    await outer.create("/in/side/d")
    await until(lambda: len(heard) == 2)
    assert heard == [WatchEvent(EventType.CHILD, "/"), WatchEvent(EventType.CREATED, "/d")]
    again = await remote.client(f"{remote.chroot}/in/side")
    assert await again.children("/") == ["a", "c", "d"]


async def test_one_server_of_several_is_enough(served_harness):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        hosts = f"127.0.0.1:{nobody.getsockname()[1]},{served_harness.address}"
        client = await ZookeeperCoordination.connect(f"{hosts}/x")
        assert await client.children("/") == []
        await client.close()


async def test_nobody_there(served_harness):
    thread_count = threading.active_count()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(ConnectionLostError, match=f"^no ZooKeeper at {address} answered within 200 ms; .*refused$"):
            await ZookeeperCoordination.connect(address, connection_timeout_ms=200)
    assert threading.active_count() <= thread_count + 1  # the loop's own, which it keeps


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a:1", "a:1", ""),
        ("a:1/", "a:1", ""),
        (" a:1,b:2/kafka/x/ ", "a:1,b:2", "/kafka/x"),
        ("zookeeper", "zookeeper", ""),
        ("[::1]:2181,[::1]/k", "[::1]:2181,[::1]", "/k"),
    ],
)
def test_connect_strings(text, hosts, chroot):
    assert parse_connect(text) == (hosts, chroot)


@pytest.mark.parametrize("text", ["", "/kafka", "a:b", "a:1,,b:2", ":1", "a:0", "a:65536", "a:1//x", "a:1/../x"])
def test_bad_connect_strings(text):
    with pytest.raises(BadArgumentsError):
        parse_connect(text)
