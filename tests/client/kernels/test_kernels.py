"""The kernels against ``protocol/record_body.py``: what one writes the other reads, and nothing bad is believed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from headrace.client.arrow.reading import RecordRange, arrow_schema, batches_to_arrow, decode_batches  # noqa: E402
from headrace.client.arrow.writing import TableEncoder, table_to_batches  # noqa: E402
from headrace.client.consumer.fetch_positions import BatchToRead  # noqa: E402
from headrace.client.consumer.fetched_batches import FetchedBatch  # noqa: E402
from headrace.client.encoded_batch import EncodedBatch  # noqa: E402
from headrace.client.kernels import decode as kernels  # noqa: E402
from headrace.client.partitioners.murmur2 import partition_for_key  # noqa: E402
from headrace.client.types import TopicPartition  # noqa: E402
from headrace.protocol.batch_building import assemble_batch, build_batch  # noqa: E402
from headrace.protocol.errors import CorruptMessage, InvalidRecord, KafkaError, MessageTooLarge  # noqa: E402
from headrace.protocol.record_body import Record, decode_records, decompress_body  # noqa: E402
from headrace.protocol.records import HEADER_BYTES, BatchHeader, Codec, read_header  # noqa: E402
from headrace.protocol.wire.varints import write_varint  # noqa: E402

NOW_MS = 1_700_000_000_000
CLICKS, VIEWS = TopicPartition("clicks", 3), TopicPartition("views", 0)

contents = st.none() | st.binary(max_size=300)
keys = st.none() | st.binary(max_size=20)
timestamps = st.integers(0, 2**41)
header_lists = st.lists(st.tuples(st.text(max_size=9), contents), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Offsets grow, with gaps here and there, as compaction leaves them."""
    records: list[Record] = []
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 12))):
        records.append(Record(offset, draw(timestamps), draw(keys), draw(contents), draw(header_lists)))
        offset += draw(st.sampled_from([1, 1, 1, 2, 900]))
    return records


def to_read(batch: bytes, partition: TopicPartition = CLICKS, from_offset: int = 0) -> BatchToRead:
    return BatchToRead(partition, FetchedBatch(read_header(batch), memoryview(batch), True), from_offset)


def rows_of(records: "pa.RecordBatch") -> list[Record]:
    """Back to the records that were written; Arrow's own check of its layout comes first."""
    records.validate(full=True)
    times = records.column("timestamp").cast(pa.int64()).to_pylist()
    headers = records.column("headers").to_pylist() if "headers" in records.schema.names else [()] * len(times)
    return [
        Record(offset, time, key, value, tuple((one["key"], one["value"]) for one in each))
        for offset, time, key, value, each in zip(
            records.column("offset").to_pylist(), times, records.column("key").to_pylist(),
            records.column("value").to_pylist(), headers, strict=True,
        )
    ]  # fmt: skip


def with_body(batch: bytes, body: bytes, record_count: int | None = None) -> bytes:
    header = read_header(batch)
    return assemble_batch(
        header._replace(record_count=header.record_count if record_count is None else record_count),
        body,
        codec=Codec.none,
    )


# ------------------------------------------------------------------------------------------------------------- reading


@settings(deadline=None)
@given(st.lists(record_lists(), max_size=4), st.sampled_from(Codec))
def test_what_was_written_is_read(batches: list[list[Record]], codec: Codec) -> None:
    encoded = [build_batch(records, base_offset=records[0].offset, codec=codec) for records in batches]
    got = batches_to_arrow([to_read(one) for one in encoded], include_headers=True)
    assert rows_of(got) == [record for records in batches for record in records]
    bare = batches_to_arrow([to_read(one) for one in encoded])
    assert bare.equals(got.select(bare.schema.names))


def test_each_record_has_its_topic_its_partition_and_whose_clock_it_is() -> None:
    by_producer = build_batch([Record(7, NOW_MS, None, b"a")], base_offset=7)
    by_broker = build_batch([Record(0, NOW_MS, None, b"b")], log_append_time_ms=NOW_MS + 5)
    got = batches_to_arrow([to_read(by_producer), to_read(by_broker, VIEWS), to_read(by_producer)])
    assert got.select(["topic", "partition", "offset", "timestamp_type", "value"]).to_pylist() == [
        {"topic": "clicks", "partition": 3, "offset": 7, "timestamp_type": 0, "value": b"a"},
        {"topic": "views", "partition": 0, "offset": 0, "timestamp_type": 1, "value": b"b"},
        {"topic": "clicks", "partition": 3, "offset": 7, "timestamp_type": 0, "value": b"a"},
    ]
    assert [one.value for one in got.column("timestamp")] == [NOW_MS, NOW_MS + 5, NOW_MS]


