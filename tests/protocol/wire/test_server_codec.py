"""Requests read from frames: valid ones, wrong ones, and mutations of valid ones, for every API and version."""

import resource
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_examples import all_versions, example, run, seeded

from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import load_request_schema
from headrace.protocol.wire.array_guard import ManyElements
from headrace.protocol.wire.server_codec import (
    BadRequest,
    encode_response,
    open_request_body,
    read_request_body,
    read_request_header,
    server_codec,
)
from headrace.testing.raw_client import decode_response, encode_request

VERSIONS = all_versions()
HUGE_COUNTS = (2**31 - 1, 2**30, 2**24)


def frame_of(data):
    return memoryview(bytes(data))


def read(data):
    frame = frame_of(data)
    header = read_request_header(frame)
    try:
        return header, read_request_body(header, frame)[0]
    except ManyElements:
        return header, run(open_request_body(header, frame))


def header_of(api_key, version, client_id=b"\xff\xff"):
    return pack(">hhi", api_key, version, 7) + client_id


def uvarint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


# -- right ones


def test_every_request_is_read_as_it_was_written():
    for api, version in VERSIONS:
        fields, entity = example(load_request_schema(api, version), seeded(api, version))
        header, body = read(encode_request(api, version, 7, "client", **fields))
        assert (header.api, header.version, header.correlation_id, header.client_id) == (api, version, 7, "client")
        assert body == entity


def test_the_elements_of_all_arrays_are_counted():
    partitions = [{"partition_index": index, "timestamp": -1} for index in range(3)]
    topics = [{"name": "t", "partitions": partitions}, {"name": "u", "partitions": ()}]
    frame = frame_of(encode_request(Api.LIST_OFFSETS, 7, 7, None, replica_id=-1, isolation_level=0, topics=topics))
    assert read_request_body(read_request_header(frame), frame)[1] == 5


def test_names_are_kafkas():
    assert Api.LIST_OFFSETS.label == "ListOffsets"
    assert Api.OFFSET_FOR_LEADER_EPOCH.label == "OffsetForLeaderEpoch"


def test_only_what_the_controller_sends_is_control():
    assert [api for api in Api if api.is_control] == [4, 5, 6, 7]


def test_a_version_that_is_not_spoken_is_refused():
    assert versions_of(Api.LEADER_AND_ISR) == range(5, 8)
    with pytest.raises(BadRequest, match="LeaderAndIsr has no version 0"):
        read(header_of(Api.LEADER_AND_ISR, 0))


def test_the_header_may_have_no_client_id_and_any_tagged_fields():
    body = uvarint(2) + b"n" + uvarint(2) + b"v" + b"\0"
    header, got = read(header_of(18, 3) + b"\x02" + b"\x00\x01x" + b"\x81\x01\x00" + body)
    assert header.client_id is None
    assert (got.client_software_name, got.client_software_version) == ("n", "v")


@pytest.mark.parametrize(
    "tags",
    [b"\x01\x09\x02ab", b"\x02\x09\x02ab\xff\x01\x00", b"\x01\xff\xff\xff\xff\x0f\x01z"],
    ids=["one", "two", "largest tag"],
)
def test_tagged_fields_of_a_newer_client_are_skipped(tags):
    """KIP-482: an unknown tagged field is no error, at any depth."""
    request = encode_request(Api.METADATA, 12, 7, "c", topics=None, allow_auto_topic_creation=True,
                             include_topic_authorized_operations=False)  # fmt: skip
    assert read(request[:-1] + tags)[1].topics is None
    topic = bytes(16) + b"\x02t"
    nested = header_of(3, 12) + b"\0" + b"\x03" + topic + tags + topic + b"\0" + b"\x01\x00" + tags
    body = read(nested)[1]
    assert [topic.name for topic in body.topics] == ["t", "t"]


