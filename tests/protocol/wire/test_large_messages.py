"""Requests with many elements: read piece by piece, they give the same as kio's reader, or the same rejection."""

from dataclasses import fields, is_dataclass
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_examples import all_versions, example, run, seeded

from headrace.protocol.api import Api
from headrace.protocol.kio import load_request_schema
from headrace.protocol.wire import large_messages
from headrace.protocol.wire import server_codec as server_codec_module
from headrace.protocol.wire.array_guard import MAX_TAGS, ManyElements
from headrace.protocol.wire.large_messages import AT_ONCE, MAX_ELEMENTS, ElementArray
from headrace.protocol.wire.schema_fields import FieldKind
from headrace.protocol.wire.server_codec import (
    BadRequest,
    open_request_body,
    read_request_body,
    read_request_header,
    server_codec,
)
from headrace.protocol.wire.varints import put_uvarint
from headrace.testing.raw_client import encode_request

VERSIONS = all_versions()


@pytest.fixture
def all_is_large(monkeypatch):
    """Makes every element that has an array be opened, too."""
    monkeypatch.setattr(large_messages, "AT_ONCE", 0)


def opened(request):
    frame = memoryview(bytes(request))
    return read_whole(run(open_request_body(read_request_header(frame), frame)))


def read_whole(value):
    """The message with tuples in place of arrays that are read piece by piece."""
    if isinstance(value, ElementArray):
        elements = tuple(read_whole(element) for element in value)
        assert len(elements) == len(value)
        assert elements == tuple(read_whole(element) for element in value), "it is read anew each time"
        return elements
    if is_dataclass(value):
        return type(value)(**{field.name: read_whole(getattr(value, field.name)) for field in fields(value)})
    return value


def read(request):
    frame = memoryview(bytes(request))
    return read_request_body(read_request_header(frame), frame)[0]


def or_refusal(read, request):
    try:
        return read(request)
    except BadRequest:
        return BadRequest


# -- the same as kio


@pytest.mark.parametrize("at_once", [0, 2, AT_ONCE])
def test_every_request_is_opened_as_it_was_written(monkeypatch, at_once):
    monkeypatch.setattr(large_messages, "AT_ONCE", at_once)
    for api, version in VERSIONS:
        for seed in range(3):
            fields, entity = example(load_request_schema(api, version), seeded(api, version, seed))
            assert opened(encode_request(api, version, 7, "client", **fields)) == entity, (api, version)


def test_every_request_cut_at_every_byte(all_is_large):
    for api, version in VERSIONS:
        fields, entity = example(load_request_schema(api, version), seeded(api, version, "cut"))
        request = encode_request(api, version, 7, "client", **fields)
        body_at = read_request_header(memoryview(request)).body_at
        for stop in range(body_at, min(len(request), 200)):
            assert or_refusal(opened, request[:stop]) in (entity, BadRequest)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutations_are_read_alike_or_refused_alike(data):
    api, version = data.draw(st.sampled_from(VERSIONS))
    fields, _ = example(load_request_schema(api, version), seeded(api, version, data.draw(st.integers(0, 3))))
    request = bytearray(encode_request(api, version, 7, "client", **fields))
    body_at = read_request_header(memoryview(bytes(request))).body_at
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(body_at, len(request)))
        removed = data.draw(st.integers(0, 8))
        request[at : at + removed] = data.draw(st.binary(max_size=8))
    assert or_refusal(opened, request) == or_refusal(read, request)


# -- what is large


def metadata(count, tags=b"\0"):
    """Returns a Metadata v12 of ``count`` names, each with a section of tagged fields."""
    out = bytearray(pack(">hhih", 3, 12, 7, -1) + b"\0")
    put_uvarint(out, count + 1)
    out += (bytes(16) + b"\x02t" + tags) * count
    return out + b"\0\0\0"


def section_of_tags(count):
    out = bytearray()
    put_uvarint(out, count)
    return bytes(out) + b"\x64\x00" * count


