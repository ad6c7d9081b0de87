"""Three brokers whose settings change: what a change on one of them means for the others."""

import json

import pytest
from cluster_scenario_harness import ClusterScenarioHarness, as_options, until, zookeeper_shell

from headrace import Admin, Producer
from headrace.protocol.api import Api
from headrace.testing.cluster_process import ClusterProcess
from headrace.testing.ports import free_port
from headrace.testing.raw_client import RawClient

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = as_options(
        {
            "auto.leader.rebalance.enable": "false",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT",
        }
    )
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), *settings) as made:
        yield made


@pytest.fixture
def admin(cluster):
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


def brokers_as_told_by(address):
    with RawClient(address) as client:
        found = client.ask(Api.METADATA, 1, topics=[]).brokers
        return {node.node_id: f"{node.host}:{node.port}" for node in found}


def test_other_brokers_learn_of_new_listeners_and_advertised_addresses(cluster, admin):
    """listeners, advertised.listeners"""
    before = brokers_as_told_by(cluster.addresses[1])
    ports = {number: free_port() for number in (2, 3)}
    for number, port in ports.items():
        listeners = f"PLAINTEXT://{cluster.addresses[number]},EXTRA://127.0.0.1:{port}"
        admin.alter_config("broker", number, {"listeners": listeners})
    expected = {number: f"127.0.0.1:{port}" for number, port in ports.items()}
    for port in ports.values():
        until(lambda port=port: brokers_as_told_by(f"127.0.0.1:{port}") == expected, "both brokers, on this listener")
    assert brokers_as_told_by(cluster.addresses[1]) == before, "the other listener has all brokers"

    advertised = f"PLAINTEXT://localhost:{cluster.addresses[2].rpartition(':')[2]}"
    admin.alter_config("broker", 2, {"advertised.listeners": advertised, "listeners": None})
    changed = before | {2: advertised.removeprefix("PLAINTEXT://")}
    for number in (1, 2, 3):
        until(lambda number=number: brokers_as_told_by(cluster.addresses[number]) == changed, "the advertised address")
    registered = json.loads(zookeeper_shell(cluster.zookeeper_address, "get", "/brokers/ids/2").splitlines()[0])
    assert registered["endpoints"] == [advertised]
    until(lambda: 2 not in brokers_as_told_by(f"127.0.0.1:{ports[3]}"), "broker 2 has left the listener EXTRA")

    admin.create_topic("after", assignments={0: [2, 3, 1]})  # brokers reach each other
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send("after", value=b"x").result(20)
    admin.alter_config("broker", 2, {"advertised.listeners": None})
    admin.alter_config("broker", 3, {"listeners": None})
    until(lambda: brokers_as_told_by(cluster.addresses[1]) == before, "everything is as before")


def test_a_leader_is_elected_as_soon_as_an_unclean_election_is_allowed(cluster, admin):
    """unclean.leader.election.enable"""
    harness = ClusterScenarioHarness(cluster, "ready", partitions=1)
    harness.wait_until_in_sync()
    last, lagging = (number for number in (1, 2, 3) if number != harness.controller)
    topic = "unclean"
    admin.create_topic(topic, assignments={0: [last, lagging]}, configs={"min.insync.replicas": 1})
    cluster.stop(lagging)
    until(lambda: harness.partition(0, topic).isrs == [last], "the ISR has one replica")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        producer.send(topic, value=b"only here").result(20)
    cluster.stop(last)
    cluster.restart(lagging)
    until(lambda: lagging in harness.alive(), "the lagging replica is back")
    assert harness.partition(0, topic).leader == -1
    with Admin(bootstrap_servers=cluster.addresses[lagging]) as there:
        there.alter_config("broker", "", {"unclean.leader.election.enable": True})
        until(lambda: harness.partition(0, topic).leader == lagging, "an unclean leader")
        there.alter_config("broker", "", {"unclean.leader.election.enable": None})
    cluster.restart(last)
    harness.wait_until_all_live()
