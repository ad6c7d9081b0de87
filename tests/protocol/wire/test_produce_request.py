"""Produce requests with large batches: read like kio reads them, but without a copy of the records."""

from dataclasses import fields
from uuid import UUID

import pytest

from headrace.protocol.api import Api, versions_of
from headrace.protocol.wire.server_codec import BadRequest, read_request_body, read_request_header, server_codec
from headrace.testing.raw_client import encode_request

VERSIONS = list(versions_of(Api.PRODUCE))
TOPIC_ID = UUID(int=7)
LARGE = bytes(range(256)) * 400
FLEXIBLE_FROM = 9


def frame_of(version, *, topic_id=TOPIC_ID, transactional_id="tx"):
    topics = [
        {"name": "bücher", "topic_id": topic_id, "partition_data": [
            {"index": 3, "records": LARGE}, {"index": 0, "records": None}, {"index": 1, "records": b""}]},
        {"name": "empty", "topic_id": topic_id, "partition_data": []},
    ]  # fmt: skip
    body = {"transactional_id": transactional_id, "acks": -1, "timeout": 1500, "topic_data": topics}
    return memoryview(encode_request(Api.PRODUCE, version, 7, "client", **body))


def read(frame):
    header = read_request_header(frame)
    return read_request_body(header, frame)


def read_by_kio(frame):
    header = read_request_header(frame)
    return server_codec(Api.PRODUCE, header.version).read_body(frame, header.body_at)[0]


def values(entity):
    """The fields that kio's dataclass has, as plain values."""
    return {field.name: getattr(entity, field.name) for field in fields(entity)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [{}, {"topic_id": UUID(int=0), "transactional_id": None}])
def test_all_fields_are_those_that_kio_reads(version, options):
    frame = frame_of(version, **options)
    body, element_count = read(frame)
    expected = read_by_kio(frame)
    assert element_count == 5
    assert (body.transactional_id, body.acks, body.timeout) == (
        expected.transactional_id, expected.acks, expected.timeout,
    )  # fmt: skip
    for topic, expected_topic in zip(body.topic_data, expected.topic_data, strict=True):
        for name in values(expected_topic).keys() - {"partition_data"}:
            assert getattr(topic, name) == getattr(expected_topic, name)
        for data, expected_data in zip(topic.partition_data, expected_topic.partition_data, strict=True):
            assert {"index": data.index, "records": data.records} == values(expected_data)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_records_are_views_of_the_frame(version):
    frame = frame_of(version)
    records = read(frame)[0].topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_that_ends_too_early_is_refused(version):
    frame = frame_of(version)
    header = read_request_header(frame)
    long_enough_to_be_large = range(len(LARGE), len(frame) - 1, 7)
    for end in [*long_enough_to_be_large, len(frame) - 1]:
        with pytest.raises(BadRequest):
            read_request_body(header, frame[:end])


def test_tagged_fields_of_a_newer_client_are_skipped():
    frame = frame_of(FLEXIBLE_FROM)
    assert bytes(frame[-1:]) == b"\0"
    tagged = memoryview(bytes(frame[:-1]) + b"\x01\x63\x02ab")
    assert [data.index for data in read(tagged)[0].topic_data[0].partition_data] == [3, 0, 1]
    assert read(tagged)[0].topic_data[0].partition_data[0].records == LARGE


def test_the_name_of_a_topic_is_not_null():
    frame = bytearray(frame_of(FLEXIBLE_FROM))
    name = "bücher".encode()
    at = bytes(frame).index(name) - 1
    frame[at : at + 1 + len(name)] = b"\0"
    with pytest.raises(BadRequest, match="null"):
        read(memoryview(bytes(frame)))


@pytest.mark.parametrize(
    ("count", "size_bytes", "is_view"), [(1, 60_000, False), (60, 5_000, False), (3, 40_000, True)]
)
def test_small_batches_are_read_by_kio(count, size_bytes, is_view):
    data = [{"index": index, "records": bytes(size_bytes)} for index in range(count)]
    body = {"acks": -1, "timeout": 1, "topic_data": [{"name": "t", "partition_data": data}]}
    found, _ = read(memoryview(encode_request(Api.PRODUCE, 9, 7, None, **body)))
    assert isinstance(found.topic_data[0].partition_data[0].records, memoryview) is is_view
