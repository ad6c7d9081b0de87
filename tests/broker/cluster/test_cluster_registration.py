"""The identity of a broker in a cluster: ids, the registration, and the rest of an earlier registration."""

import asyncio
import json
import socket

import pytest
from cluster_member_harness import ClusterMemberHarness, until

from headrace.broker.cluster.registration import SESSION_FILE
from headrace.broker.start_error import StartError
from headrace.coordination.interface import NodeExistsError
from headrace.coordination.tree.host import TreeHost
from headrace.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def tree(clock):
    return TreeHost(clock)


@pytest.fixture
def member(tree, clock, tmp_path):
    def made(folder="a", **settings):
        broker = ClusterMemberHarness(tree, clock, tmp_path / folder, **settings)
        return broker, broker.registration

    return made


async def content(broker, path):
    return json.loads((await broker.coordination.get(path))[0])


async def test_the_first_broker_gives_the_cluster_its_id_and_the_next_one_takes_it(member):
    first, registration = member("a", broker_id=1)
    cluster_id = await registration.identify()
    _, other = member("b", broker_id=2)
    assert await other.identify() == cluster_id == (await content(first, "/cluster/id"))["id"]
    assert await first.coordination.exists("/brokers/topics") is not None


async def test_data_of_another_cluster_is_refused(member, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=another\n")
    broker, registration = member("a", broker_id=1)
    with pytest.raises(StartError, match="belongs to cluster another"):
        await registration.identify()
    assert await broker.coordination.exists("/brokers/ids/1") is None


async def test_a_broker_without_an_id_gets_one_that_nobody_has(member):
    ids = []
    for folder in "ab":
        broker, registration = member(folder)
        await registration.identify()
        ids.append(broker.broker_id)
    assert ids == [1001, 1002]


async def test_the_data_folder_remembers_the_id(member, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_text("version=0\nbroker.id=7\n")
    broker, registration = member("a")
    await registration.identify()
    assert broker.broker_id == 7


async def test_ids_are_not_made_up_where_that_is_forbidden(member):
    _, registration = member("a", broker_id_generation_enable="false")
    with pytest.raises(StartError, match=r"broker\.id is not set"):
        await registration.identify()


async def test_the_registration_has_the_advertised_addresses(member):
    broker, registration = member(
        "a", broker_id=1, broker_rack="r", listeners="PLAINTEXT://h:1", advertised_listeners="PLAINTEXT://out:9"
    )
    await registration.identify()
    await registration.register()
    registered = await content(broker, "/brokers/ids/1")
    assert (registered["endpoints"], registered["rack"]) == (["PLAINTEXT://out:9"], "r")
    _, stat = await broker.coordination.get("/brokers/ids/1")
    assert registration.broker_epoch == stat.czxid
    assert stat.ephemeral_owner == broker.coordination.session_id


async def test_changed_addresses_are_registered_under_the_same_epoch(member):
    broker, registration = member("a", broker_id=1, listeners="PLAINTEXT://h:1")
    await registration.identify()
    await registration.update()
    assert await broker.coordination.exists("/brokers/ids/1") is None, "the broker is not registered yet"
    await registration.register()
    broker.config.apply_dynamic({"advertised.listeners": "PLAINTEXT://out:9"}, {})
    await registration.update()
    assert (await content(broker, "/brokers/ids/1"))["endpoints"] == ["PLAINTEXT://out:9"]
    _, stat = await broker.coordination.get("/brokers/ids/1")
    assert registration.broker_epoch == stat.czxid


async def test_a_new_session_is_a_new_epoch(member):
    broker, registration = member("a", broker_id=1)
    await registration.identify()
    await registration.register()
    before = registration.broker_epoch
    broker.coordination.expire()
    assert await broker.coordination.exists("/brokers/ids/1") is None
    await registration.register()
    assert registration.broker_epoch > before


async def test_what_an_earlier_life_left_is_removed_at_once(member):
    killed, registration = member("a", broker_id=1)
    await registration.identify()
    await registration.register()
    await killed.coordination.create("/controller", b"{}", ephemeral=True)
    again, registration = member("a", broker_id=1)
    await registration.identify()
    await registration.remove_earlier_registration()
    assert await again.coordination.exists("/controller") is None
    await registration.register()


async def test_another_session_under_our_id_is_waited_for(member, tmp_path):
    killed, registration = member("a", broker_id=1)
    await registration.identify()
    await registration.register()
    (tmp_path / "a" / SESSION_FILE).unlink()
    _, registration = member("a", broker_id=1)
    waiting = asyncio.create_task(registration.remove_earlier_registration())
    await until(lambda: killed.coordination._host.tree.watches is not None)
    await asyncio.sleep(0)
    assert not waiting.done()
    await killed.coordination.close()
    await waiting
    await registration.register()


async def test_one_that_stays_is_another_broker(member, tmp_path):
    _, registration = member("a", broker_id=1)
    await registration.identify()
    await registration.register()
    _, other = member("b", broker_id=1, zookeeper_session_timeout_ms=1)
    with pytest.raises(StartError, match="another broker with the id 1 is registered"):
        await other.remove_earlier_registration()
    with pytest.raises(NodeExistsError):
        await other.register()


async def test_one_that_answers_is_refused_without_waiting(member):
    with socket.create_server(("127.0.0.1", 0)) as alive:
        port = alive.getsockname()[1]
        _, registration = member("a", broker_id=1, listeners=f"PLAINTEXT://127.0.0.1:{port}")
        await registration.identify()
        await registration.register()
        _, other = member("b", broker_id=1)
        with pytest.raises(StartError, match=f"another broker with the id 1 runs at 127.0.0.1:{port}"):
            await other.identify()
