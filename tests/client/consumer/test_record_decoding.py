"""Both ways of decoding a fetched batch give what ``protocol/record_body.py`` wrote, and refuse what is bad."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.consumer import record_decoding
from headrace.client.consumer.record_decoding import decode_batch
from headrace.client.kernels import loading as kernel_loading
from headrace.client.kernels.loading import KernelLoading
from headrace.client.types import ConsumedRecord, TimestampType
from headrace.protocol.batch_building import assemble_batch, build_batch
from headrace.protocol.errors import CorruptMessage, InvalidRecord, KafkaError
from headrace.protocol.record_body import Record, decode_records, decompress_body
from headrace.protocol.records import Codec, read_header

WAYS = ["python", "kernel"]
NOW_MS = 1_700_000_000_000

contents = st.none() | st.binary(max_size=200)
timestamps = st.integers(NOW_MS - 2**33, NOW_MS + 2**33)
header_lists = st.lists(st.tuples(st.text(max_size=9), contents), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Offsets grow, with gaps here and there, as compaction leaves them."""
    records: list[Record] = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 12))):
        records.append(Record(offset, draw(timestamps), draw(contents), draw(contents), draw(header_lists)))
        offset += draw(st.sampled_from([1, 1, 1, 2, 900]))
    return records


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    loading = KernelLoading("headrace.client.kernels.decode")
    if request.param == "kernel":
        pytest.importorskip("numba")
        loading.now()
    loading.is_done = True
    monkeypatch.setattr(record_decoding, "_loading", loading)
    return str(request.param)


def decoded(batch: bytes, *, check_crc: bool = True) -> list[ConsumedRecord]:
    return list(decode_batch("clicks", 3, read_header(batch), batch, check_crc=check_crc))


def with_body(batch: bytes, body: bytes, record_count: int | None = None) -> bytes:
    header = read_header(batch)
    if record_count is not None:
        header = header._replace(record_count=record_count)
    return assemble_batch(header, body, codec=Codec.none)


@settings(deadline=None)
@given(record_lists(), st.sampled_from(Codec))
def test_what_was_written_is_read(records: list[Record], codec: Codec) -> None:
    base_offset = records[0].offset if records else 0
    batch = build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=7)
    assert decoded(batch) == [
        ("clicks", 3, record.offset, record.timestamp_ms, TimestampType.create_time, *record[2:], 7)
        for record in records
    ]


@settings(deadline=None)
@given(record_lists().filter(bool), st.integers(-15, 15), st.integers(-15, 15), st.sampled_from([None, 1, 2, -1]))
def test_parts_are_parts_of_the_whole(records: list[Record], start: int, stop: int, step: int | None) -> None:
    batch = build_batch(records, base_offset=records[0].offset)
    lazy, whole = decode_batch("clicks", 3, read_header(batch), batch), decoded(batch)
    assert len(lazy) == len(whole)
    assert list(lazy[start:stop:step]) == whole[start:stop:step]
    assert [lazy[at] for at in range(len(whole))] == whole
    assert lazy[-1] == whole[-1]
    with pytest.raises(IndexError):
        lazy[len(whole)]


def test_log_append_time_is_that_of_the_batch() -> None:
    records = [Record(n, NOW_MS + n, b"k", b"v") for n in range(3)]
    got = decoded(build_batch(records, log_append_time_ms=NOW_MS + 99))
    assert {one.timestamp_ms for one in got} == {NOW_MS + 99}
    assert {one.timestamp_type for one in got} == {TimestampType.log_append_time}


def test_a_wrong_crc_is_refused_unless_nobody_asks() -> None:
    batch = bytearray(build_batch([Record(0, NOW_MS, None, b"value")]))
    batch[-3] ^= 1
    with pytest.raises(CorruptMessage):
        decoded(bytes(batch))
    assert len(decoded(bytes(batch), check_crc=False)) == 1


@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int) -> None:
    batch = build_batch([Record(n, NOW_MS, None, b"value") for n in range(2)])
    with pytest.raises(InvalidRecord):
        decoded(with_body(batch, decompress_body(read_header(batch), batch), count))


def test_every_cut_is_refused() -> None:
    batch = build_batch(
        [Record(0, NOW_MS, b"key", b"value", (("a", b"1"), ("b", None))), Record(1, NOW_MS, b"k", None)]
    )
    body = decompress_body(read_header(batch), batch)
    for size in range(len(body)):
        with pytest.raises(InvalidRecord):
            decoded(with_body(batch, body[:size]))


@settings(deadline=None)
@given(record_lists().filter(bool), st.data())
def test_hostile_bytes_are_refused_or_mean_the_same_everywhere(records: list[Record], data: st.DataObject) -> None:
    batch = build_batch(records, base_offset=records[0].offset)
    body = bytearray(decompress_body(read_header(batch), batch))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    hostile = with_body(batch, bytes(body))
    try:
        expected = [record[0:5] for record in decode_records(hostile)]
    except KafkaError:
        with pytest.raises(KafkaError):
            decoded(hostile)
    else:
        assert [(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in decoded(hostile)] == expected


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 9))
def test_any_bytes_at_all_do_no_harm(body: bytes, count: int) -> None:
    batch = with_body(build_batch([Record(0, NOW_MS, None, b"")]), body, count)
    with suppress(InvalidRecord):
        assert len(decoded(batch)) == count


def test_the_kernels_are_loaded_only_by_the_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    class Started:
        def __init__(self, **_: object) -> None: ...
        def start(self) -> None:
            begun.append(1)

    now = [0.0]
    monkeypatch.setattr(kernel_loading, "Thread", Started)
    monkeypatch.setattr(kernel_loading, "monotonic", lambda: now[0])
    loading = KernelLoading("headrace.client.no_such_kernels")
    for _ in range(30):  # 9,000 per second is not busy
        assert loading.when_busy(9_000) is None
        now[0] += 1
    assert not begun
    for _ in range(20):
        assert loading.when_busy(50_000) is None
        now[0] += 1
    assert begun == [1]
    assert loading.now() is None
