"""DeleteTopics: by name and by id."""

from pathlib import Path
from uuid import uuid4

import pytest
from broker_harness import Client, all_versions, unique

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode


def delete(client, *topics, version=6):
    """A topic is a name, or a pair of name and id."""
    pairs = [topic if isinstance(topic, tuple) else (topic, None) for topic in topics]
    fields = {"topics": [{"name": name, "topic_id": topic_id} for name, topic_id in pairs]}
    if version < 6:
        fields = {"topic_names": [name for name, _ in pairs]}
    return client.ask(Api.DELETE_TOPICS, version, timeout=10_000, **fields).responses


def exists(client, name):
    return client.metadata([name]).topics[0].error_code == 0


@pytest.mark.parametrize("version", all_versions(Api.DELETE_TOPICS))
def test_every_version(client, version):
    topic = client.create_topic(partitions=2)
    topic_id = client.id_of(topic)
    (answer,) = delete(client, topic, version=version)
    assert (answer.name, answer.error_code) == (topic, 0)
    if version >= 6:
        assert answer.topic_id == topic_id
    assert not exists(client, topic)


def test_by_id(client, topic):
    topic_id = client.id_of(topic)
    (answer,) = delete(client, (None, topic_id))
    assert (answer.error_code, answer.topic_id, answer.name) == (0, topic_id, topic)
    assert not exists(client, topic)


def test_one_that_is_not_there(client):
    name, missing = unique(), uuid4()
    (answer,) = delete(client, name)
    assert (answer.error_code, answer.name) == (ErrorCode.unknown_topic_or_partition, name)
    (answer,) = delete(client, (None, missing))
    assert (answer.error_code, answer.topic_id, answer.name) == (ErrorCode.unknown_topic_id, missing, None)


def test_name_and_id_together(client, topic):
    (answer,) = delete(client, (topic, client.id_of(topic)))
    assert answer.error_code == ErrorCode.invalid_request
    assert exists(client, topic)


def test_neither_name_nor_id(client):
    (answer,) = delete(client, (None, None))
    assert answer.error_code == ErrorCode.invalid_request


def test_one_that_is_named_twice(client, topic):
    answers = delete(client, topic, topic)
    assert {answer.error_code for answer in answers} == {ErrorCode.invalid_request}
    assert exists(client, topic)


def test_the_same_by_name_and_by_id(client, topic):
    topic_id = client.id_of(topic)
    answers = delete(client, topic, (None, topic_id))
    assert {answer.error_code for answer in answers} == {ErrorCode.invalid_request}
    assert exists(client, topic)


def test_one_fails_alone(client, topic):
    missing = unique()
    codes = {answer.name: answer.error_code for answer in delete(client, topic, missing)}
    assert codes == {topic: 0, missing: ErrorCode.unknown_topic_or_partition}


def test_a_new_topic_of_the_same_name_is_another_topic(client, topic):
    old_id = client.id_of(topic)
    client.produce(topic)
    delete(client, topic)
    client.create_topic(topic)
    assert client.id_of(topic) != old_id
    assert client.offset(topic, -1).offset == 0


def test_its_data_is_gone(shared_broker, client, topic):
    client.produce(topic)
    folder = Path(shared_broker.core.logs.get(topic, 0).folder)
    delete(client, topic)
    assert not folder.exists()


def test_where_deletion_is_disabled(ours):
    with Broker(config={"delete.topic.enable": False}) as broker, Client(broker.bootstrap_servers) as client:
        topic = client.create_topic()
        (answer,) = delete(client, topic, version=6)
        assert answer.error_code == ErrorCode.topic_deletion_disabled
        (answer,) = delete(client, topic, version=2)
        assert answer.error_code == ErrorCode.invalid_request  # the code came with v3
        assert exists(client, topic)
