"""The client with a real ensemble of three: the server of the connection dies, which may be the leader."""

import asyncio

import pytest
from tree_harness import until

from headrace.coordination import retried_changes
from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import EventType, SessionState, WatchEvent
from headrace.testing.zookeeper_process import ZookeeperEnsemble, ZookeeperMissing

pytestmark = pytest.mark.xdist_group("zookeeper")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory):
    try:
        ensemble = ZookeeperEnsemble(tmp_path_factory.mktemp("ensemble"))
    except ZookeeperMissing as error:
        pytest.skip(str(error))
    with ensemble:
        yield ensemble


async def test_each_server_dies_once_while_somebody_counts(ensemble):
    """The session, its znode and its watches survive; every count is made once."""
    client = await ZookeeperCoordination.connect(f"{ensemble.address}/count", session_timeout_ms=20_000)
    session_id = client.session_id
    states: list[SessionState] = []
    heard: list[WatchEvent] = []
    client.add_session_listener(states.append)
    await client.create("/mine", ephemeral=True)
    await client.create("/counter", b"0")
    await client.exists("/end", watch=heard.append)
    is_over = False

    async def count() -> int:
        made = 0
        while not is_over:
            data, stat = await client.get("/counter")
            await retried_changes.set_data(client, "/counter", str(int(data) + 1).encode(), version=stat.version)
            made += 1
        return made

    counting = asyncio.create_task(count())
    for server in ensemble.servers:
        before = int((await client.get("/counter"))[0])
        server.kill()
        while int((await client.get("/counter"))[0]) < before + 20:
            pass
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.wait)
    is_over = True
    made = await counting
    data, stat = await client.get("/counter")
    assert int(data) == made == stat.version
    assert SessionState.SUSPENDED in states  # it was connected to one of them
    assert SessionState.LOST not in states
    assert (await client.exists("/mine")).ephemeral_owner == session_id == client.session_id
    await client.create("/end")
    await until(lambda: heard)
    assert heard == [WatchEvent(EventType.CREATED, "/end")]
    await client.close()
