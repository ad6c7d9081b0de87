"""A cluster finds its brokers, its leaders and its coordinators, and finds them again after a failure."""

import socket

import pytest

from headrace import Broker
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.consumer.offset_lookup import OffsetLookup
from headrace.client.errors import BrokerUnreachable, ClientClosed, InvalidTopic, UnknownTopic
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode
from headrace.testing import ManualClock


class Time(ManualClock):
    """A clock that those who sleep on it move."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_ms.append(delay_s * 1000)
        self.advance(max(1, round(delay_s * 1000)))


@pytest.fixture
def time() -> Time:
    return Time()


def cluster_at(servers: object, time: Time, **options: object) -> Cluster:
    return Cluster(AdminConfig.load(bootstrap_servers=servers, **options), clock=time, sleep=time.sleep)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_it_learns_the_brokers_from_any_of_the_servers(time: Time) -> None:
    async with Broker() as broker:
        servers = [f"127.0.0.1:{closed_port()}", broker.bootstrap_servers]
        async with cluster_at(servers, time) as cluster:
            assert [node.port for node in cluster.nodes] == [broker.port]
            assert cluster.metadata.controller_id == cluster.nodes[0].id


async def test_a_server_that_is_silent_leaves_time_for_the_others() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with Broker() as broker:
            servers = [f"127.0.0.1:{silent.getsockname()[1]}", broker.bootstrap_servers]
            cluster = Cluster(AdminConfig.load(bootstrap_servers=servers))
            try:
                await cluster.start(timeout_ms=1000)
                assert [node.port for node in cluster.nodes] == [broker.port]
            finally:
                await cluster.close()


async def test_no_broker_is_an_error_within_the_timeout_that_says_what_was_tried(time: Time) -> None:
    port = closed_port()
    cluster = cluster_at(f"127.0.0.1:{port}", time)
    with pytest.raises(BrokerUnreachable, match=rf"within 3000 ms.*127\.0\.0\.1:{port}.*bootstrap_servers"):
        await cluster.start(timeout_ms=3000)
    assert time.monotonic_ms() <= 3000
    assert len(time.slept_ms) >= 3
    await cluster.close()


async def test_a_topic_is_made_on_demand_and_has_a_leader_and_an_id(time: Time) -> None:
    async with Broker(config={"num.partitions": 3}) as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        assert cluster.partitions("t") == []
        assert [partition.partition for partition in await cluster.partitions_of("t")] == [0, 1, 2]
        leader = cluster.leader("t", 2)
        assert leader is not None
        assert leader.port == broker.port
        topic_id = cluster.metadata.topic_id("t")
        assert topic_id is not None
        assert cluster.metadata.topics["t"].id == topic_id


async def test_a_topic_that_may_not_be_made_is_unknown_at_once(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        with pytest.raises(UnknownTopic, match="'t'"):
            await cluster.partitions_of("t", create=False)
        assert time.slept_ms == []


async def test_a_topic_that_does_not_come_is_unknown_after_the_timeout(time: Time) -> None:
    config = {"auto.create.topics.enable": False}
    async with Broker(config=config) as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        with pytest.raises(UnknownTopic, match="even after 500 ms"):
            await cluster.partitions_of("t", timeout_ms=500)
    assert time.monotonic_ms() <= 500
    assert len(time.slept_ms) >= 2


async def test_a_bad_name_is_not_retried(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        with pytest.raises(InvalidTopic):
            await cluster.partitions_of("a/b")


async def test_metadata_is_refreshed_when_it_is_old_or_known_to_be_wrong(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time, metadata_max_age_ms=1000) as cluster:
        assert not cluster.is_stale()
        time.advance(1000)
        assert cluster.is_stale()
        await cluster.ensure_fresh()
        assert not cluster.is_stale()
        cluster.invalidate()
        assert cluster.is_stale()


async def test_requests_find_the_leader_the_controller_and_the_coordinator(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        created = await cluster.ask_controller(
            Api.CREATE_TOPICS,
            topics=[{"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}],
            timeout=1000,
        )
        assert created.topics[0].error_code is ErrorCode.none
        listed = await OffsetLookup(cluster).find({TopicPartition("t", 1): -1})
        assert listed[TopicPartition("t", 1)].offset == 0
        groups = await cluster.ask_coordinator(
            Api.DESCRIBE_GROUPS, "group", "g", groups=["g"], include_authorized_operations=False
        )
        assert groups.groups[0].group_id == "g"


async def test_a_partition_that_a_topic_has_not(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        with pytest.raises(Exception, match="has no partition 7"):
            await OffsetLookup(cluster, create=True).find({TopicPartition("t", 7): -1}, timeout_ms=300)


async def test_the_coordinator_has_a_connection_of_its_own_which_is_kept(time: Time) -> None:
    async with Broker() as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        group, again = await cluster.coordinator("group", "g"), await cluster.coordinator("group", "g")
        assert group is again
        assert group is not await cluster.connection(cluster.nodes[0].id)
        cluster.forget_coordinator("group", "g")
        assert await cluster.coordinator("group", "g") is group
        assert await cluster.coordinator("transaction", "x") is not group


async def test_a_broker_that_comes_back_is_connected_to_again(time: Time, tmp_path) -> None:
    async with Broker(data=tmp_path) as broker:
        address = broker.bootstrap_servers
        cluster = cluster_at(address, time)
        await cluster.start()
        await cluster.partitions_of("t")
        group = await cluster.coordinator("group", "g")
    with pytest.raises(BrokerUnreachable):
        await cluster.refresh(timeout_ms=500)
    assert group.is_closed
    async with Broker(data=tmp_path, listen=address):
        await cluster.refresh()
        assert [partition.partition for partition in cluster.partitions("t")] == [0]
        assert not (await cluster.coordinator("group", "g")).is_closed
        await cluster.close()


async def test_a_closed_cluster_says_so(time: Time) -> None:
    async with Broker() as broker:
        cluster = cluster_at(broker.bootstrap_servers, time)
        await cluster.start()
        await cluster.close()
        with pytest.raises(ClientClosed):
            await cluster.ask_any(Api.METADATA, topics=[])
        with pytest.raises(ClientClosed):
            await cluster.connection()


async def test_a_topic_without_a_leader_is_looked_at_again_but_not_all_the_time(time: Time) -> None:
    config = {"auto.create.topics.enable": False}
    async with Broker(config=config) as broker, cluster_at(broker.bootstrap_servers, time) as cluster:
        await cluster.refresh(["missing"])
        assert not cluster.is_stale()
        time.advance(cluster.config.retry_backoff_ms)
        assert cluster.is_stale()
