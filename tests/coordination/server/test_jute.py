"""The encoding of ZooKeeper: round trips, and malformed bytes that must do no harm."""

import struct
from contextlib import suppress

import pytest
from connection_harness import ConnectionHarness
from hypothesis import given, settings
from hypothesis import strategies as st
from kazoo.protocol.serialization import Create, GetChildren, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from headrace.coordination.interface import Stat
from headrace.coordination.server import jute
from headrace.coordination.server.jute import Malformed, Reader
from headrace.coordination.server.messages import (
    Op,
    decode_connect,
    decode_multi,
    decode_watches_to_restore,
    encode_stat,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.binary(), texts, st.lists(texts), st.integers(-(2**31), 2**31 - 1))
def test_what_is_written_is_read(data, text, many, number):
    written = jute.buffer(data) + jute.string(text) + jute.vector(map(jute.string, many)) + jute.integer(number)
    reader = Reader(written + jute.buffer(None) + jute.string(None) + jute.integer(-1) + b"\1\0")
    assert reader.buffer() == data
    assert reader.string() == text
    assert reader.vector(Reader.string) == many
    assert reader.int32() == number
    assert (reader.buffer(), reader.string(), reader.vector(Reader.string)) == (None, None, [])
    assert (reader.boolean(), reader.boolean(), reader.remaining_bytes) == (True, False, 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (Reader.int32, b"\0\0\0"),
        (Reader.int64, b"\0" * 7),
        (Reader.boolean, b""),
        (Reader.buffer, b"\0\0\0\2x"),
        (Reader.buffer, b"\x7f\xff\xff\xffx"),
        (Reader.buffer, struct.pack(">i", -2)),
        (Reader.string, b"\0\0\0\1\xff"),
        (lambda reader: reader.vector(Reader.string), b"\x7f\xff\xff\xff"),
        (lambda reader: reader.vector(Reader.string), struct.pack(">i", -2)),
    ],
)
def test_what_cannot_be_is_malformed(read, data):
    with pytest.raises(Malformed):
        read(Reader(data))


@given(st.binary(max_size=300))
def test_no_bytes_but_malformed_ones(data):
    for decode in (
        decode_connect,
        lambda data: decode_multi(Reader(data)),
        lambda data: decode_watches_to_restore(Op.SET_WATCHES2, Reader(data)),
    ):
        with suppress(Malformed):
            decode(data)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from([*Op, 0, 16, 19, 21, 102, -1, 4711]), st.binary(max_size=60)), max_size=8))
def test_a_dialog_takes_any_bytes_and_the_tree_stays_whole(requests):
    harness = ConnectionHarness()
    client, bystander = harness.client(), harness.client()
    for number, body in requests:
        if client.is_closed:
            break
        try:
            client.connection.receive(struct.pack(">ii", 1, number) + body)
        except Malformed:
            client.connection.connection_lost()
            break
    assert bystander.ask(GetChildren("/", None)) == harness.host.tree.children("/")


VALID = [
    bytes(Create("/a", b"data", OPEN_ACL_UNSAFE, 1).serialize()),
    bytes(SetData("/", b"data", -1).serialize()),
    bytes(Transaction([Create("/a", b"", OPEN_ACL_UNSAFE, 2), SetData("/a0000000000", b"x", 0)]).serialize()),
]


@settings(max_examples=300)
@given(st.sampled_from([(1, VALID[0]), (5, VALID[1]), (14, VALID[2])]), st.data())
def test_a_request_with_some_bytes_changed(valid, data):
    number, body = valid
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    harness = ConnectionHarness()
    client = harness.client()
    try:
        client.connection.receive(struct.pack(">ii", 1, number) + bytes(changed[:cut]))
    except Malformed:
        assert harness.host.tree.children("/") == []
    assert harness.client().ask(GetChildren("/", None)) == harness.host.tree.children("/")


def test_counters_that_have_wrapped_are_still_numbers():
    stat = Stat(1, 2, 3, 4, 2**31, 2**31 + 5, 0, 6, 7, 8, 9)
    assert struct.unpack(">qqqqiiiqiiq", encode_stat(stat))[4:6] == (0, 5)