def test_no_batches_are_no_rows_with_the_same_columns() -> None:
    for include_headers in (False, True):
        got = batches_to_arrow([], include_headers=include_headers)
        assert got.num_rows == 0
        assert got.schema == arrow_schema(include_headers=include_headers)


def test_records_outside_the_ranges_are_left_out() -> None:
    batch = build_batch([Record(n, NOW_MS + n, b"k%d" % n, None if n % 2 else b"v%d" % n) for n in range(10)])
    later = build_batch([Record(n, NOW_MS + n, None, b"later") for n in range(10, 12)], base_offset=10)

    def offsets(from_offset: int = 0, **wanted: object) -> list[int]:
        got = batches_to_arrow([to_read(batch, from_offset=from_offset), to_read(later)], wanted=RecordRange(**wanted))
        got.validate(full=True)
        offsets: list[int] = got["offset"].to_pylist()
        assert got["key"].to_pylist() == [b"k%d" % n if n < 10 else None for n in offsets]
        return offsets

    assert offsets(from_offset=8) == [8, 9, 10, 11]
    assert offsets(max_offsets={CLICKS: 3}) == [0, 1, 2, 3]
    assert offsets(from_offset=9, max_offsets={CLICKS: 10}) == [9, 10]
    assert offsets(max_offsets={CLICKS: -1}) == []


def test_a_batch_that_no_wanted_record_can_be_in_is_not_even_looked_at() -> None:
    corrupt = build_batch([Record(0, NOW_MS, None, b"v")])[:-1] + b"?"
    assert batches_to_arrow([to_read(corrupt)], wanted=RecordRange({CLICKS: -1})).num_rows == 0


def test_what_precedes_a_bad_batch_is_kept() -> None:
    good = build_batch([Record(n, NOW_MS, b"k", b"v", (("a", b""),)) for n in range(3)])
    bad_crc = good[:-1] + b"?"
    cut = with_body(good, decompress_body(read_header(good), good)[:-1])
    body = bytearray(decompress_body(read_header(good), good))
    body[-4] = 0x7E  # the length of a header's key
    bad_headers = with_body(good, bytes(body))
    for bad, kind in ((bad_crc, CorruptMessage), (cut, InvalidRecord), (bad_headers, InvalidRecord)):
        got = decode_batches([to_read(good), to_read(good), to_read(bad), to_read(good)], include_headers=True)
        if bad is bad_headers:  # found only when all else was read: it comes nearer with each call
            assert got.batches in (1, 2)
            got = decode_batches([to_read(bad)], include_headers=True)
            assert (got.batches, got.records.num_rows) == (0, 0)
        else:
            assert (got.batches, got.records.num_rows) == (2, 6)
        assert isinstance(got.error, kind)
        with pytest.raises(kind):
            batches_to_arrow([to_read(bad)], include_headers=True)


def test_a_batch_that_holds_more_than_it_may_is_refused() -> None:
    bomb = build_batch([Record(0, NOW_MS, None, bytes(1 << 20))], codec=Codec.zstd)
    assert isinstance(decode_batches([to_read(bomb)], limit_bytes=1 << 16).error, MessageTooLarge)


@settings(deadline=None)
@given(record_lists(), st.data())
def test_hostile_bytes_are_refused_or_mean_the_same_everywhere(records: list[Record], data: st.DataObject) -> None:
    batch = build_batch(records, base_offset=records[0].offset)
    body = bytearray(decompress_body(read_header(batch), batch))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    hostile = with_body(batch, bytes(body))
    try:
        expected = [record[:4] for record in decode_records(hostile)]
    except KafkaError:
        assert decode_batches([to_read(hostile, from_offset=-(2**63))], include_headers=True).error
    else:
        got = batches_to_arrow([to_read(hostile, from_offset=-(2**63))], include_headers=True)
        assert [record[:4] for record in rows_of(got)] == expected


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 9))
def test_any_bytes_at_all_do_no_harm(body: bytes, count: int) -> None:
    batch = with_body(build_batch([Record(0, NOW_MS, None, b"")]), body, count)
    got = decode_batches([to_read(batch, from_offset=-(2**63))], include_headers=True)
    got.records.validate(full=True)
    assert got.error is not None or got.records.num_rows == count