def test_a_request_within_the_bound_is_read_at_once():
    assert len(read(metadata(AT_ONCE)).topics) == AT_ONCE
    with pytest.raises(ManyElements):
        read(metadata(AT_ONCE + 1))


def test_elements_of_elements_count():
    fields = {"replica_id": -1, "isolation_level": 0}
    partitions = [{"partition_index": index, "timestamp": -1} for index in range(10)]
    topics = [{"name": "t", "partitions": partitions}] * (AT_ONCE // 11)
    assert len(read(encode_request(Api.LIST_OFFSETS, 7, 7, None, topics=topics, **fields)).topics) == len(topics)
    request = encode_request(Api.LIST_OFFSETS, 7, 7, None, topics=[*topics, *topics[:1]], **fields)
    with pytest.raises(ManyElements):
        read(request)
    assert [len(topic.partitions) for topic in opened(request).topics] == [10] * (len(topics) + 1)


def test_opening_gives_way_often():
    frame = memoryview(bytes(metadata(10_000)))
    steps = sum(1 for _ in open_request_body(read_request_header(frame), frame))
    assert 10_000 / 500 <= steps <= 10_000 / 20


def test_a_request_has_a_bounded_number_of_elements():
    count = MAX_ELEMENTS + 1
    request = pack(">hhihi", 3, 1, 7, -1, count) + bytes(2) * count
    frame = memoryview(request)
    with pytest.raises(BadRequest, match=f"more than {MAX_ELEMENTS} elements"):
        next(open_request_body(read_request_header(frame), frame))  # before the first of them is read


def test_the_elements_of_all_arrays_together_are_bounded(monkeypatch):
    monkeypatch.setattr(server_codec_module, "MAX_ELEMENTS", 30)
    request = pack(">hhih", 23, 2, 7, -1) + pack(">i", 3)
    topic = pack(">h", 1) + b"t" + pack(">i", 10) + bytes(12) * 10
    with pytest.raises(BadRequest, match="more than 30 elements"):
        opened(request + topic * 3)
    assert len(opened(request[:-4] + pack(">i", 2) + topic * 2).topics) == 2


# -- tagged fields


def test_the_header_has_a_bounded_number_of_tagged_fields():
    assert server_codec(Api.METADATA, 12).has_tagged_request_header
    fixed = pack(">hhih", Api.METADATA, 12, 7, -1)
    read_request_header(memoryview(fixed + section_of_tags(MAX_TAGS)))
    with pytest.raises(BadRequest, match=f"at most {MAX_TAGS}"):
        read_request_header(memoryview(fixed + section_of_tags(MAX_TAGS + 1)))


def test_a_body_has_a_bounded_number_of_tagged_fields():
    """For every API and version, behind the last field, whether the request is read at once or opened."""
    for api, version in VERSIONS:
        schema = load_request_schema(api, version)
        if not schema.__flexible__ or any(FieldKind(field).tag is not None for field in fields(schema)):
            continue
        given, entity = example(schema, seeded(api, version))
        request = encode_request(api, version, 7, None, **given)[:-1]
        frame = memoryview(request + section_of_tags(MAX_TAGS + 1))
        with pytest.raises((ManyElements, BadRequest)):
            read(frame)
        with pytest.raises(BadRequest, match="tagged fields"):
            opened(frame)
        assert opened(request + section_of_tags(MAX_TAGS)) == entity


def test_tagged_fields_of_elements_count_together():
    names = 1_100
    assert len(opened(metadata(names, section_of_tags(9))).topics) == names
    with pytest.raises(BadRequest, match=f"more than {MAX_TAGS} tagged fields"):
        opened(metadata(names, section_of_tags(10)))
    with pytest.raises(BadRequest, match=f"more than {MAX_TAGS} tagged fields"):
        read(metadata(100, section_of_tags(101)))


def test_unknown_tagged_fields_of_elements_are_passed_over(all_is_large):
    tagged = opened(metadata(3, section_of_tags(2)))
    assert tagged == read(metadata(3))
