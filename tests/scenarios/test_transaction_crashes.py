"""``kill -9`` of the broker at random moments of transactions over two partitions and an offset commit.

``tests/transactions/test_coordinator_crashes.py`` crashes at every single write to the disk. Here the real process is
killed and starts again on the same folder.
"""

from random import Random
from threading import Timer

import pytest

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import ErrorCode
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient

ROUNDS = 4
GONE = (ClosedByPeer, OSError)
NAME, GROUP = "mover", "movers"


class Mover:
    """Moves numbers: each into both partitions of ``t`` and, as an offset, into its group; every third is aborted."""

    def __init__(self, client, version):
        self.client, self.version = client, version
        self.number = 0
        #: What was answered as committed, and what was asked and never answered.
        self.committed, self.unknown = [], []
        self.sequence = 0

    def ask(self, api, version, **fields):
        while True:
            answer = self.client.ask(api, version, **fields)
            if getattr(answer, "error_code", 0) not in (
                ErrorCode.coordinator_load_in_progress,
                ErrorCode.concurrent_transactions,
            ):
                return answer

    def start(self):
        for kind, key in ((0, GROUP), (1, NAME)):
            self.client.ask(Api.FIND_COORDINATOR, 3, key=key, key_type=kind)
        answer = self.ask(Api.INIT_PRODUCER_ID, 4, transactional_id=NAME, transaction_timeout=60_000)
        assert answer.error_code == 0
        self._become(answer)

    def _become(self, answer):
        self.identity = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        self.sequence = 0

    def move(self):
        """One transaction. Whatever the broker was asked last, it may have done."""
        self.number += 1
        is_commit = self.number % 3 != 0
        who = {"transactional_id": NAME, **self.identity}
        if self.version < 2:
            self._add(who)
        for partition in (0, 1):
            assert self._write(partition) == 0
        self.sequence += 1
        assert self._commit_offset(who) == 0
        if is_commit:
            self.unknown.append(self.number)
        answer = self.ask(Api.END_TXN, 5 if self.version >= 2 else 3, committed=is_commit, **who)
        assert answer.error_code == 0
        if is_commit:
            self.committed.append(self.unknown.pop())
        if self.version >= 2:
            self._become(answer)

    def _add(self, who):
        topics = [{"name": "t", "partitions": [0, 1]}]
        named = {f"v3_and_below_{name}": value for name, value in who.items()}
        self.ask(Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_topics=topics, **named)
        assert self.ask(Api.ADD_OFFSETS_TO_TXN, 3, group_id=GROUP, **who).error_code == 0

    def _write(self, partition):
        record = Record(0, 1_700_000_000_000, b"k", b"%d" % self.number, ())
        records = build_batch([record], base_sequence=self.sequence, is_transactional=True, **self.identity)
        data = [{"name": "t", "partition_data": [{"index": partition, "records": records}]}]
        version = 12 if self.version >= 2 else 9
        asked = {"transactional_id": NAME, "acks": -1, "timeout": 5000, "topic_data": data}
        return self.client.ask(Api.PRODUCE, version, **asked).responses[0].partition_responses[0].error_code

    def _commit_offset(self, who):
        partition = {
            "partition_index": 0,
            "committed_offset": self.number,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        member = {"group_id": GROUP, "generation_id": -1, "member_id": "", "group_instance_id": None}
        topics = [{"name": "t", "partitions": [partition]}]
        answer = self.client.ask(Api.TXN_OFFSET_COMMIT, 5 if self.version >= 2 else 3, topics=topics, **member, **who)
        return answer.topics[0].partitions[0].error_code


def create_topic(client):
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=5000, validate_only=False)


def committed_values(client, partition):
    """Returns a partition's records for a read_committed reader, in order; the reader must reach the end."""
    found, offset = [], 0
    while True:
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 20_000}
        answer = client.ask(
            Api.FETCH, 11, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1, session_id=0,
            session_epoch=-1, topics=[{"topic": "t", "partitions": [wanted]}], forgotten_topics_data=[], rack_id="",
        ).responses[0].partitions[0]  # fmt: skip
        assert answer.error_code == 0
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        skipped = set()
        for position, header in iter_headers(answer.records or b""):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            records = decode_records(answer.records[position : position + header.size_bytes])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif header.producer_id not in skipped:
                found += [int(record.value) for record in records]
            offset = header.next_offset
        if not answer.records:
            assert offset == answer.last_stable_offset == answer.high_watermark
            return found


def committed_offset(client):
    asked = {"group_id": GROUP, "topics": [{"name": "t", "partition_indexes": [0]}], "require_stable": True}
    while True:
        answer = client.ask(Api.OFFSET_FETCH, 7, **asked)
        if answer.error_code != ErrorCode.coordinator_load_in_progress:
            partition = answer.topics[0].partitions[0]
            assert partition.error_code == 0
            return partition.committed_offset


@pytest.mark.parametrize("version", [0, 2])
def test_no_committed_transaction_is_lost_and_none_is_half_visible(tmp_path, version):
    random = Random(version)
    committed, unknown, number = [], [], 0
    for round_number in range(ROUNDS + 1):
        with BrokerProcess(tmp_path) as broker, RawClient(broker.address) as client:
            create_topic(client)
            mover = Mover(client, version)
            mover.number = number
            mover.start()  # which also aborts what the last one left open
            seen = committed_values(client, 0)
            assert committed_values(client, 1) == seen
            assert seen in (committed, committed + unknown)
            assert committed_offset(client) == (seen[-1] if seen else -1)
            committed = seen
            if round_number == ROUNDS:
                assert len(committed) > ROUNDS
                return
            death = Timer(random.uniform(0.02, 0.3), broker.kill)
            death.start()
            try:
                while True:
                    mover.move()
            except GONE:
                pass
            death.join()
            committed, unknown, number = committed + mover.committed, mover.unknown, mover.number
