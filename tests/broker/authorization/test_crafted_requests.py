"""Requests that try to get around ACLs: false replica ids, transactional batches in disguise, expressions, and more."""

import pytest
from acl_harness import (
    ALLOW,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl_broker,
    acl_filter,
    rule,
    without_rights,
)
from broker_harness import Client, batch, on_loop, unique

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

DENIED = ErrorCode.topic_authorization_failed


@pytest.fixture(scope="module")
def broker():
    with acl_broker() as broker:
        yield broker


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap_servers) as client:
        yield client
        client.ask(Api.DELETE_ACLS, 3, filters=[acl_filter()])


@pytest.fixture
def topic(client):
    return client.create_topic()


def allow(client, *rules):
    answers = client.ask(Api.CREATE_ACLS, 3, creations=list(rules)).results
    assert {answer.error_code for answer in answers} == {0}


def fetch(client, topic, replica_id):
    partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": 0, "partition_max_bytes": 1000}
    (answer,) = client.ask(
        Api.FETCH, 5, replica_id=replica_id, max_wait=0, min_bytes=0, max_bytes=1000, isolation_level=0,
        topics=[{"topic": topic, "partitions": [partition]}],
    ).responses  # fmt: skip
    return answer.partitions[0]


def test_a_client_that_says_it_is_a_replica(broker, client, topic):
    """CVE-2018-1288: a fetch with a replica id moved the high watermark, and needed no right but READ.

    As in Kafka, a client with the right CLUSTER_ACTION gets no records either, because it is not a replica.
    """
    client.produce(topic, batch(1))
    allow(client, rule(TOPIC, topic, READ))
    with without_rights(broker):
        assert fetch(client, topic, -1).error_code == 0
        assert fetch(client, topic, 1).error_code == DENIED
    allow(client, rule(CLUSTER, "kafka-cluster", CLUSTER_ACTION))
    with without_rights(broker):
        for replica_id in (1, broker.core.broker_id):
            refused = fetch(client, topic, replica_id)
            assert (refused.error_code, refused.records or b"") == (ErrorCode.not_leader_or_follower, b"")
        assert fetch(client, unique("unknown"), 1).error_code == ErrorCode.unknown_topic_or_partition


def test_a_replica_that_names_the_leader_epoch_is_refused_by_it(client, topic):
    epoch = (
        client.ask(Api.METADATA, 7, topics=[{"name": topic}], allow_auto_topic_creation=False)
        .topics[0]
        .partitions[0]
        .leader_epoch
    )
    for leader_epoch, expected in ((epoch, "unknown_leader_epoch"), (epoch + 1, "unknown_leader_epoch")):
        partition = {"partition": 0, "fetch_offset": 0, "log_start_offset": 0, "partition_max_bytes": 1000}
        partition |= {"current_leader_epoch": leader_epoch}
        (answer,) = client.ask(
            Api.FETCH, 9, replica_id=1, max_wait=0, min_bytes=0, max_bytes=1000, isolation_level=0, session_id=0,
            session_epoch=-1, forgotten_topics_data=[], topics=[{"topic": topic, "partitions": [partition]}],
        ).responses  # fmt: skip
        assert answer.partitions[0].error_code == ErrorCode[expected]


def produce(client, topic, records, transactional_id):
    partition = {"index": 0, "records": records}
    (answer,) = client.ask(
        Api.PRODUCE, 9, transactional_id=transactional_id, acks=-1, timeout=5_000,
        topic_data=[{"name": topic, "partition_data": [partition]}],
    ).responses  # fmt: skip
    return answer.partition_responses[0].error_code


def test_a_transactional_batch_needs_the_right_whatever_its_request_says(broker, client, topic):
    """CVE-2018-17196: a crafted Produce request got around the ACLs of transactions."""
    mine, other = unique("txn"), unique("txn")
    started = client.ask(Api.INIT_PRODUCER_ID, 1, transactional_id=other, transaction_timeout=60_000)
    producer = {"producer_id": started.producer_id, "producer_epoch": 0, "base_sequence": 0}
    records = batch(1, is_transactional=True, **producer)
    allow(client, rule(TOPIC, topic, WRITE), rule(TRANSACTIONAL_ID, mine, WRITE))
    refused = ErrorCode.transactional_id_authorization_failed
    with without_rights(broker):
        assert produce(client, topic, records, None) == refused
        assert produce(client, topic, records, other) == refused
        assert produce(client, topic, records, mine) == ErrorCode.invalid_producer_id_mapping
        assert produce(client, topic, batch(1), other) == 0


def test_a_refused_topic_is_not_added_to_a_transaction(broker, client, topic):
    """From Produce v12 on, a batch adds its partition to the transaction: a marker would be written there."""
    secret, mine = client.create_topic(), unique("txn")
    started = client.ask(Api.INIT_PRODUCER_ID, 1, transactional_id=mine, transaction_timeout=60_000)
    producer = {"producer_id": started.producer_id, "producer_epoch": 0, "base_sequence": 0}
    records = batch(1, is_transactional=True, **producer)
    allow(client, rule(TRANSACTIONAL_ID, mine, WRITE))
    with without_rights(broker):
        partition = {"index": 0, "records": records}
        (answer,) = client.ask(
            Api.PRODUCE, 12, transactional_id=mine, acks=-1, timeout=5_000,
            topic_data=[{"name": secret, "partition_data": [partition]}],
        ).responses  # fmt: skip
        assert answer.partition_responses[0].error_code == DENIED
    found = on_loop(broker, broker.core.services.transactions.coordinator.describe, mine)
    assert not found.partitions


