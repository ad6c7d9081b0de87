"""A consumer's Fetch requests: every version can be written from a session's request."""

from uuid import UUID

import pytest

from headrace.client.consumer.fetch_requests import FetchLimits, highest_version, request_fields
from headrace.client.consumer.fetch_session import FetchSession, PartitionFetch
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import load_request_schema
from headrace.protocol.wire.encoder import encoder_of

ID = UUID(int=7)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", versions_of(Api.FETCH))
def test_every_version_of_a_request_can_be_written(version: int):
    session = FetchSession()
    session.next_request({A0: PartitionFetch(ID, 5), B0: PartitionFetch(UUID(int=8), 0)})
    session.answered(77)
    request = session.next_request({A0: PartitionFetch(ID, 6), A1: PartitionFetch(ID, 0)})
    fields = request_fields(request, FetchLimits(500, 1, 1000, read_committed=True, rack_id="r"))
    out = bytearray()
    encoder_of(load_request_schema(Api.FETCH, version))(out, fields, [])
    assert [len(topic["partitions"]) for topic in fields["topics"]] == [2]
    assert fields["forgotten_topics_data"] == [{"topic": "b", "topic_id": UUID(int=8), "partitions": [0]}]
    assert out


def test_a_topic_without_an_id_goes_by_its_name():
    assert highest_version(FetchSession().next_request({A0: PartitionFetch(ID, 5)})) is None
    assert highest_version(FetchSession().next_request({A0: PartitionFetch(None, 5)})) == 12
