"""A short request for much of the broker's state does not stop the broker for other clients.

``test_frame_fairness.py`` has large requests. Here a request is short, and the state behind its names is large.
"""

import time

import pytest
from loop_watch import LoopWatch, collect_garbage_as_a_broker

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import RawClient, encode_request

LONGEST_MS = 50
#: A busy neighbour can double one measurement, but not each of them. A loop that is not in slices fails each time.
_TRIES = 3
PARTITIONS, PRODUCERS = 200, 300


@pytest.fixture(scope="module")
def broker():
    with Broker(config={"offsets.topic.num.partitions": "1"}) as broker:
        with RawClient(broker.bootstrap_servers, timeout_s=60) as client:
            _prepare(client)
        collect_garbage_as_a_broker()
        yield broker


def _prepare(client):
    """Makes a group with committed offsets of many partitions, and a partition with many producers."""
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, count in (("many-partitions", PARTITIONS), ("many-producers", 1))
    ]
    client.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=30_000, validate_only=False)
    client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    fields = {"committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    partitions = [{"partition_index": index, **fields} for index in range(PARTITIONS)]
    member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    deadline = time.monotonic() + 30
    while True:  # until the group's coordinator is there
        committed = client.ask(
            Api.OFFSET_COMMIT, 8, group_id="g", topics=[{"name": "many-partitions", "partitions": partitions}], **member
        )
        if not committed.topics[0].partitions[0].error_code:
            break
        assert time.monotonic() < deadline
    now_ms = time.time_ns() // 1_000_000
    for number in range(PRODUCERS):
        ids = {"producer_id": 100_000 + number, "producer_epoch": 0, "base_sequence": 0}
        data = {"index": 0, "records": build_batch([Record(0, now_ms, None, b"x", ())], **ids)}
        topic = {"name": "many-producers", "partition_data": [data]}
        client.ask(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=[topic])


def _group(count):
    return {"groups": [{"group_id": "g", "topics": None}] * count, "require_stable": False}


def _producers(count):
    return {"topics": [{"name": "many-producers", "partition_indexes": [0] * count}]}


def _settings(count):
    broker = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
    return {"resources": [broker] * count, "include_synonyms": True, "include_documentation": True}


@pytest.mark.parametrize(
    ("api", "version", "fields_of", "count", "min_bytes"),
    [
        (Api.OFFSET_FETCH, 8, _group, 900, 3_500_000),
        (Api.DESCRIBE_PRODUCERS, 0, _producers, 900, 9_000_000),
        (Api.DESCRIBE_CONFIGS, 4, _settings, 300, 10_000_000),
    ],
    ids=["OffsetFetch", "DescribeProducers", "DescribeConfigs"],
)
def test_a_short_request_for_a_large_answer_does_not_stop_the_loop(broker, api, version, fields_of, count, min_bytes):
    with RawClient(broker.bootstrap_servers, timeout_s=60) as client:
        client.ask(api, version, **fields_of(1))  # imports what the first request needs
        frame = encode_request(api, version, 1, "short", **fields_of(count))
        for _ in range(_TRIES):
            watch = LoopWatch(broker.core.runtime.loop)
            with watch.watching():
                client.send_frame(frame)
                answer = client.read_frame()
            if watch.longest_ms < LONGEST_MS:
                break
    assert len(frame) < 10_000
    assert len(answer) > min_bytes
    assert watch.longest_ms < LONGEST_MS