def test_a_client_without_rights_does_not_make_the_topics_of_coordinators():
    with acl_broker() as broker, Client(broker.bootstrap_servers) as client:
        for key_type, code in ((0, ErrorCode.group_authorization_failed), (1, 53)):
            with without_rights(broker):
                answer = client.ask(Api.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=["a", "b"])
                assert [found.error_code for found in answer.coordinators] == [code, code]
        assert not list(broker.core.metadata)
        client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a"])
        assert [topic.name for topic in broker.core.metadata] == ["__consumer_offsets"]


def heartbeat(client, group, **subscription):
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": None, **subscription}
    return client.ask(
        Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group, member_id="m", member_epoch=0, instance_id=None, rack_id=None,
        rebalance_timeout=60_000, server_assignor=None, topic_partitions=[], **fields,
    )  # fmt: skip


def assigned_ids(answer):
    return {each.topic_id for each in answer.assignment.topic_partitions}


def test_an_expression_matches_only_topics_that_the_member_may_see(broker, client):
    prefix, group = unique("shop"), unique("group")
    names = [client.create_topic(f"{prefix}-{short}") for short in "abc"]
    ids = {name: broker.core.metadata.get(name).topic_id for name in names}
    client.ask(Api.FIND_COORDINATOR, 3, key=group, key_type=0)
    allow(client, rule(TOPIC, names[0], DESCRIBE), rule(TOPIC, names[2], READ), rule(GROUP, group, READ))
    with without_rights(broker):
        assert heartbeat(client, group, subscribed_topic_names=names).error_code == DENIED
        answer = heartbeat(client, group, subscribed_topic_regex=f"{prefix}-.*")
        assert answer.error_code == 0
        assert assigned_ids(answer) == {ids[names[0]], ids[names[2]]}
        other = heartbeat(client, unique("other"), subscribed_topic_names=[names[0]])
        assert other.error_code == ErrorCode.group_authorization_failed


def test_a_topic_that_is_deleted_by_its_id_keeps_its_name(broker, client, topic):
    topic_id = broker.core.metadata.get(topic).topic_id

    def delete(**fields):
        (answer,) = client.ask(
            Api.DELETE_TOPICS, 6, topics=[{"name": None, "topic_id": None, **fields}], timeout=5_000
        ).responses
        return answer

    with without_rights(broker):
        answer = delete(topic_id=topic_id)
        assert (answer.error_code, answer.name, answer.topic_id) == (DENIED, None, topic_id)
        answer = delete(name=topic)
        assert (answer.error_code, answer.name, answer.topic_id) == (DENIED, topic, None)
        assert delete(name="never-there").error_code == DENIED
    allow(client, rule(TOPIC, topic, DESCRIBE))
    with without_rights(broker):
        assert delete(topic_id=topic_id).name == topic
    allow(client, rule(TOPIC, topic, DELETE))
    with without_rights(broker):
        assert delete(topic_id=topic_id).error_code == 0


def test_a_topic_is_created_on_its_first_use_only_with_the_right(broker, client):
    name = unique("auto")

    def metadata():
        asked = [{"topic_id": None, "name": name}]
        fields = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
        return client.ask(Api.METADATA, 12, topics=asked, **fields).topics[0].error_code

    allow(client, rule(TOPIC, name, DESCRIBE))
    with without_rights(broker):
        assert metadata() == DENIED
    assert broker.core.metadata.get(name) is None
    allow(client, rule(TOPIC, "auto", CREATE, pattern=PREFIXED))
    with without_rights(broker):
        assert metadata() == 0


def test_deny_counts_before_allow_for_a_client(broker, client, topic):
    client.produce(topic, batch(1))
    allow(client, rule(TOPIC, "*", READ, ALLOW), rule(TOPIC, topic, READ, DENY, host="127.0.0.1"))
    with without_rights(broker):
        assert fetch(client, topic, -1).error_code == DENIED
    allow(client, rule(TOPIC, "elsewhere", READ, DENY))
    client.ask(Api.DELETE_ACLS, 3, filters=[acl_filter(permission=DENY, name=topic)])
    with without_rights(broker):
        assert fetch(client, topic, -1).error_code == 0


def test_everyone_may_use_a_resource_without_acls_if_the_setting_says_so():
    with acl_broker(allow_everyone_if_no_acl_found="true") as broker, Client(broker.bootstrap_servers) as client:
        free, guarded = client.create_topic(), client.create_topic()
        allow(client, rule(TOPIC, guarded, READ, principal="User:alice"))
        with without_rights(broker):
            assert fetch(client, free, -1).error_code == 0
            assert fetch(client, guarded, -1).error_code == DENIED


def test_a_client_without_rights_writes_no_reasons_into_the_log(broker, client, caplog):
    caplog.set_level("INFO")
    joining = {
        "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "", "group_instance_id": None,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    reason, group = unique("reason"), unique("group")
    with without_rights(broker):
        answer = client.ask(Api.JOIN_GROUP, 9, group_id=group, reason=reason, **joining)
    assert answer.error_code == ErrorCode.group_authorization_failed
    assert reason not in caplog.text
