"""The broker's place in the znode tree, and data folders that come without one."""

import json
from shutil import rmtree

import pytest
from broker_harness import Client, await_on_loop, headers

from headrace import Broker
from headrace.broker.broker import StartError

pytestmark = pytest.mark.usefixtures("ours")


@pytest.fixture
def start(tmp_path):
    running = []

    def started(**settings):
        broker = Broker(data=tmp_path, config={name.replace("_", "."): value for name, value in settings.items()})
        broker.start()
        client = Client(broker.bootstrap_servers)
        running.append((broker, client))
        return broker, client

    yield started
    for broker, client in running:
        client.close()
        broker.stop()


def znode(broker, path):
    data, stat = await_on_loop(broker, broker.core.role.coordination.get(path))
    return json.loads(data) if data else None, stat


def test_a_broker_registers(start):
    broker, _ = start(broker_id=5, broker_rack="r1")
    registered, stat = znode(broker, "/brokers/ids/5")
    assert (registered["host"], registered["port"]) == (broker.host, broker.port)
    assert registered["endpoints"] == [f"PLAINTEXT://{broker.bootstrap_servers}"]
    assert registered["rack"] == "r1"
    assert stat.ephemeral_owner != 0


def test_it_is_its_own_controller(start):
    broker, client = start(broker_id=5)
    assert znode(broker, "/controller")[0]["brokerid"] == 5
    assert znode(broker, "/controller_epoch")[0] == 1
    assert client.metadata([]).controller_id == 5


def test_the_clusters_id_is_that_of_the_folders(start, tmp_path):
    broker, client = start()
    cluster_id = client.metadata([], 3).cluster_id
    assert f"cluster.id={cluster_id}" in (tmp_path / "meta.properties").read_text()
    assert znode(broker, "/cluster/id")[0]["id"] == cluster_id


def test_a_topic_in_the_tree(start):
    broker, client = start()
    topic = client.create_topic(partitions=2, retention_ms=5)
    assert znode(broker, f"/brokers/topics/{topic}")[0]["partitions"] == {"0": [0], "1": [0]}
    state, _ = znode(broker, f"/brokers/topics/{topic}/partitions/1/state")
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (0, 0, [0])
    assert znode(broker, f"/config/topics/{topic}")[0]["config"] == {"retention.ms": "5"}


def test_folders_without_a_tree_are_adopted(start, tmp_path):
    broker, client = start()
    topic = client.create_topic(partitions=2)
    topic_id, cluster_id = client.id_of(topic), client.metadata([], 3).cluster_id
    client.produce(topic, partition=1)
    broker.stop()
    rmtree(tmp_path / ".coordination")
    broker, client = start()
    assert client.metadata([], 3).cluster_id == cluster_id
    assert client.id_of(topic) == topic_id
    assert client.offset(topic, -1, partition=1).offset == 1
    assert len(headers(client.fetch((topic, 1, 0)).responses[0].partitions[0].records)) == 1
    assert client.produce(topic, partition=1).base_offset == 1


def test_a_folder_of_no_topic_is_put_aside(start, tmp_path):
    broker, client = start()
    topic = client.create_topic()
    broker.stop()
    (tmp_path / "stranger-0").mkdir()
    broker, client = start()
    assert [found.name for found in client.metadata(None).topics] == [topic]
    (aside,) = [path.name for path in tmp_path.glob("stranger-0*")]
    assert aside.endswith("-stray")


def test_a_missing_folder_of_a_topic_is_made(start, tmp_path):
    broker, client = start()
    topic = client.create_topic()
    broker.stop()
    rmtree(tmp_path / f"{topic}-0")
    _, client = start()
    assert client.produce(topic).base_offset == 0


def test_another_brokers_folder_is_refused(start, tmp_path):
    broker, _ = start(broker_id=1)
    broker.stop()
    with pytest.raises(StartError, match="1"):
        start(broker_id=2)
