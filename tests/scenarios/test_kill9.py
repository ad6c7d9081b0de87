"""``kill -9`` under load: every acknowledged record survives, once, at the same offset.

A producer sends idempotent batches of numbered records, several at a time. When the broker dies, the producer keeps the
unacknowledged batches and sends them to the next broker with the same sequence numbers, as real clients do. No other
producer writes to the partition, so record N must always be at offset N.
"""

import subprocess
import sys
from collections import deque
from random import Random
from threading import Timer
from time import time_ns

import pytest

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient

NOW_MS = time_ns() // 1_000_000
#: Small segments, so that kills meet rolls and new indexes too.
SETTINGS = (
    "-o", "log.segment.bytes=60000", "-o", "log.index.interval.bytes=500", "-o", "auto.create.topics.enable=true",
)  # fmt: skip
IN_FLIGHT = 5  # what an idempotent producer may have, and what a broker remembers
GONE = (ClosedByPeer, ConnectionError)


class Producer:
    """Writes numbered records to one partition of topic ``t``."""

    def __init__(self, partition, random):
        self.partition = partition
        self._random = random
        self._next_number = 0
        self._producer_id = None
        self._client = None
        #: (the first number, the batch) of what is not acknowledged, oldest first.
        self._unacknowledged = deque()
        self.acknowledged = 0

    def connect(self, address):
        """To a new broker: first of all what the old one did not acknowledge."""
        self._client = RawClient(address)
        if self._producer_id is None:
            answer = self._client.ask(
                Api.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=1000, producer_id=-1,
                producer_epoch=-1,
            )  # fmt: skip
            assert answer.error_code == 0
            self._producer_id = answer.producer_id
        for _, batch in self._unacknowledged:
            self._send(batch)
        while self._unacknowledged:
            self._receive()

    def close(self):
        if self._client is not None:
            self._client.close()

    def run(self):
        """Until the broker is gone."""
        try:
            while True:
                while len(self._unacknowledged) < IN_FLIGHT:
                    self._send_new()
                self._receive()
        except GONE:
            self.close()

    def _send_new(self):
        count = self._random.randint(1, 40)
        first = self._next_number
        records = [
            Record(number, NOW_MS, None, b"%d " % (first + number) + b"x" * self._random.randint(0, 200), ())
            for number in range(count)
        ]
        batch = build_batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=first)
        self._next_number += count
        self._unacknowledged.append((first, batch))
        self._send(batch)

    def _send(self, batch):
        data = [{"name": "t", "partition_data": [{"index": self.partition, "records": batch}]}]
        self._client.send(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)

    def _receive(self):
        answer = self._client.receive().responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        first, _ = self._unacknowledged.popleft()
        # A duplicate that is older than what the broker remembers of it has no offset any more.
        assert answer.base_offset in (first, -1)
        self.acknowledged = self._next_number if not self._unacknowledged else self._unacknowledged[0][0]


def numbers(client, partition, first_offset=0):
    """The number of each record in the partition; each batch is where its first record says."""
    found, offset = [], first_offset
    while True:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
        answer = client.ask(
            Api.FETCH, 4, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1_000_000, isolation_level=0,
            topics=[{"topic": "t", "partitions": [wanted]}],
        )  # fmt: skip
        (part,) = answer.responses[0].partitions
        assert part.error_code == 0
        if not part.records:
            assert part.high_watermark == offset
            return found
        for position, header in iter_headers(part.records):
            batch = part.records[position : position + header.size_bytes]
            for record in decode_records(batch):
                number = int(record.value.split()[0])
                assert number == record.offset
                found.append(number)
            offset = header.next_offset


def create_topic(client, partitions):
    topic = {
        "name": "t", "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": (),
    }  # fmt: skip
    answer = client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=5000, validate_only=False)
    assert answer.topics[0].error_code == 0


def last_log_file(folder, partition=0):
    return max((folder / f"t-{partition}").glob("*.log"))


