"""Metadata: brokers, topics, and topics that the request itself creates."""

from uuid import uuid4

import pytest
from broker_harness import OTHER_KAFKA, Client, all_versions, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

NOT_ASKED = -(2**31)
TOPIC_OPERATIONS = 0b1101_1111_1000
CLUSTER_OPERATIONS = 0b1_1111_1010_0000


@pytest.mark.parametrize("version", all_versions(Api.METADATA))
def test_every_version(client, version):
    topic = client.create_topic(partitions=2)
    answer = client.metadata([topic], version)
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host) == (0, "127.0.0.1")
    assert broker.port == client.socket.getpeername()[1]
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    partitions = sorted(found.partitions, key=lambda part: part.partition_index)
    assert [part.partition_index for part in partitions] == [0, 1]
    for part in partitions:
        assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 0, (0,), (0,))
    if version >= 1:
        assert found.is_internal is False
        assert answer.controller_id == 0
    if version >= 2:
        assert answer.cluster_id
    if version >= 5:
        assert partitions[0].offline_replicas == ()
    if version >= 7:
        assert partitions[0].leader_epoch == 0
    if version >= 10:
        assert found.topic_id is not None


@pytest.mark.parametrize("version", all_versions(Api.METADATA))
def test_all_topics(client, topic, version):
    """In v0 an empty list means all, later null does."""
    answer = client.metadata([] if version == 0 else None, version)
    assert topic in [found.name for found in answer.topics]


@pytest.mark.parametrize("version", all_versions(Api.METADATA)[1:])
def test_no_topics(client, topic, version):
    answer = client.metadata([], version)
    assert answer.topics == ()
    assert answer.brokers


def test_a_topic_that_is_not_there(client):
    name = unique()
    (found,) = client.metadata([name]).topics
    assert (found.error_code, found.name) == (ErrorCode.unknown_topic_or_partition, name)
    assert found.partitions == ()
    assert client.metadata([name]).topics[0].error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_a_topic_is_created_where_the_client_allows_it(client, version):
    """Before v4 a client cannot forbid it."""
    name = unique()
    client.metadata([name], version, create=True)
    (found,) = client.metadata([name]).topics
    while OTHER_KAFKA and found.error_code == ErrorCode.unknown_topic_or_partition:
        (found,) = client.metadata([name]).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)


def test_a_created_topic_has_its_leaders_in_the_first_answer(client, ours):
    (found,) = client.metadata([unique()], create=True).topics
    assert (found.error_code, [part.leader_id for part in found.partitions]) == (0, [0])


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b"])
@pytest.mark.parametrize("create", [True, False])
def test_bad_names(client, name, create):
    (found,) = client.metadata([name], create=create).topics
    assert (found.error_code, found.name) == (ErrorCode.invalid_topic_exception, name)


def test_by_id(client, topic):
    topic_id = client.id_of(topic)
    operations = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": True}
    answer = client.ask(Api.METADATA, 12, topics=[{"topic_id": topic_id, "name": None}], **operations)
    (found,) = answer.topics
    assert (found.error_code, found.name, found.topic_id) == (0, topic, topic_id)


def test_by_an_unknown_id(client):
    missing = uuid4()
    fields = {"include_topic_authorized_operations": False, "allow_auto_topic_creation": True}
    (found,) = client.ask(Api.METADATA, 12, topics=[{"topic_id": missing, "name": None}], **fields).topics
    assert (found.error_code, found.topic_id, found.name) == (ErrorCode.unknown_topic_id, missing, None)


@pytest.mark.parametrize("version", [8, 10])
def test_authorized_operations(client, topic, version):
    without = client.metadata([topic], version)
    assert without.cluster_authorized_operations == NOT_ASKED
    assert without.topics[0].topic_authorized_operations == NOT_ASKED
    fields = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    asked = client.metadata([topic], version, **fields)
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


def test_topic_operations_without_those_of_the_cluster(client, topic):
    asked = client.metadata([topic], include_topic_authorized_operations=True)
    assert asked.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert client.metadata([topic]).topics[0].topic_authorized_operations == NOT_ASKED


def test_a_topic_that_is_asked_for_twice(client, topic):
    assert {found.name for found in client.metadata([topic, topic]).topics} == {topic}


@pytest.mark.parametrize("count", [2, 50, 2_000])
def test_a_repeated_topic_is_answered_once(client, topic, count):
    absent = unique()
    answer = client.metadata([topic, absent] * count)
    assert sorted(found.name for found in answer.topics) == sorted([topic, absent])


def test_a_repeated_id_is_answered_once(client, topic):
    asked = [{"topic_id": topic_id, "name": None} for topic_id in [client.id_of(topic), uuid4()] * 3]
    fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    codes = [found.error_code for found in client.ask(Api.METADATA, 12, topics=asked, **fields).topics]
    assert sorted(codes) == [0, ErrorCode.unknown_topic_id]


def test_no_creation_where_the_broker_forbids_it(ours):
    with Broker(config={"auto.create.topics.enable": False}) as broker, Client(broker.bootstrap_servers) as client:
        (found,) = client.metadata(["new"], create=True).topics
        assert found.error_code == ErrorCode.unknown_topic_or_partition


def test_created_topics_take_the_brokers_defaults(ours):
    with Broker(config={"num.partitions": 4}) as broker, Client(broker.bootstrap_servers) as client:
        (found,) = client.metadata(["new"], create=True).topics
        assert len(found.partitions) == 4


def test_a_client_is_told_the_advertised_address(ours):
    settings = {"advertised.listeners": "PLAINTEXT://somewhere.example:1234"}
    with Broker(config=settings) as broker, Client(broker.bootstrap_servers) as client:
        (node,) = client.metadata([]).brokers
        assert (node.host, node.port) == ("somewhere.example", 1234)


def test_a_broker_bound_to_all_addresses_names_the_one_that_was_used(ours):
    with Broker(listen="0.0.0.0:0") as broker, Client(f"127.0.0.1:{broker.port}") as client:
        (node,) = client.metadata([]).brokers
        assert (node.host, node.port) == ("127.0.0.1", broker.port)
