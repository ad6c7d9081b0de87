"""The admin client's view of the cluster, its blocking twin, and how it asks many brokers about many things."""

import inspect
import socket
from pathlib import Path

import pytest
from admin_harness import ours, produce, unique

from headrace import Admin, AsyncAdmin, Broker, TopicPartition
from headrace.client.admin.types import TopicPartitionReplica
from headrace.client.errors import (
    BrokerUnreachable,
    ClientClosed,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnsupportedByBroker,
    error_for,
)
from headrace.protocol.api import Api
from headrace.testing.raw_client import RawClient


async def test_the_cluster_and_what_it_speaks(admin: AsyncAdmin, servers: str) -> None:
    cluster = await admin.describe_cluster()
    assert cluster.cluster_id
    (broker,) = cluster.brokers
    assert cluster.controller == broker
    assert f"{broker.host}:{broker.port}" == servers
    versions = (await admin.api_versions()).value(broker.id)
    assert versions.broker == broker
    assert versions.apis[Api.FETCH].highest >= 13
    features = await admin.describe_features()
    assert "group.version" in features.supported
    assert features.finalized["group.version"].highest == 1
    assert features.finalized_epoch is not None


async def test_log_dirs_and_what_they_hold(admin: AsyncAdmin, topic: str, client: RawClient) -> None:
    at = TopicPartition(topic, 1)
    for index in range(3):
        produce(client, TopicPartition(topic, index), 10)
    (broker,) = (await admin.describe_cluster()).brokers
    log_dirs = (await admin.describe_log_dirs(topics=[topic])).value(broker.id)
    held = {partition: size for log_dir in log_dirs.values() for partition, size in log_dir.replicas.items()}
    assert sorted(held) == [TopicPartition(topic, index) for index in range(3)]
    assert held[at].size_bytes > 0
    assert not held[at].is_future
    assert all(log_dir.error is None and log_dir.total_bytes > 0 for log_dir in log_dirs.values())
    missing = await admin.describe_log_dirs([4711])
    assert "4711" in str(missing.errors[4711])


@ours
async def test_a_replica_moves_to_another_log_dir(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    with Broker(config={"log.dirs": ",".join(folders)}) as broker:
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.create_topic("t", 1)
            at = TopicPartition("t", 0)

            async def homes() -> list[str]:
                log_dirs = (await admin.describe_log_dirs(topics=["t"])).value(0)
                return [path for path, log_dir in log_dirs.items() if at in log_dir.replicas]

            (home,) = await homes()
            (other,) = set(folders) - {home}
            replica, unknown = TopicPartitionReplica("t", 0, 0), TopicPartitionReplica("t", 0, 7)
            results = await admin.alter_replica_log_dirs({replica: other, unknown: other})
            assert (results.ok, set(results.errors)) == ({replica: None}, {unknown})
            while await homes() != [other]:
                pass


async def test_leaders_are_elected_and_partitions_moved(admin: AsyncAdmin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    (broker,) = (await admin.describe_cluster()).brokers
    assert isinstance(await admin.elect_leaders(), dict)
    elected = await admin.elect_leaders("preferred", [first])
    assert elected.errors[first].code is ErrorCode.election_not_needed  # type: ignore[attr-defined]
    moved = await admin.alter_partition_reassignments({first: [broker.id], second: None})
    assert moved.ok == {first: None}
    assert "no_reassignment_in_progress" in str(moved.errors[second])
    assert await admin.list_partition_reassignments() == {}
    assert await admin.list_partition_reassignments([first]) == {}


@ours
async def test_what_the_broker_does_not_speak_is_one_clear_error(admin: AsyncAdmin) -> None:
    with pytest.raises(UnsupportedByBroker, match=r"ControlledShutdown.*does not support it"):
        await admin._requests.ask_controller(Api.CONTROLLED_SHUTDOWN, None, broker_id=0)


# -- many items


async def test_items_whose_failure_passes_are_asked_again_and_the_others_are_done(admin: AsyncAdmin) -> None:
    (broker,) = (await admin.describe_cluster()).brokers
    asked: list[list[str]] = []
    passing = error_for(ErrorCode.not_leader_or_follower, "not yet")
    final = error_for(ErrorCode.invalid_request, "never")

    async def locate(keys: list[str], deadline: object) -> dict[str, int | HeadraceError]:
        return {key: final if key == "nowhere" else broker.id for key in keys}

    async def ask(target: object, keys: list[str]) -> dict[str, str | HeadraceError]:
        asked.append(keys)
        if len(asked) == 1:
            return {"good": "done", "later": passing, "bad": final}
        return dict.fromkeys(keys, "done")

    results = await admin._requests.fan_out(["good", "later", "bad", "nowhere", "silent"], locate, ask, None)
    assert asked == [["good", "later", "bad", "silent"], ["later", "silent"]]
    assert results == {"good": "done", "later": "done", "bad": final, "nowhere": final, "silent": "done"}


async def test_when_the_time_is_up_an_item_has_its_last_failure(admin: AsyncAdmin) -> None:
    (broker,) = (await admin.describe_cluster()).brokers
    passing = error_for(ErrorCode.coordinator_load_in_progress, "not yet")

    async def locate(keys: list[str], deadline: object) -> dict[str, int | HeadraceError]:
        return dict.fromkeys(keys, broker.id)

    async def ask(target: object, keys: list[str]) -> dict[str, str | HeadraceError]:
        return dict.fromkeys(keys, passing)

    assert (await admin._requests.fan_out(["late"], locate, ask, 150)).errors == {"late": passing}


# -- failures


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_no_broker_is_one_error_in_time() -> None:
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(BrokerUnreachable, match=rf"within 300 ms.*{address}"):
        async with AsyncAdmin(bootstrap_servers=address, default_api_timeout_ms=300):
            pass
    with pytest.raises(BrokerUnreachable, match=address), Admin(bootstrap_servers=address, default_api_timeout_ms=300):
        pass


async def test_a_closed_client_says_so(servers: str, topic: str) -> None:
    at = TopicPartition(topic, 0)
    admin = AsyncAdmin(bootstrap_servers=servers)
    assert (await admin.list_offsets({at: "latest"})).value(at).offset == 0
    await admin.close()
    with pytest.raises(ClientClosed):
        await admin.list_topics()
    with pytest.raises(ClientClosed):
        await admin.list_offsets({at: "latest"})


def test_options_by_both_names_and_none_that_do_not_exist(servers: str) -> None:
    admin = Admin(config={"request.timeout.ms": "5000"}, bootstrap_servers=servers, client_id="me")
    assert (admin._admin.config.request_timeout_ms, admin._admin.config.client_id) == (5000, "me")
    admin.close()
    with pytest.raises(TypeError, match=r"request\.timeout\.ms"):
        Admin(bootstrap_servers=servers, request_timout_ms=1)


# -- blocking


def test_the_blocking_client_does_the_same(servers: str) -> None:
    name = unique()
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, num_partitions=2)
        at = TopicPartition(name, 1)
        assert admin.list_offsets({at: "latest"}).value(at).offset == 0
        admin.delete_topic(name)
        assert name not in admin.list_topics()
    with pytest.raises(ClientClosed):
        admin.list_topics()


def test_a_blocking_call_that_is_not_answered_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = Admin(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises((BrokerUnreachable, KafkaTimeout)):
            admin.list_topics(timeout_ms=200)
        admin.close()


def test_every_method_has_a_blocking_twin_with_the_same_parameters() -> None:
    for name, method in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            twin = getattr(Admin, name)
            assert not inspect.iscoroutinefunction(twin), name
            assert inspect.signature(twin) == inspect.signature(method)
