"""Bare requests to a broker of either side: no client's own waits and retries are in what is measured with them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import RawClient

_DESCRIBE_QUORUM = 55
_QUORUM_TOPIC = b"__cluster_metadata"
_TIMEOUT_MS = 30_000


class Asker(RawClient):
    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        super().__init__(address, timeout_s=timeout_s)

    def metadata(self, topics: Iterable[str]) -> Any:
        return self.ask(
            Api.METADATA, 9, topics=[{"name": name} for name in topics], allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip

    def partitions(self, topic: str) -> list[Any]:
        """The partitions of a topic in the broker's metadata, by number."""
        return sorted(self.metadata([topic]).topics[0].partitions, key=lambda one: one.partition_index)

    def create_topic(self, name: str, replication_factor: int) -> int:
        """Creates a topic of one partition; returns the error code."""
        topic = {
            "name": name, "num_partitions": 1, "replication_factor": replication_factor, "assignments": [],
            "configs": [],
        }  # fmt: skip
        answer = self.ask(Api.CREATE_TOPICS, 5, topics=[topic], timeout=_TIMEOUT_MS, validate_only=False)
        return int(answer.topics[0].error_code)

    def reassign(self, topic: str, partitions: int, replicas: list[int]) -> None:
        moved = [{"partition_index": index, "replicas": replicas} for index in range(partitions)]
        topics = [{"name": topic, "partitions": moved}]
        answer = self.ask(Api.ALTER_PARTITION_REASSIGNMENTS, 0, timeout=_TIMEOUT_MS, topics=topics)
        assert not answer.error_code, answer
        assert not any(one.error_code for one in answer.responses[0].partitions), answer

    def elect_preferred(self, topic: str, partitions: int) -> None:
        """Asks for it; partitions that have their preferred leader are passed over."""
        wanted = [{"topic": topic, "partitions": list(range(partitions))}]
        self.ask(Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=wanted, timeout=_TIMEOUT_MS)

    def produce(self, topic: str, partition: int) -> int:
        """One record with acks=all; the error code."""
        records = build_batch([Record(0, 0, None, b"x" * 100, ())])
        written = {"index": partition, "records": records}
        answer = self.ask(
            Api.PRODUCE, 7, transactional_id=None, acks=-1, timeout=_TIMEOUT_MS,
            topic_data=[{"name": topic, "partition_data": [written]}],
        )  # fmt: skip
        return int(answer.responses[0].partition_responses[0].error_code)


def quorum_leader(address: str) -> int:
    """Which node of a KRaft quorum is the active controller; -1 if the one asked does not know.

    DescribeQuorum v0, which Headrace does not speak, so it is written and read by hand here.
    """
    request = struct.pack(">hhih", _DESCRIBE_QUORUM, 0, 1, -1) + b"\0"  # no client id, no tagged fields
    request += bytes([2, len(_QUORUM_TOPIC) + 1]) + _QUORUM_TOPIC  # one topic,
    request += bytes([2]) + struct.pack(">i", 0) + b"\0\0\0"  # its partition 0, and three times no tagged fields
    with RawClient(address) as client:
        client.send_frame(request)
        answer = client.read_frame()
    (error,) = struct.unpack_from(">h", answer, 5)
    if error:
        return -1
    # After the correlation id, tagged fields, error, two counts and the name: partition index, error, leader id.
    _, error, leader = struct.unpack_from(">ihi", answer, 5 + 2 + 1 + 1 + len(_QUORUM_TOPIC) + 1)
    return -1 if error else int(leader)
