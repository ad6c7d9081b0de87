"""``kill -9`` between offset commits: the last acknowledged commit survives, or a later one.

A consumer commits 20 partitions at a time, each commit one higher, and keeps the answers. A commit without an answer
may be stored or not, but only as a whole: all partitions of a commit have the same offset.
"""

from random import Random
from threading import Timer

from headrace.protocol.api import Api
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import ClosedByPeer, RawClient

GONE = (ClosedByPeer, ConnectionError)
PARTITIONS = range(20)
LIVES = 3
SETTINGS = ("-o", "offsets.topic.num.partitions=3", "-o", "offsets.topic.segment.bytes=30000")


class Consumer:
    def __init__(self):
        self.sent = self.acknowledged = -1

    def start(self, address):
        self.client = RawClient(address)
        while self.client.ask(Api.FIND_COORDINATOR, 3, key="g", key_type=0).error_code:
            pass

    def run(self, on_first):
        """Commits until the broker is gone.

        :param on_first: called when the first commit is acknowledged.
        """
        before = self.acknowledged
        try:
            while True:
                self.sent += 1
                codes = self._commit(self.sent)
                if codes == {0}:
                    if self.acknowledged == before:
                        on_first()
                    self.acknowledged = self.sent
        except GONE:
            self.client.close()

    def _commit(self, offset):
        partitions = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} for index in PARTITIONS
        ]
        member = {"generation_id_or_member_epoch": -1, "member_id": ""}
        topics = [{"name": "t", "partitions": partitions}]
        answer = self.client.ask(Api.OFFSET_COMMIT, 8, group_id="g", topics=topics, **member)
        return {each.error_code for each in answer.topics[0].partitions}

    def committed(self):
        """The offsets of all partitions, once the coordinator has loaded them."""
        topics = [{"name": "t", "partition_indexes": list(PARTITIONS)}]
        while (answer := self.client.ask(Api.OFFSET_FETCH, 7, group_id="g", topics=topics)).error_code:
            pass
        return {each.committed_offset for each in answer.topics[0].partitions}


def create_topic(address):
    new = {"name": "t", "num_partitions": len(PARTITIONS), "replication_factor": 1, "assignments": (), "configs": ()}
    with RawClient(address) as client:
        client.ask(Api.CREATE_TOPICS, 7, topics=[new], timeout=10_000, validate_only=False)


def test_acknowledged_commits_survive(tmp_path):
    random, consumer = Random(4), Consumer()
    for _ in range(LIVES):
        with BrokerProcess(tmp_path, *SETTINGS) as broker:
            create_topic(broker.address)
            consumer.start(broker.address)
            before = consumer.acknowledged
            if before >= 0:
                (offset,) = consumer.committed()
                assert before <= offset <= consumer.sent
            killer = Timer(random.uniform(0.05, 0.3), broker.kill)
            consumer.run(on_first=killer.start)
            killer.join()
            assert consumer.acknowledged > before