@pytest.mark.parametrize(
    "field",
    [b"\xff" * 9 + b"\x01", b"\xff" * 10 + b"\x01", b"\xff" * 5 + b"\x0f", b"\xfe\xff\xff\xff\x0f", b"\x80" * 20],
    ids=["64 bits", "more than 64 bits", "40 bits", "32 bits", "no end"],
)
def test_huge_varints_in_every_place_are_refused(field: bytes) -> None:
    fields = [b"\x00", b"\x00", b"\x00", b"\x02", b"k", b"\x02", b"v", b"\x02", b"\x02", b"n", b"\x02", b"c"]
    for place in (3, 5, 7, 8, 10):
        record = b"".join([*fields[:place], field, *fields[place + 1 :]])
        body = write_varint(len(record)) + record
        batch = with_body(build_batch([Record(0, NOW_MS, None, b"")]), body)
        got = decode_batches([to_read(batch)], include_headers=True)
        try:
            decode_records(batch)
        except KafkaError:
            assert got.error is not None
        else:
            assert got.error is None


def test_columns_that_are_too_small_are_not_written_past() -> None:
    batch = build_batch([Record(n, NOW_MS, None, b"v") for n in range(5)])
    body = decompress_body(read_header(batch), batch)
    array = np.frombuffer(body, np.uint8)
    for shape in ((8, 4), (7, 5)):
        found = kernels.slice_body(array.ctypes.data, len(body), 5, 0, 0, 0, np.empty(shape, np.int64))
        assert found in kernels.FAULTS


def test_header_keys_that_are_not_text_are_told_as_far_as_they_are() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"", (("ok", b"1"), ("\udcff", b"2")))])
    got = batches_to_arrow([to_read(batch)], include_headers=True)
    assert [one["key"] for one in got["headers"][0].as_py()] == ["ok", "\N{REPLACEMENT CHARACTER}"]


# ------------------------------------------------------------------------------------------------------------- writing


def whole(batch: EncodedBatch, base_offset: int = 0) -> bytes:
    header = BatchHeader(
        base_offset=base_offset, batch_length=0, leader_epoch=-1, magic=2, crc=0, attributes=0,
        last_offset_delta=batch.record_count - 1, base_timestamp=batch.base_timestamp_ms,
        max_timestamp=batch.max_timestamp_ms, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        record_count=batch.record_count,
    )  # fmt: skip
    return assemble_batch(header, batch.body[HEADER_BYTES:], codec=Codec.none)


