"""A broker for the tests of the admin client, and what other clients do to it meanwhile.

``HEADRACE_TEST_KAFKA=host:port`` runs them against a running broker; Apache Kafka 4.3 passes them, with
``group.initial.rebalance.delay.ms=0``, but where a test is marked ``ours``.
"""

import os
from itertools import count
from time import time_ns
from uuid import uuid4

import pytest

from headrace import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.protocol.wire.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from headrace.testing.raw_client import RawClient

OTHER_KAFKA = os.environ.get("HEADRACE_TEST_KAFKA")
NOW_MS = time_ns() // 1_000_000
ours = pytest.mark.skipif(OTHER_KAFKA is not None, reason="not how Apache Kafka does it")

_numbers = count()
_run = uuid4().hex[:6]


def unique(prefix: str = "topic") -> str:
    return f"{prefix}-{_run}-{next(_numbers)}"


def produce(client: RawClient, partition: TopicPartition, count: int = 1, *, timestamp_ms: int = NOW_MS) -> None:
    """Records of a millisecond each."""
    batch = build_batch([Record(number, timestamp_ms + number, b"k", b"v", ()) for number in range(count)])
    _append(client, partition, batch)


def join(client: RawClient, group_id: str, topic: str, *, instance_id: str | None = None) -> str:
    """The only member of a group of the classic protocol, with all three partitions; its id."""
    metadata = encode_subscription(Subscription((topic,)))
    fields = {
        "group_id": group_id,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    answer = client.ask(Api.JOIN_GROUP, 5, member_id="", **fields)
    if answer.error_code.name == "member_id_required":
        answer = client.ask(Api.JOIN_GROUP, 5, member_id=answer.member_id, **fields)
    assert answer.error_code == 0
    assigned = encode_assignment(Assignment(tuple(TopicPartition(topic, index) for index in range(3))))
    synced = client.ask(
        Api.SYNC_GROUP,
        3,
        group_id=group_id,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=instance_id,
        assignments=[{"member_id": answer.member_id, "assignment": assigned}],
    )
    assert synced.error_code == 0
    return str(answer.member_id)


def begin_transaction(client: RawClient, transactional_id: str, partition: TopicPartition) -> tuple[int, int]:
    """A transaction with one record in one partition; its producer's id and epoch."""
    while (found := client.ask(Api.FIND_COORDINATOR, 2, key=transactional_id, key_type=1)).error_code:
        assert found.error_code.retriable
    fields = {"transactional_id": transactional_id, "transaction_timeout": 30_000}
    while (producer := client.ask(Api.INIT_PRODUCER_ID, 4, **fields)).error_code:
        assert producer.error_code.retriable
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = client.ask(
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": partition.topic, "partitions": [partition.partition]}],
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    batch = build_batch([Record(0, NOW_MS, b"k", b"v", ())], is_transactional=True, base_sequence=0, **identity)
    _append(client, partition, batch, transactional_id)
    return int(producer.producer_id), int(producer.producer_epoch)


def _append(client: RawClient, partition: TopicPartition, batch: bytes, transactional_id: str | None = None) -> None:
    data = {"name": partition.topic, "partition_data": [{"index": partition.partition, "records": batch}]}
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout": 10_000, "topic_data": [data]}
    while (code := client.ask(Api.PRODUCE, 9, **fields).responses[0].partition_responses[0].error_code) != 0:
        assert code.retriable, code  # Apache Kafka's broker leads a moment after it says so
