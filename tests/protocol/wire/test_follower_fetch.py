"""The hand-written Fetch of followers and leaders agrees with kio's schemas."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.client_codec import BadResponse, decode_response, encode_request
from headrace.protocol.wire.follower_fetch import (
    AnswerWriter,
    FetchLimits,
    read_answer,
    refusal,
    topic_as_written,
    write_request,
)
from headrace.protocol.wire.server_codec import encode_response, read_request_body, read_request_header, server_codec
from headrace.replication.epoch_ends import EpochEnd
from headrace.replication.leader import FollowerFetch

ID = UUID(int=2**100 + 7)


class Records:
    def __init__(self, content):
        self.content = content

    def __len__(self):
        return len(self.content)

    def fileno(self):
        raise OSError


@pytest.mark.parametrize(("version", "topic"), [(12, "a-topic" * 30), (13, ID)])
def test_requests(version, topic):
    name = topic_as_written(topic)
    limits = FetchLimits(3, 500, 1, 10_000_000, 1_000_000)
    asked = [(name, index, FollowerFetch(7, 2**40 + index, 6, 2**33)) for index in range(200)]
    body = write_request(limits, 9, 12, asked, [(name, 300), (name, 301)])
    (frame,) = encode_request(Api.FETCH, version, 5, "b", body)
    frame = memoryview(bytes(frame))[4:]
    read, _ = read_request_body(read_request_header(frame), frame)
    assert (read.replica_id, read.min_bytes, read.max_bytes, read.isolation_level) == (3, 1, 10_000_000, 0)
    assert (read.session_id, read.session_epoch, read.rack_id) == (9, 12, "")
    (found,) = read.topics
    assert (found.topic if version == 12 else found.topic_id) == topic
    assert len(found.partitions) == 200
    last = found.partitions[-1]
    assert (last.partition, last.current_leader_epoch, last.fetch_offset) == (199, 7, 2**40 + 199)
    assert (last.last_fetched_epoch, last.log_start_offset, last.partition_max_bytes) == (6, 2**33, 1_000_000)
    assert read.forgotten_topics_data[0].partitions == (300, 301)


def framed(version, reply):
    """The response as it goes over the wire, from the correlation id on."""
    out, placed = encode_response(server_codec(Api.FETCH, version), 5, reply)
    parts, start = [], 0
    for position, records in placed:
        parts += [bytes(out[start:position]), records.content]
        start = position
    frame = b"".join([*parts, bytes(out[start:])])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize(("version", "topic"), [(12, "a-topic" * 30), (13, ID), (17, ID)])
def test_answers(version, topic):
    name = topic_as_written(topic)
    writer = AnswerWriter(77)
    writer.put(name, 0, 2**40, 5, records=Records(b"r" * 300))
    writer.put(name, 1, -1, -1, error=ErrorCode.fenced_leader_epoch.value)
    writer.put(name, 2, 9, 5, diverging=EpochEnd(4, 2**35))
    writer.put(name, 3, 9, 5)
    frame = framed(version, writer.encoded())
    by_schema = decode_response(Api.FETCH, version, frame)
    assert by_schema.session_id == 77
    (found,) = by_schema.responses
    assert (found.topic if version == 12 else found.topic_id) == topic
    first, fenced, diverging, plain = found.partitions
    assert (first.high_watermark, first.log_start_offset, bytes(first.records)) == (2**40, 5, b"r" * 300)
    assert first.preferred_read_replica == -1
    assert fenced.error_code is ErrorCode.fenced_leader_epoch
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (4, 2**35)
    assert (plain.error_code, plain.diverging_epoch.epoch) == (ErrorCode.none, -1)
    by_hand = read_answer(memoryview(frame), version)
    assert (by_hand.error, by_hand.session_id) == (ErrorCode.none, 77)
    assert [(one.topic, one.partition) for one in by_hand.partitions] == [(name, index) for index in range(4)]
    assert bytes(by_hand.partitions[0].records) == b"r" * 300
    assert by_hand.partitions[1].error == ErrorCode.fenced_leader_epoch.value
    assert [one.diverging for one in by_hand.partitions] == [None, None, EpochEnd(4, 2**35), None]
    for cut in range(4, len(frame) - 1, 7):
        with pytest.raises(BadResponse):
            read_answer(memoryview(frame)[:cut], version)


def test_refusals():
    frame = framed(13, refusal(ErrorCode.fetch_session_id_not_found))
    assert decode_response(Api.FETCH, 13, frame).error_code is ErrorCode.fetch_session_id_not_found
    assert read_answer(memoryview(frame), 13).error is ErrorCode.fetch_session_id_not_found


@given(st.binary(max_size=200), st.sampled_from([12, 13, 17]))
def test_any_bytes_are_read_or_rejected(data, version):
    with suppress(BadResponse):
        read_answer(memoryview(data), version)
