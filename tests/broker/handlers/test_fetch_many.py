"""Fetch of more partitions than a purgatory watches: read in slices, with records, errors, sessions and waits."""

import threading

import pytest
from broker_harness import Client, batch, values

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

PARTITIONS = 1_200
VERSION = 12


@pytest.fixture(scope="module")
def many(shared_broker):
    with Client(shared_broker.bootstrap_servers) as client:
        return client.create_topic("many-partitions", PARTITIONS)


def wanted(topic, indexes=range(PARTITIONS), offset=0):
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1_000, "current_leader_epoch": -1}
        for index in indexes
    ]
    return [{"topic": topic, "partitions": partitions}]


def fetch(client, topics, *, session=(0, -1), max_wait=0, forgotten=()):
    session_id, epoch = session
    return client.ask(
        Api.FETCH, VERSION, replica_id=-1, max_wait=max_wait, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten, rack_id="",
    )  # fmt: skip


def test_records_and_errors_of_many_partitions(client, many):
    client.produce(many, batch(1, value=b"seven"), partition=7)
    client.produce(many, batch(1, value=b"last"), partition=PARTITIONS - 1)
    answer = fetch(client, wanted(many, range(PARTITIONS + 2)))
    (topic,) = answer.responses
    assert [partition.partition_index for partition in topic.partitions] == list(range(PARTITIONS + 2))
    read = {part.partition_index: values(part.records) for part in topic.partitions if part.records}
    assert (read[7], read[PARTITIONS - 1]) == ([b"seven"], [b"last"])
    assert {part.error_code for part in topic.partitions[:PARTITIONS]} == {0}
    assert {part.error_code for part in topic.partitions[PARTITIONS:]} == {ErrorCode.unknown_topic_or_partition}


def test_a_session_of_many_partitions(client, many):
    ends = [partition.high_watermark for partition in fetch(client, wanted(many)).responses[0].partitions]
    topics = wanted(many)
    for partition, end in zip(topics[0]["partitions"], ends, strict=True):
        partition["fetch_offset"] = end
    first = fetch(client, topics, session=(0, 0))
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == PARTITIONS
    assert fetch(client, [], session=(first.session_id, 1)).responses == ()
    client.produce(many, batch(1, value=b"news"), partition=5)
    (topic,) = fetch(client, [], session=(first.session_id, 2)).responses
    assert [(part.partition_index, values(part.records)) for part in topic.partitions] == [(5, [b"news"])]
    # A large request may change a session: all partitions anew, from their starts.
    (topic,) = fetch(client, wanted(many), session=(first.session_id, 3)).responses
    assert 5 in [part.partition_index for part in topic.partitions if part.records]


def test_a_wait_ends_when_a_record_comes(client, many, address):
    ends = {part.partition_index: part.high_watermark for part in fetch(client, wanted(many)).responses[0].partitions}
    topics = wanted(many)
    for partition in topics[0]["partitions"]:
        partition["fetch_offset"] = ends[partition["partition"]]
    assert not any(part.records for part in fetch(client, topics, max_wait=200).responses[0].partitions)

    def produce():
        with Client(address) as other:
            other.produce(many, batch(1, value=b"late"), partition=3)

    later = threading.Timer(0.2, produce)
    later.start()
    try:
        answer = fetch(client, topics, max_wait=8_000)
    finally:
        later.join()
    read = {part.partition_index: values(part.records) for part in answer.responses[0].partitions if part.records}
    assert read == {3: [b"late"]}
