"""Data folders that come without a znode tree: an Apache Kafka's, or our own with the tree lost."""

from shutil import copytree, rmtree

import pytest
from held_partitions_harness import wait_until_loaded

from headrace import Broker
from headrace.broker.lone.lone_broker import COORDINATION_FOLDER
from headrace.controller.topic_rules import NewTopic
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import InvalidRequest
from headrace.protocol.record_body import Record


async def make_topics(folder, **partitions):
    async with Broker(data=folder) as broker:
        for name, count in partitions.items():
            await broker.core.role.topics.create(NewTopic(name, count, 1))
        return {name: broker.core.metadata.named(name).topic_id for name in partitions}


async def test_topics_of_folders_without_a_tree_are_adopted_with_their_ids(tmp_path):
    ids = await make_topics(tmp_path, orders=3, users=1)
    rmtree(tmp_path / COORDINATION_FOLDER)
    async with Broker(data=tmp_path) as broker:
        orders, users = (broker.core.metadata.named(name) for name in ("orders", "users"))
        assert (len(orders.partitions), len(users.partitions)) == (3, 1)
        assert {"orders": orders.topic_id, "users": users.topic_id} == ids
    async with Broker(data=tmp_path) as broker:
        assert broker.core.metadata.named("orders").topic_id == ids["orders"]


async def test_in_a_tree_that_is_known_a_folder_of_no_topic_is_put_aside(tmp_path):
    await make_topics(tmp_path, orders=1)
    copytree(tmp_path / "orders-0", tmp_path / "ghosts-0")
    async with Broker(data=tmp_path) as broker:
        assert {log.topic for log in broker.core.logs.all()} == {"orders"}
    assert [path.name.endswith("-stray") for path in tmp_path.glob("ghosts-*")] == [True]


async def test_the_log_of_apaches_quorum_becomes_no_topic_and_is_left_alone(tmp_path):
    await make_topics(tmp_path, orders=1)
    rmtree(tmp_path / COORDINATION_FOLDER)
    quorum = copytree(tmp_path / "orders-0", tmp_path / "__cluster_metadata-0")
    before = {path.name: path.read_bytes() for path in quorum.iterdir()}
    async with Broker(data=tmp_path) as broker:
        assert {log.topic for log in broker.core.logs.all()} == {"orders"}
        with pytest.raises(InvalidRequest):
            await broker.core.role.topics.create(NewTopic("__cluster_metadata", 1, 1))
    assert {path.name: path.read_bytes() for path in quorum.iterdir()} == before


async def test_a_broker_without_an_id_is_the_one_that_its_folder_belongs_to(tmp_path):
    async with Broker(data=tmp_path, config={"broker.id": 7}):
        pass
    async with Broker(data=tmp_path) as broker:
        assert broker.core.broker_id == 7
        assert broker.core.config.int("node.id") == 7
        assert list(broker.core.metadata.nodes) == [7]


async def test_a_broker_of_a_new_folder_is_number_0(tmp_path):
    async with Broker(data=tmp_path) as broker:
        assert broker.core.broker_id == broker.core.config.int("broker.id") == 0


async def test_producer_ids_that_are_in_use_are_not_given_again(tmp_path):
    """Neither those that a partition remembers nor those of transactional ids."""
    async with Broker(data=tmp_path) as broker:
        core = broker.core
        await core.role.topics.create(NewTopic("orders", 1, 1))
        await core.coordinators.transactions.ensure()
        start = core.coordinators.transactions.coordinator.start_producer
        start("x", 1000, fresh_producer_id=5_432)
        written = build_batch(
            [Record(0, core.clock.wall_ms(), b"k", b"v", ())], producer_id=2_345, producer_epoch=0, base_sequence=0
        )
        core.partitions.leader("orders", 0).append(written)
    for expected in (6_000, 7_000):
        rmtree(tmp_path / COORDINATION_FOLDER)
        async with Broker(data=tmp_path) as broker:
            assert await broker.core.role.producer_ids.next() == expected
            start = broker.core.coordinators.transactions.coordinator.start_producer
            await wait_until_loaded(broker.core.coordinators.transactions)
            assert start("x", 1000).producer_id == 5_432
            start(f"y-{expected}", 1000, fresh_producer_id=expected)
