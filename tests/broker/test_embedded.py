"""The broker inside a process: starting, stopping, and what is the same afterwards."""

import asyncio
import socket
from shutil import copytree

import pytest
from broker_harness import BROKER, TOPIC, Client, batch, fetch_request, headers, unique

from headrace import Broker
from headrace.broker.broker import StartError
from headrace.protocol.api import Api

pytestmark = pytest.mark.usefixtures("ours")


def test_with():
    with Broker() as broker:
        address = (broker.host, broker.port)
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert broker.bootstrap_servers in repr(broker)
        with Client(broker.bootstrap_servers) as client:
            topic = client.create_topic()
            assert client.produce(topic).error_code == 0
    assert "stopped" in repr(broker)
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=1)


async def test_async_with():
    async with Broker() as broker:
        reader, writer = await asyncio.open_connection(broker.host, broker.port)
        writer.close()
        await writer.wait_closed()
        assert reader is not None
    with pytest.raises(RuntimeError, match="not running"):
        broker.core  # noqa: B018


def test_a_temporary_folder_goes_with_the_broker():
    with Broker() as broker:
        folder = broker.core.logs.online[0]
        assert folder.is_dir()
    assert not folder.exists()


def test_a_given_folder_stays(tmp_path):
    with Broker(data=tmp_path / "data"):
        pass
    assert (tmp_path / "data" / "meta.properties").exists()


def test_stopping_twice_and_stopping_what_never_started():
    broker = Broker()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()
    assert repr(broker) == "<headrace broker, stopped>"


def test_it_can_be_started_again(tmp_path):
    broker = Broker(data=tmp_path)
    for _ in range(2):
        broker.start()
        with Client(broker.bootstrap_servers) as client:
            assert client.metadata([]).brokers
        broker.stop()


def test_settings_are_python_values():
    with Broker(config={"num.partitions": 3, "auto.create.topics.enable": True}) as broker:
        assert broker.core.config.int("num.partitions") == 3


def test_a_taken_port_is_said_in_one_line():
    with Broker() as broker, pytest.raises(StartError, match=f"cannot listen on 127.0.0.1:{broker.port}"):
        Broker(listen=broker.bootstrap_servers).start()


def test_a_taken_folder_is_said_in_one_line(tmp_path):
    with Broker(data=tmp_path), pytest.raises(StartError) as refusal:
        Broker(data=tmp_path).start()
    assert str(tmp_path) in str(refusal.value)
    with Broker(data=tmp_path):
        pass


def test_a_waiting_client_is_let_go_when_the_broker_stops():
    with Broker() as broker:
        client = Client(broker.bootstrap_servers)
        topic = client.create_topic()
        client.send(Api.FETCH, 12, **fetch_request((topic, 0, 0), max_wait=60_000))
    assert client.is_closed_by_peer()
    client.close()


# -- what a restart keeps


def fill(client):
    """Topics, settings, records, a start that moved, and producers; all that can be asked about it is :func:`facts`."""
    plain, other = unique("plain"), unique("other")
    client.create_topic(plain, partitions=3, retention_ms=12345)
    client.create_topic(other, segment_bytes=1000)
    for index in range(3):
        client.produce(plain, batch(index + 1), partition=index)
    for _ in range(12):
        client.produce(other, batch(value=b"v" * 100))
    wanted = [{"partition_index": 0, "offset": 7}]
    client.ask(Api.DELETE_RECORDS, 2, topics=[{"name": other, "partitions": wanted}], timeout=1000)
    client.produce(plain, batch(2, producer_id=9, producer_epoch=1, base_sequence=0))
    client.produce(plain, batch(2, producer_id=9, producer_epoch=1, base_sequence=2))
    client.alter(TOPIC, other, ("retention.ms", 0, "777777777"))
    client.alter(BROKER, "", ("background.threads", 0, "11"))
    return plain, other


def facts(client, topics):
    metadata = client.metadata(None)
    found = {
        "cluster": client.metadata([], 3).cluster_id,
        "topics": sorted((topic.name, topic.topic_id, len(topic.partitions)) for topic in metadata.topics),
        "threads": client.configs(BROKER, "0", "background.threads")["background.threads"].value,
    }
    for topic in topics:
        found[topic] = [
            {
                config.name: config.value
                for config in client.configs(TOPIC, topic).values()
                if config.config_source == 1
            },
            [client.offset(topic, -1, partition=index).offset for index in range(3)],
            [header.base_offset for header in headers(client.read(topic, 7 if "other" in topic else 0).records)],
        ]
    producers = client.ask(Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": topics[0], "partition_indexes": [0]}])
    found["producers"] = producers.topics[0].partitions[0].active_producers
    return found


def test_a_restart_changes_nothing(tmp_path):
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        topics = fill(client)
        before = facts(client, topics)
    with Broker(data=tmp_path) as broker, Client(broker.bootstrap_servers) as client:
        assert facts(client, topics) == before
        assert client.offset(topics[1], -2).offset == 7
        again = batch(2, producer_id=9, producer_epoch=1, base_sequence=2)
        assert client.produce(topics[0], again).base_offset == before[topics[0]][1][0] - 2
        assert client.produce(topics[0]).base_offset == before[topics[0]][1][0]


def test_a_kill_changes_nothing(tmp_path):
    """Copies the folder of a running broker, as a kill would leave it, and starts a broker on the copy."""
    with Broker(data=tmp_path / "live") as broker, Client(broker.bootstrap_servers) as client:
        topics = fill(client)
        before = facts(client, topics)
        copytree(tmp_path / "live", tmp_path / "killed")
    with Broker(data=tmp_path / "killed") as broker, Client(broker.bootstrap_servers) as client:
        assert facts(client, topics) == before
        again = batch(2, producer_id=9, producer_epoch=1, base_sequence=2)
        assert client.produce(topics[0], again).base_offset == before[topics[0]][1][0] - 2


def test_producer_ids_do_not_repeat_after_a_kill(tmp_path):
    with Broker(data=tmp_path / "live") as broker, Client(broker.bootstrap_servers) as client:
        first = {client.ask(Api.INIT_PRODUCER_ID, 4, transaction_timeout=1).producer_id for _ in range(3)}
        copytree(tmp_path / "live", tmp_path / "killed")
    with Broker(data=tmp_path / "killed") as broker, Client(broker.bootstrap_servers) as client:
        assert client.ask(Api.INIT_PRODUCER_ID, 4, transaction_timeout=1).producer_id not in first


def test_a_deleted_topic_stays_deleted(tmp_path):
    with Broker(data=tmp_path / "live") as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        client.produce(topic)
        client.ask(Api.DELETE_TOPICS, 3, topic_names=[topic], timeout=1000)
        copytree(tmp_path / "live", tmp_path / "killed")
    for folder in ("live", "killed"):
        with Broker(data=tmp_path / folder) as broker, Client(broker.bootstrap_servers) as client:
            assert client.metadata([topic]).topics[0].error_code == 3
            assert client.create_topic(topic) == topic
            assert client.offset(topic, -1).offset == 0
