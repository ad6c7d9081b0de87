"""Changes that are repeated after the connection broke before or after the change was made."""

import asyncio

import pytest

from headrace.coordination import retried_changes
from headrace.coordination.interface import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SetData,
)
from headrace.coordination.tree.host import TreeHost
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination


class BreakingClient(ExpiringCoordination):
    """Its connection breaks at each change for which ``breaks`` has an entry: before the change is made, or after;
    ``meanwhile`` happens then."""

    def __init__(self, host, *breaks, meanwhile=None):
        super().__init__(host)
        self.breaks = list(breaks)
        self._meanwhile = meanwhile

    async def create(self, *args, **options):
        return await self._maybe(super().create, *args, **options)

    async def set(self, *args, **options):
        return await self._maybe(super().set, *args, **options)

    async def delete(self, *args, **options):
        return await self._maybe(super().delete, *args, **options)

    async def multi(self, *args, **options):
        return await self._maybe(super().multi, *args, **options)

    async def _maybe(self, change, *args, **options):
        when = self.breaks.pop(0) if self.breaks else None
        result = None if when == "before" else await change(*args, **options)
        if when is None:
            return result
        if self._meanwhile is not None:
            await self._meanwhile()
        raise ConnectionLostError("broken")


@pytest.fixture
def host():
    return TreeHost(ManualClock())


@pytest.fixture
def other(host):
    return ExpiringCoordination(host)


BREAKS = pytest.mark.parametrize(
    "breaks", [(), ("before",), ("after",), ("before", "after"), ("after", "before", "before")]
)


@BREAKS
async def test_an_ephemeral_znode(host, other, breaks):
    client = BreakingClient(host, *breaks)
    await retried_changes.create_ephemeral(client, "/a", b"1")
    assert (await other.exists("/a")).ephemeral_owner == client.session_id
    assert client.breaks == []


async def test_an_ephemeral_znode_of_another(host, other):
    await other.create("/a", ephemeral=True)
    with pytest.raises(NodeExistsError):
        await retried_changes.create_ephemeral(BreakingClient(host), "/a")
    await other.delete("/a")
    client = BreakingClient(host, "before", meanwhile=lambda: other.create("/a", ephemeral=True))
    with pytest.raises(NodeExistsError):
        await retried_changes.create_ephemeral(client, "/a")


@BREAKS
async def test_a_persistent_znode(host, other, breaks):
    await retried_changes.create_persistent(BreakingClient(host, *breaks), "/p/a", b"1", make_parents=True)
    assert (await other.get("/p/a"))[0] == b"1"
    for data in (b"1", b"2"):
        with pytest.raises(NodeExistsError):
            await retried_changes.create_persistent(BreakingClient(host), "/p/a", data)


async def test_a_persistent_znode_of_another(host, other):
    client = BreakingClient(host, "before", meanwhile=lambda: other.create("/a", b"theirs"))
    with pytest.raises(NodeExistsError):
        await retried_changes.create_persistent(client, "/a", b"ours")


async def test_at_least_once(host, other):
    client = BreakingClient(host, "after", "before")
    assert await retried_changes.create_at_least_once(client, "/n-", b"1") == "/n-0000000001"
    assert await other.children("/") == ["n-0000000000", "n-0000000001"]


@BREAKS
async def test_a_versioned_write(host, other, breaks):
    await other.create("/a")
    stat = await retried_changes.set_data(BreakingClient(host, *breaks), "/a", b"new", version=0)
    assert stat.version == 1
    assert (await other.get("/a"))[0] == b"new"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_versioned_write_that_somebody_else_came_before_or_after(host, other, when):
    await other.create("/a")
    client = BreakingClient(host, when, meanwhile=lambda: other.set("/a", b"theirs"))
    with pytest.raises(BadVersionError):
        await retried_changes.set_data(client, "/a", b"ours", version=0)
    assert (await other.get("/a"))[0] == b"theirs"


async def test_any_version_is_just_written_again(host, other):
    await other.create("/a")
    await retried_changes.set_data(BreakingClient(host, "after"), "/a", b"ours")
    assert (await other.get("/a"))[0] == b"ours"


@BREAKS
async def test_deleting(host, other, breaks):
    await other.create("/a")
    await retried_changes.delete(BreakingClient(host, *breaks), "/a", version=0)
    assert await other.exists("/a") is None
    with pytest.raises(NoNodeError):
        await retried_changes.delete(BreakingClient(host), "/a")


@BREAKS
async def test_an_election(host, other, breaks):
    await other.create("/controller_epoch", b"1")
    client = BreakingClient(host, *breaks)

    async def are_we_controller():
        stat = await client.exists("/controller")
        return stat is not None and stat.ephemeral_owner == client.session_id

    operations = [Create("/controller", b"us", ephemeral=True), SetData("/controller_epoch", b"2", 0)]
    results = await retried_changes.multi(client, operations, are_we_controller)
    assert (results is None) == ("after" in breaks)
    assert await other.get("/controller_epoch") == (b"2", await other.exists("/controller_epoch"))
    with pytest.raises(NodeExistsError):
        await retried_changes.multi(BreakingClient(host), operations, are_we_controller)
    with pytest.raises(BadVersionError):
        await retried_changes.multi(BreakingClient(host), [Check("/controller_epoch", 7)], are_we_controller)


async def test_a_session_that_is_over_is_not_found_out_about(host):
    client = BreakingClient(host, "before")
    client.lose_session()
    with pytest.raises(SessionExpiredError):
        await retried_changes.create_ephemeral(client, "/a")
    client.start_session()
    await retried_changes.create_ephemeral(client, "/a")


@pytest.mark.xdist_group("zookeeper")
async def test_on_a_real_wire(remote):
    client, other = await remote.client(), await remote.client()
    proxy = remote.proxy(client)
    proxy.hold_answers()
    change = asyncio.create_task(retried_changes.create_ephemeral(client, "/a"))
    while await other.exists("/a") is None:
        pass
    proxy.cut()
    proxy.let_answers_go()
    await change
    assert (await other.exists("/a")).ephemeral_owner == client.session_id