def test_known_tagged_fields_stay_when_unknown_ones_are_skipped():
    fields = {
        "cluster_id": "abc", "replica_state": {"replica_id": 3, "replica_epoch": 4}, "max_wait": 1, "min_bytes": 1,
        "max_bytes": 1, "isolation_level": 0, "session_id": 0, "session_epoch": 0, "topics": [],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    request = encode_request(Api.FETCH, 15, 7, "c", **fields)
    plain = read(request)[1]
    tags_at = request.rindex(b"\x02\x00\x04\x04abc")
    assert plain.cluster_id == "abc"
    more = request[:tags_at] + b"\x03" + request[tags_at + 1 :] + b"\x63\x05later"
    assert read(more)[1] == plain


# -- wrong headers


@pytest.mark.parametrize("size_bytes", range(10))
def test_a_header_that_is_cut_short(size_bytes):
    with pytest.raises(BadRequest):
        read_request_header(frame_of(header_of(3, 12)[:size_bytes]))


@pytest.mark.parametrize("api_key", [-1, 52, 99, 1000, 32767])
def test_an_unknown_api(api_key):
    with pytest.raises(BadRequest):
        read_request_header(frame_of(header_of(api_key, 0)))


def test_a_client_id_that_is_longer_than_the_frame():
    with pytest.raises(BadRequest, match="inside the client id"):
        read_request_header(frame_of(header_of(3, 0, pack(">h", 500) + b"abc")))


def test_a_client_id_that_is_no_utf8():
    with pytest.raises(BadRequest):
        read_request_header(frame_of(header_of(3, 0, pack(">h", 2) + b"\xff\xfe")))


@pytest.mark.parametrize(
    "tags", [uvarint(2**31 - 1), b"\x01\x00" + uvarint(2**31 - 1), b"\xff" * 9, b"\x01", b"\x01\x00\x09abc"]
)
def test_wrong_tags_in_the_header(tags):
    with pytest.raises(BadRequest):
        read_request_header(frame_of(header_of(3, 12) + tags))


@pytest.mark.parametrize("version", [-1, 99, 32767])
def test_a_version_that_nobody_has(version):
    with pytest.raises(BadRequest, match=f"Metadata has no version {version}"):
        read(header_of(3, version))


# -- wrong bodies


@pytest.mark.parametrize("count", [*HUGE_COUNTS, 1, -2, -(2**31)])
def test_an_array_that_says_it_has_more_than_there_is(count):
    with pytest.raises(BadRequest, match="body of Metadata v1 cannot be read"):
        read(header_of(3, 1) + pack(">i", count))


@pytest.mark.parametrize("count", [2**32 - 1, *HUGE_COUNTS, 2])
def test_a_compact_array_that_says_it_has_more_than_there_is(count):
    with pytest.raises(BadRequest, match="body of Metadata v12 cannot be read"):
        read(header_of(3, 12) + b"\0" + uvarint(count))


def test_no_array_anywhere_gets_room_for_elements_that_are_not_there():
    """kio reserves 8 bytes per element before it reads the first. A wrong count must not make kio reserve memory."""
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space_bytes() + 256 * 1024 * 1024, hard))
    try:
        for api, version in VERSIONS:
            fields, _ = example(load_request_schema(api, version), seeded(api, version, "counts"))
            request = encode_request(api, version, 7, None, **fields)
            for at in range(10, min(len(request), 400)):
                for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                    _read_or_refuse(request[:at] + lie + request[at + len(lie) :])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 64 * 1024


def _address_space_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _read_or_refuse(data):
    try:
        read(data)
    except BadRequest:
        return


def test_null_where_an_array_must_be():
    with pytest.raises(BadRequest, match="body of ListOffsets v1 cannot be read"):
        read(header_of(2, 1) + pack(">ii", -1, -1))
    with pytest.raises(BadRequest, match="body of ListOffsets v6 cannot be read"):
        read(header_of(2, 6) + b"\0" + pack(">ibb", -1, 0, 0) + b"\0")


