"""The client's side of the wire: the broker reads what it writes, and wrong responses are rejected."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.api import Api
from headrace.protocol.wire.client_codec import (
    BadResponse,
    NotSendable,
    Pieces,
    body_at,
    decode_response,
    encode_request,
)
from headrace.protocol.wire.server_codec import encode_response, read_request_body, read_request_header, server_codec

HEARTBEAT = {"group_id": "g", "generation_id": 3, "member_id": "m", "group_instance_id": None}


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", [None, "", "a client"])
def test_the_broker_reads_a_request(version, client_id):
    (frame,) = encode_request(Api.HEARTBEAT, version, 7, client_id, HEARTBEAT)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(bytes(frame))[4:]
    header = read_request_header(view)
    assert (header.api, header.version, header.correlation_id, header.client_id) == (
        Api.HEARTBEAT,
        version,
        7,
        client_id,
    )
    body, _ = read_request_body(header, view)
    assert (body.group_id, body.generation_id, body.member_id) == ("g", 3, "m")


def test_pieces_are_sent_from_where_they_are():
    first, second = b"r" * 200, memoryview(b"s" * 100)
    topic = {"name": "t", "partition_data": [{"index": 0, "records": Pieces(first, second)}]}
    fields = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": [topic]}
    parts = encode_request(Api.PRODUCE, 9, 7, "c", fields)
    assert any(part is first for part in parts)
    assert any(part is second for part in parts)
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    topic["partition_data"][0]["records"] = first + bytes(second)
    assert frame == bytes(encode_request(Api.PRODUCE, 9, 7, "c", fields)[0])


def test_a_value_that_does_not_fit_is_not_sendable():
    with pytest.raises(NotSendable, match="does not fit its field of Heartbeat v4"):
        encode_request(Api.HEARTBEAT, 4, 7, "c", HEARTBEAT | {"generation_id": 2**31})


def response(**fields):
    frame, _ = encode_response(server_codec(Api.HEARTBEAT, 4), 7, {"error_code": 27, **fields})
    return bytes(frame)[4:]


def test_tagged_fields_of_a_response_header_are_skipped():
    plain = response()
    tagged = plain[:4] + b"\x02\x00\x02ab\xff\xff\xff\xff\x0f\x00" + plain[5:]
    assert body_at(Api.HEARTBEAT, 4, tagged) == 4 + 11
    assert decode_response(Api.HEARTBEAT, 4, tagged).error_code == decode_response(Api.HEARTBEAT, 4, plain).error_code


@pytest.mark.parametrize("tags", [b"\x01", b"\x01\x00\x63a", b"\xff\xff\xff\xff\xff\x01", b"\x01\x00" + b"\xff" * 9])
def test_a_response_header_that_cannot_be_read_is_rejected(tags):
    with pytest.raises(BadResponse, match="Heartbeat v4 cannot be read"):
        decode_response(Api.HEARTBEAT, 4, response()[:4] + tags)


@given(st.binary(max_size=60), st.sampled_from([0, 3, 4]))
def test_any_bytes_are_read_or_rejected(data, version):
    with suppress(BadResponse):
        decode_response(Api.HEARTBEAT, version, data)