def killed_while_it_starts(folder, after_s):
    """Recovery itself may be killed, at any moment."""
    command = [sys.executable, "-c", "from headrace.tools.main import main; main()", "start"]
    process = subprocess.Popen(
        [*command, "--data", str(folder), "--listen", "127.0.0.1:0", *SETTINGS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    killer = Timer(after_s, process.kill)
    killer.start()
    process.wait(30)
    killer.join()


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_that_was_acknowledged_is_lost_or_doubled_by_kills_under_load(tmp_path, seed, request):
    random = Random(seed)
    producer = Producer(0, random)
    request.addfinalizer(producer.close)
    with BrokerProcess(tmp_path, *SETTINGS) as broker, RawClient(broker.address) as client:
        create_topic(client, 1)
        broker.terminate()
    for _ in range(6):
        killed_while_it_starts(tmp_path, random.uniform(0.1, 0.4))
        with BrokerProcess(tmp_path, *SETTINGS) as broker:
            producer.connect(broker.address)
            killer = Timer(random.uniform(0.0, 0.15), broker.kill)
            killer.start()
            producer.run()
            killer.join()
            assert "Traceback" not in broker.log
    with BrokerProcess(tmp_path, *SETTINGS) as broker:
        with RawClient(broker.address) as client:
            found = numbers(client, 0)
            assert found == list(range(len(found)))
            assert len(found) >= producer.acknowledged > 500
        producer.connect(broker.address)  # what was under way is sent again, and is there once
        producer.close()
        with RawClient(broker.address) as client:
            assert numbers(client, 0) == list(range(producer.acknowledged))
        assert "Traceback" not in broker.log


def test_sequences_still_deduplicate_and_still_refuse_gaps_after_a_kill(tmp_path):
    def produce(client, base_sequence, value=b"0 "):
        batch = build_batch([Record(0, NOW_MS, None, value, ())], producer_id=1, producer_epoch=0,
                            base_sequence=base_sequence)  # fmt: skip
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
        answer = client.ask(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
        return answer.responses[0].partition_responses[0]

    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        create_topic(client, 1)
        for sequence in range(7):
            assert produce(client, sequence).base_offset == sequence
        broker.kill()
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        for sequence in range(2, 7):
            assert produce(client, sequence).base_offset == sequence
        assert produce(client, 9).error_code == ErrorCode.out_of_order_sequence_number
        assert produce(client, 7).base_offset == 7


def filled(tmp_path, batches=20):
    """A killed broker's folder with batches of one record, value = offset."""
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        create_topic(client, 1)
        for number in range(batches):
            batch = build_batch([Record(0, NOW_MS, None, b"%d " % number + b"x" * 80, ())])
            data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
            answer = client.ask(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
            assert answer.responses[0].partition_responses[0].base_offset == number
        broker.kill()


def cut_tail(file):
    file.write_bytes(file.read_bytes()[:-50])


def torn_append(file):
    data = file.read_bytes()
    file.write_bytes(data + data[:70])


def zeros_at_the_end(file):
    file.write_bytes(file.read_bytes() + bytes(4096))


def flipped_byte(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [(cut_tail, range(19, 20)), (torn_append, range(20, 21)), (zeros_at_the_end, range(20, 21)),
     (flipped_byte, range(5, 15))],
)  # fmt: skip
def test_damaged_files_are_cut_to_what_is_whole_and_the_log_says_so(tmp_path, damage, expected):
    filled(tmp_path)
    damage(last_log_file(tmp_path))
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        found = numbers(client, 0)
        assert found == list(range(len(found)))
        assert len(found) in expected
        (line,) = [line for line in broker.log.splitlines() if " WARNING " in line]
        assert str(tmp_path / "t-0") in line
        # and it goes on from there
        batch = build_batch([Record(0, NOW_MS, None, b"%d " % len(found), ())])
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
        answer = client.ask(Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=5000, topic_data=data)
        assert answer.responses[0].partition_responses[0].base_offset == len(found)
        assert broker.terminate() == 0


def test_lost_indexes_are_made_anew(tmp_path):
    filled(tmp_path)
    for pattern in ("*.index", "*.timeindex"):
        for file in (tmp_path / "t-0").glob(pattern):
            file.unlink()
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        assert numbers(client, 0) == list(range(20))
        assert numbers(client, 0, first_offset=13) == list(range(13, 20))
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": NOW_MS}]}]
        answer = client.ask(Api.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=topics)
        assert answer.topics[0].partitions[0].offset == 0


def test_topics_and_settings_survive_a_kill(tmp_path):
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        topics = [
            {
                "name": f"topic-{number}", "num_partitions": 2, "replication_factor": 1, "assignments": (),
                "configs": [{"name": "retention.ms", "value": str(number + 1000)}],
            }
            for number in range(5)
        ]  # fmt: skip
        client.ask(Api.CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
        gone = {"name": "topic-4", "topic_id": None}
        client.ask(Api.DELETE_TOPICS, 6, topics=[gone], timeout=5000)
        ids = topic_ids(client)
        broker.kill()
    with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
        assert topic_ids(client) == ids
        assert sorted(ids) == [f"topic-{number}" for number in range(4)]
        resource = {"resource_type": 2, "resource_name": "topic-3", "configuration_keys": ["retention.ms"]}
        answer = client.ask(
            Api.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
        )
        assert [config.value for config in answer.results[0].configs] == ["1003"]


def topic_ids(client):
    answer = client.ask(
        Api.METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return {topic.name: topic.topic_id for topic in answer.topics}
