"""Large buffers are used again, by any reader, and freed when nobody uses them."""

from mmap import mmap

from headrace.protocol.frames import MAPPED_BYTES, FrameReader, encode_frame
from headrace.protocol.spare_buffers import MAX_SPARE_BYTES, SpareBuffers

LARGE = bytes(MAPPED_BYTES + 1)


def receive(reader: FrameReader, content: bytes) -> memoryview:
    left = memoryview(encode_frame(content))
    while left:
        room = reader.room()
        size_bytes = min(len(room), len(left))
        room[:size_bytes] = left[:size_bytes]
        reader.received(size_bytes)
        left = left[size_bytes:]
    frame = reader.next_frame()
    assert frame is not None
    return frame


def test_a_buffer_goes_from_reader_to_reader() -> None:
    spares = SpareBuffers()
    one, other = FrameReader(2**31 - 1, spares), FrameReader(2**31 - 1, spares)
    assert receive(one, LARGE) == LARGE
    buffer = one._buffer
    one.shrink()
    assert len(spares) == 1
    assert receive(other, LARGE[:-1] + b"x") == LARGE[:-1] + b"x"
    assert other._buffer is buffer
    assert len(spares) == 0


def test_a_buffer_that_somebody_still_reads_is_not_used_again() -> None:
    spares = SpareBuffers()
    reader = FrameReader(2**31 - 1, spares)
    frame = receive(reader, LARGE)
    reader.shrink()
    assert len(spares) == 0
    receive(reader, b"x" * len(LARGE))
    assert frame == LARGE


def test_a_buffer_must_be_large_enough_and_not_much_too_large() -> None:
    spares = SpareBuffers()
    spares.give(mmap(-1, 100_000))
    assert spares.take(100_001) is None
    assert spares.take(1_000) is None
    assert spares.take(50_000) is not None


def test_all_buffers_together_have_a_limit() -> None:
    spares = SpareBuffers()
    for _ in range(5):
        spares.give(mmap(-1, MAX_SPARE_BYTES // 4))
    assert len(spares) == 4


def test_buffers_that_nobody_takes_are_freed_one_at_a_time() -> None:
    calls: list[None] = []
    spares = SpareBuffers(lambda: calls.append(None))
    for _ in range(2):
        spares.give(mmap(-1, 10_000))
    assert len(calls) == 2
    assert spares.trim(), "both are new"
    spares.give(mmap(-1, 10_000))
    assert [spares.trim(), len(spares)] == [True, 2]
    assert [spares.trim(), len(spares)] == [True, 1]
    assert [spares.trim(), len(spares)] == [False, 0]
