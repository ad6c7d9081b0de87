import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.frames import INITIAL_BYTES, MAPPED_BYTES, BadFrame, FrameReader


def receive(reader: FrameReader, data: bytes) -> list[bytes]:
    """Does what a connection does: receives into the room that there is, then takes the whole frames."""
    frames = []
    while data:
        room = reader.room()
        assert len(room) > 0
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        reader.received(taken)
        data = data[taken:]
        while (frame := reader.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


@given(
    payloads=st.lists(st.binary(max_size=300) | st.integers(0, 5 * INITIAL_BYTES).map(bytes), max_size=8),
    cuts=st.lists(st.integers(1, 40_000), max_size=20),
)
def test_any_stream_in_any_pieces_gives_its_frames_back(payloads: list[bytes], cuts: list[int]) -> None:
    reader, stream, got = FrameReader(10**6), framed(*payloads), []
    for cut in [*cuts, len(stream) or 1]:
        got += receive(reader, stream[:cut])
        stream = stream[cut:]
    assert got == payloads


@pytest.mark.parametrize("length", [-1, -(2**31), 1001])
def test_a_length_that_cannot_be_right_is_refused(length: int) -> None:
    reader = FrameReader(1000)
    with pytest.raises(BadFrame, match="at most 1000"):
        receive(reader, struct.pack(">i", length))


def test_the_largest_frame_is_taken() -> None:
    assert receive(FrameReader(1000), framed(bytes(1000))) == [bytes(1000)]


def test_a_length_alone_does_not_make_the_buffer_grow() -> None:
    reader = FrameReader(100_000_000)
    receive(reader, struct.pack(">i", 99_000_000) + bytes(1000))
    assert reader.capacity_bytes == INITIAL_BYTES


def test_the_buffer_shrinks_when_small_frames_follow_a_big_one() -> None:
    reader = FrameReader(10**7)
    receive(reader, framed(bytes(2_000_000)))
    assert reader.capacity_bytes >= 2_000_000
    receive(reader, framed(b"small"))
    reader.room()
    assert reader.capacity_bytes == INITIAL_BYTES


def test_a_buffer_given_away_is_not_written_to_again() -> None:
    reader = FrameReader(10**6)
    stream = framed(b"first", b"second")
    reader.room()[: len(stream) - 1] = stream[:-1]
    reader.received(len(stream) - 1)
    first = reader.next_frame()
    assert first is not None
    reader.give_away()
    assert receive(reader, stream[-1:] + framed(b"third" * INITIAL_BYTES)) == [b"second", b"third" * INITIAL_BYTES]
    assert first == b"first"


def test_a_buffer_that_was_given_away_is_used_again_when_nobody_holds_it() -> None:
    reader = FrameReader(10**6)
    big = 2 * INITIAL_BYTES
    kept: list[memoryview] = []
    for number in range(20):
        data = framed(bytes([number]) * big)
        while data:
            room = reader.room()
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            reader.received(taken)
            data = data[taken:]
            room.release()
        frame = reader.next_frame()
        assert frame is not None
        reader.give_away()
        kept = [*kept[-1:], frame]
        for held in kept:
            assert len(set(held)) == 1, "a frame that is held was overwritten"
    addresses = {id(buffer) for buffer in reader._given}
    assert len(addresses) <= 3


LARGE = 3 * MAPPED_BYTES


def test_a_large_frame_is_received_without_being_copied() -> None:
    reader = FrameReader(2 * LARGE)
    stream = framed(b"a" * LARGE)
    receive(reader, stream[:1000])
    room = reader.room()
    assert (reader.capacity_bytes, len(room)) == (len(stream), len(stream) - 1000)
    assert receive(reader, stream[1000:] + framed(b"b")) == [b"a" * LARGE, b"b"]


def test_large_frames_in_any_pieces() -> None:
    payloads = [b"a" * LARGE, b"b", b"c" * (LARGE + 7), b"d" * INITIAL_BYTES]
    reader, stream, got = FrameReader(2 * LARGE), framed(*payloads), []
    for start in range(0, len(stream), 777_777):
        got += receive(reader, stream[start : start + 777_777])
    assert got == payloads


def test_at_rest_a_large_buffer_is_let_go() -> None:
    reader = FrameReader(2 * LARGE)
    receive(reader, framed(b"a" * LARGE))
    reader.shrink()
    assert reader.capacity_bytes == INITIAL_BYTES
    assert receive(reader, framed(b"b")) == [b"b"]


def test_at_rest_a_buffer_with_half_a_frame_is_kept() -> None:
    reader, stream = FrameReader(2 * LARGE), framed(b"a" * LARGE)
    receive(reader, stream[:-1])
    reader.shrink()
    assert receive(reader, stream[-1:]) == [b"a" * LARGE]


def test_a_large_buffer_that_was_given_away_is_used_again_when_it_is_free() -> None:
    reader = FrameReader(2 * LARGE)
    for letter in b"abcdef":
        room_bytes, payload = len(reader.room()), bytes([letter]) * LARGE
        assert room_bytes > 0
        stream = framed(payload)
        while stream:
            room = reader.room()
            taken = min(len(room), len(stream))
            room[:taken] = stream[:taken]
            reader.received(taken)
            stream = stream[taken:]
        frame = reader.next_frame()
        assert frame is not None
        reader.give_away()
        assert bytes(frame) == payload
