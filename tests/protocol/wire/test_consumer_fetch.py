"""The response to a consumer's Fetch: every version is read as it was written, and other bytes are rejected."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.api import Api, versions_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.kio import load_response_schema
from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.client_codec import BadResponse
from headrace.protocol.wire.consumer_fetch import AbortedTransaction, PartitionAnswer, read_answer
from headrace.protocol.wire.encoder import encoder_of

ID = UUID(int=7)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ASKED = [(A0, ID), (A1, ID), (B0, UUID(int=8))]
PARTITIONS = [
    {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 12,
        "last_stable_offset": 11,
        "log_start_offset": 3,
        "aborted_transactions": [{"producer_id": 5, "first_offset": 9}],
        "preferred_read_replica": 2,
        "records": b"r" * 300,
    },
    {
        "partition_index": 1,
        "error_code": 1,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": None,
    },
]


def frame(version: int, **fields: object) -> memoryview:
    schema = load_response_schema(Api.FETCH, version)
    out = bytearray(4)
    if int(schema.__header_schema__.__version__) >= 1:
        out.append(0)
    answer = {"error_code": 0, "session_id": 77, "responses": [], **fields}
    encoder_of(schema)(out, answer, [])
    return memoryview(bytes(out))


@pytest.mark.parametrize("version", versions_of(Api.FETCH))
def test_every_version_of_an_answer(version: int):
    data = frame(version, responses=[{"topic": "a", "topic_id": ID, "partitions": PARTITIONS}])
    answer = read_answer(data, version, ASKED)
    assert answer.error is ErrorCode.none
    assert answer.session_id == (77 if version >= 7 else 0)
    (one, first), (other, second) = answer.partitions
    assert (one, other) == (A0, A1)
    start = 3 if version >= 5 else -1
    aborted = [AbortedTransaction(5, 9)]
    preferred = 2 if version >= 11 else -1
    assert first == PartitionAnswer(ErrorCode.none, first.records, 12, 11, start, aborted, preferred)
    assert bytes(first.records) == b"r" * 300
    assert first.records.obj is data.obj
    assert second.error is ErrorCode.offset_out_of_range
    assert len(second.records) == 0


def test_a_topic_that_was_not_asked_for_is_left_out():
    data = frame(16, responses=[{"topic_id": UUID(int=99), "partitions": PARTITIONS}])
    assert read_answer(data, 16, ASKED).partitions == []


@pytest.mark.parametrize("version", [11, 16])
def test_cut_answers_are_no_answers(version: int):
    data = frame(version, responses=[{"topic": "a", "topic_id": ID, "partitions": PARTITIONS}])
    for size in range(4, len(data) - 1):
        with pytest.raises(BadResponse, match="Fetch"):
            read_answer(data[:size], version, ASKED)


@given(st.binary(max_size=200), st.sampled_from(versions_of(Api.FETCH)))
def test_nonsense_is_no_answer_or_is_read_somehow(data: bytes, version: int):
    with suppress(BadResponse):
        read_answer(memoryview(data), version, ASKED)