@pytest.mark.parametrize("length", [2**15 - 1, 100, -2, -(2**15)])
def test_a_string_that_is_longer_than_the_body(length):
    with pytest.raises(BadRequest):
        read(header_of(3, 1) + pack(">ih", 1, length) + b"abc")


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (Api.API_VERSIONS, 3, lambda text: {"client_software_name": text, "client_software_version": "1"}),
        (Api.METADATA, 12, lambda text: _metadata_of(text)),
        (Api.DELETE_GROUPS, 2, lambda text: {"groups_names": (text,)}),
        (Api.PRODUCE, 9, lambda text: {"transactional_id": text, "acks": 1, "timeout": 1, "topic_data": ()}),
        (Api.SASL_AUTHENTICATE, 2, lambda text: {"auth_bytes": text.encode()}),
    ],
    ids=lambda value: value.label if isinstance(value, Api) else "",
)
def test_a_text_has_at_most_32767_bytes(api, version, fields):
    """A client sent a name of 100 MB before its login or in any request. The name was matched, kept, and in metrics."""
    longest, longer = "a" * 32_767, "a" * 32_768
    _, body = read(encode_request(api, version, 7, None, **fields(longest)))
    assert longest in str(body)
    if api is Api.SASL_AUTHENTICATE:  # bytes are not a text
        read(encode_request(api, version, 7, None, **fields(longer)))
        return
    with pytest.raises(BadRequest, match="a text has 32768 bytes"):
        read(encode_request(api, version, 7, None, **fields(longer)))


def _metadata_of(topic):
    return {
        "topics": ({"topic_id": None, "name": topic},),
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def test_a_text_of_a_tagged_field_has_at_most_32767_bytes():
    fields, _ = example(load_request_schema(Api.FETCH, 12), seeded(Api.FETCH, 12))
    read(encode_request(Api.FETCH, 12, 7, None, **fields | {"cluster_id": "a" * 32_767}))
    with pytest.raises(BadRequest, match="a text has 32768 bytes"):
        read(encode_request(Api.FETCH, 12, 7, None, **fields | {"cluster_id": "a" * 32_768}))


def test_a_name_that_is_no_utf8():
    with pytest.raises(BadRequest, match="UTF-8"):
        read(header_of(3, 1) + pack(">ih", 1, 2) + b"\xff\xfe")


def test_every_request_cut_at_every_byte():
    for api, version in VERSIONS:
        fields, entity = example(load_request_schema(api, version), seeded(api, version, "cut"))
        request = encode_request(api, version, 7, "client", **fields)
        for stop in range(min(len(request), 200)):
            frame = frame_of(request[:stop])
            try:
                header = read_request_header(frame)
                assert read_request_body(header, frame)[0] == entity  # the whole body was there
            except BadRequest:
                continue


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutations_of_requests_are_read_or_refused(data):
    api, version = data.draw(st.sampled_from(VERSIONS))
    fields, _ = example(load_request_schema(api, version), seeded(api, version, data.draw(st.integers(0, 3))))
    request = bytearray(encode_request(api, version, 7, "client", **fields))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(request)))
        removed = data.draw(st.integers(0, 8))
        request[at : at + removed] = data.draw(st.binary(max_size=8))
    _read_or_refuse(request)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(VERSIONS), st.binary(max_size=300))
def test_garbage_after_a_right_header_is_read_or_refused(which, garbage):
    api, version = which
    flexible = b"\0" if server_codec(api, version).has_tagged_request_header else b""
    _read_or_refuse(header_of(api, version) + flexible + garbage)


# -- responses


def test_a_response_has_its_length_and_its_correlation_id_before_it():
    frame, placed = encode_response(server_codec(Api.INIT_PRODUCER_ID, 4), 42, {"producer_id": 1, "producer_epoch": 0})
    assert not placed
    assert frame[:8] == pack(">ii", len(frame) - 4, 42)
    assert decode_response(Api.INIT_PRODUCER_ID, 4, bytes(frame[4:])).producer_id == 1


def test_the_response_header_of_api_versions_never_has_tags():
    """KIP-511: the client does not know yet in which version the broker answers."""
    frame, _ = encode_response(server_codec(Api.API_VERSIONS, 3), 42, {"api_keys": []})
    assert frame[8:10] == b"\0\0"  # the error code follows the header at once