def table_of(records: list[Record], **types: "pa.DataType") -> "pa.Table":
    return pa.table(
        {
            "key": pa.array([one.key for one in records], types.get("key", pa.binary())),
            "value": pa.array([one.value for one in records], types.get("value", pa.binary())),
            "timestamp": pa.array([one.timestamp_ms for one in records], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": name, "value": content} for name, content in one.headers] for one in records],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )


@settings(deadline=None)
@given(record_lists(), st.integers(1, 5), st.sampled_from([80, 200, 16384]), st.sampled_from([100, 1 << 20]))
def test_what_the_kernel_writes_is_read(records: list[Record], partitions: int, limit: int, step: int) -> None:
    types = {"key": pa.large_binary(), "value": pa.binary_view()} if len(records) % 2 else {}
    batches = table_to_batches(
        table_of(records, **types), partition_count=partitions, batch_size_bytes=limit, step_bytes=step
    )
    by_partition: dict[int, list[Record]] = {}
    for batch in batches:
        decoded = decode_records(whole(batch))
        assert [one.offset for one in decoded] == list(range(batch.record_count))
        assert batch.max_timestamp_ms == max(one.timestamp_ms for one in decoded)
        assert len(batch.body) <= limit or batch.record_count == 1
        by_partition.setdefault(batch.partition, []).extend(decoded)
    got = [one[1:] for each in by_partition.values() for one in each]
    assert sorted(map(repr, got)) == sorted(repr(one[1:]) for one in records)
    for partition, each in by_partition.items():
        keyed = [one[1:] for one in each if one.key is not None]
        assert keyed == [
            one[1:] for one in records if one.key is not None and partition_for_key(one.key, partitions) == partition
        ]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(1, 50))
def test_keys_go_where_java_sends_them(some: list[bytes], partitions: int) -> None:
    table = pa.table({"key": some, "value": some})
    for batch in table_to_batches(table, partition_count=partitions):
        for one in decode_records(whole(batch)):
            assert partition_for_key(one.key or b"", partitions) == batch.partition


def test_rows_without_a_key_go_to_the_available_partitions_a_batch_each() -> None:
    table = pa.table({"value": [b"x" * 100] * 1000})
    encoder = TableEncoder(table, partition_count=8, available=[1, 4, 6], batch_size_bytes=10_000, run_turn=1)
    batches = [one for start, end in encoder.steps() for one in encoder.encode(start, end)]
    counts = {index: sum(one.record_count for one in batches if one.partition == index) for index in range(8)}
    assert sum(counts.values()) == 1000
    assert all(counts[index] == 0 for index in (0, 2, 3, 5, 7))
    assert min(counts[index] for index in (1, 4, 6)) > 200


def test_a_given_partition_counts_before_the_key() -> None:
    table = pa.table({"key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"], "partition": pa.array([2, None, 0])})
    batches = {one.partition: decode_records(whole(one)) for one in table_to_batches(table, partition_count=3)}
    assert [one.value for one in batches[2]][:1] == [b"1"]
    assert b"3" in [one.value for one in batches[0]]
    assert b"2" in [one.value for one in batches[partition_for_key(b"b", 3)]]
    one = table_to_batches(table.drop_columns(["partition"]), partition_count=3, partition=1)
    assert [(each.partition, each.record_count) for each in one] == [(1, 3)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"key": [b"k"]}, "no column value"),
        ({"value": [1]}, "value has the type int64"),
        ({"value": [b"v"], "colour": ["red"]}, "colour"),
        ({"value": [b"v"], "partition": [7]}, "partition 7"),
        ({"value": [b"v"], "partition": [-2]}, "partition -2"),
        ({"value": [b"v"], "partition": ["1"]}, "partition has the type string"),
        ({"value": [b"v"], "timestamp": ["now"]}, "timestamp has the type string"),
        ({"value": [b"v"], "headers": ["a=b"]}, "headers has the type string"),
        ({"value": [b"v"], "headers": [[{"key": None, "value": b""}]]}, "null"),
    ],
)
def test_a_table_that_is_none_of_ours_is_refused_with_the_column(columns: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TableEncoder(pa.table(columns), partition_count=2)


def test_what_is_not_a_table_is_refused() -> None:
    with pytest.raises(TypeError, match="a list is not a table"):
        TableEncoder([b"v"], partition_count=1)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_others_are_one_call_away(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"key": ["a", None, "c"], "value": ["x", "yy", None]})
    (batch,) = table_to_batches(frame, partition_count=1, now_ms=NOW_MS)
    assert [one[1:4] for one in decode_records(whole(batch))] == [
        (NOW_MS, b"a", b"x"), (NOW_MS, None, b"yy"), (NOW_MS, b"c", None),
    ]  # fmt: skip


def test_slices_chunks_and_dictionaries_are_read_where_they_are() -> None:
    values = pa.chunked_array(
        [pa.array(["a", "b", "c"]).dictionary_encode(), pa.array(["d", None]).dictionary_encode()]
    )
    table = pa.table({"value": values, "key": pa.array([None, "k1", "k2", None, "k4"])}).slice(1, 3)
    (batch,) = table_to_batches(table, partition_count=1)
    assert [one[2:4] for one in decode_records(whole(batch))] == [(b"k1", b"b"), (b"k2", b"c"), (None, b"d")]


def test_timestamps_of_any_unit_become_milliseconds() -> None:
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)):
        column = pa.array([1_700_000_000 * factor, None], pa.timestamp(unit))
        (batch,) = table_to_batches(
            pa.table({"value": [b"a", b"b"], "timestamp": column}), partition_count=1, now_ms=NOW_MS + 7
        )
        assert [one.timestamp_ms for one in decode_records(whole(batch))] == [NOW_MS, NOW_MS + 7]
