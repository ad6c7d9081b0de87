"""Tables through the clients and a broker: what was sent is what is polled, wherever it went."""

import asyncio

import pytest

pytest.importorskip("numba")
pa = pytest.importorskip("pyarrow")

from headrace import Broker, Consumer, Producer  # noqa: E402
from headrace.client.arrow.tables import ArrowSummary, PartitionSummary, poll_arrow, send_arrow  # noqa: E402
from headrace.client.consumer.async_consumer import AsyncConsumer  # noqa: E402
from headrace.client.consumer.fetch_positions import BatchToRead  # noqa: E402
from headrace.client.consumer.fetched_batches import FetchedBatch  # noqa: E402
from headrace.client.errors import BrokerError, ClientClosed, RecordTooLarge  # noqa: E402
from headrace.client.partitioners.murmur2 import partition_for_key  # noqa: E402
from headrace.client.producer.async_producer import AsyncProducer  # noqa: E402
from headrace.client.types import OffsetAndMetadata, TopicPartition  # noqa: E402
from headrace.protocol.batch_building import build_batch  # noqa: E402
from headrace.protocol.record_body import Record  # noqa: E402
from headrace.protocol.records import read_header  # noqa: E402

NOW_MS = 1_700_000_000_000
ROWS = 3_000


def table_of(rows: int = ROWS) -> "pa.Table":
    return pa.table(
        {
            "key": pa.array([None if row % 7 == 0 else b"key-%d" % row for row in range(rows)], pa.binary()),
            "value": pa.array([None if row % 11 == 0 else f"value {row}" for row in range(rows)], pa.string()),
            "timestamp": pa.array([NOW_MS + row for row in range(rows)], pa.timestamp("ms", "UTC")),
        }
    )


async def polled(consumer: AsyncConsumer, rows: int, **options: object) -> "pa.Table":
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < rows:
        batch = await consumer.poll_arrow(10_000, **options)
        assert batch.num_rows, "nothing came"
        batches.append(batch)
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_what_was_sent_is_polled(partitions: int, codec: str) -> None:
    async with Broker(config={"num.partitions": partitions}) as broker:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, batch_size=2_000, compression_type=codec) as producer:
            summary = await (await producer.send_arrow("clicks", table_of()))
        assert summary.topic == "clicks"
        assert summary.record_count == ROWS
        async with AsyncConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition("clicks", partition) for partition in range(partitions)])
            consumer.seek_to_beginning()
            got = await polled(consumer, ROWS)
        got.validate(full=True)
        sent = table_of()
        columns = ["key", "value", "timestamp"]
        expected = sent.set_column(1, "value", sent["value"].cast(pa.binary())).select(columns)
        by_time = got.sort_by("timestamp").select(columns)
        assert by_time.to_pylist() == expected.to_pylist()
        for partition, part in summary.partitions.items():
            offsets = [row["offset"] for row in got.to_pylist() if row["partition"] == partition]
            assert offsets == list(range(part.first_offset, part.last_offset + 1))
            assert len(offsets) == part.record_count
        for row in got.to_pylist():
            if row["key"] is not None:
                assert row["partition"] == partition_for_key(row["key"], partitions)


async def test_headers_go_both_ways() -> None:
    headers = [[{"key": "trace", "value": b"1"}, {"key": "none", "value": None}], [], None]
    table = pa.table({"value": [b"a", b"b", b"c"], "headers": headers})
    async with Broker() as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await (await producer.send_arrow("clicks", table))
        async with AsyncConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("clicks", 0)])
            consumer.seek_to_beginning()
            got = await polled(consumer, 3, include_headers=True)
            assert got["headers"].to_pylist() == [headers[0], [], []]
            consumer.seek(TopicPartition("clicks", 0), 1)
            assert (await polled(consumer, 2))["value"].to_pylist() == [b"b", b"c"]
            consumer.seek(TopicPartition("clicks", 0), 2)
            assert [(one.offset, one.value) for one in await consumer.poll(10_000)] == [(2, b"c")]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_go_both_ways_through_the_blocking_clients(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame({"key": ["a", "b"], "value": ["x", "y"]})
    with Broker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            summary = producer.send_arrow("clicks", frame).result(30)
        assert summary == ArrowSummary("clicks", {0: PartitionSummary(0, 1, 2)})
        with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("clicks", 0)])
            consumer.seek_to_beginning()
            batch = consumer.poll_arrow(10_000)
        got = frames.from_arrow(batch) if library == "polars" else batch.to_pandas()
        assert list(got["value"]) == [b"x", b"y"]
        assert list(got["topic"]) == ["clicks", "clicks"]


async def test_a_table_larger_than_the_memory_goes_through_it() -> None:
    table = pa.table({"value": [b"%07d" % row + bytes(993) for row in range(2_000)]})
    async with Broker() as broker:
        servers = broker.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, buffer_memory=400_000, batch_size=50_000) as producer:
            summary = await (await producer.send_arrow("clicks", table))
            assert producer.record_buffer.pool.available_bytes == 400_000
        assert summary.partitions == {0: PartitionSummary(0, 1_999, 2_000)}
        async with AsyncConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition("clicks", 0)])
            consumer.seek_to_beginning()
            got = await polled(consumer, 2_000)
        assert [value[:7] for value in got["value"].to_pylist()] == [b"%07d" % row for row in range(2_000)]


async def test_batches_too_large_for_the_topic_are_split() -> None:
    table = pa.table({"value": [bytes(1_000)] * 200})
    async with Broker(config={"message.max.bytes": 20_000}) as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            summary = await (await producer.send_arrow("clicks", table))
        assert summary.partitions == {0: PartitionSummary(0, 199, 200)}


async def test_what_cannot_be_sent_is_refused_before_anything_is() -> None:
    async with Broker() as broker:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, max_request_size=10_000) as producer:
            with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
                await producer.send_arrow("clicks", pa.table({"value": [b"small", bytes(20_000)]}))
            with pytest.raises(ValueError, match="colour"):
                await producer.send_arrow("clicks", pa.table({"value": [b""], "colour": ["red"]}))
            with pytest.raises(ValueError, match="partition 3"):
                await producer.send_arrow("clicks", pa.table({"value": [b""]}), partition=3)
            empty = await (await producer.send_arrow("clicks", pa.table({"value": pa.array([], pa.binary())})))
            assert empty == ArrowSummary("clicks", {})
            assert (await producer.send_and_wait("clicks", b"first")).offset == 0
        with pytest.raises(ClientClosed):
            await producer.send_arrow("clicks", pa.table({"value": [b""]}))


async def test_no_rows_when_the_time_is_up() -> None:
    async with Broker() as broker, AsyncConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("clicks", 0)])
        batch = await consumer.poll_arrow(1)
        assert batch.num_rows == 0
        assert "value" in batch.schema.names


# ------------------------------------------------------------------------------- positions, when something goes wrong


class Polled:
    """A consumer that has these batches, and moves back where it is told."""

    def __init__(self, *batches: bytes) -> None:
        self.partition = TopicPartition("clicks", 0)
        self.batches = batches
        self.sought: list[tuple[TopicPartition, int | OffsetAndMetadata]] = []

    async def poll_batches(self, timeout_ms: float, *, max_bytes: int) -> list[BatchToRead]:
        headers = [read_header(one) for one in self.batches]
        return [
            BatchToRead(self.partition, FetchedBatch(header, memoryview(one), True), header.base_offset)
            for header, one in zip(headers, self.batches, strict=True)
        ]

    def assignment(self) -> set[TopicPartition]:
        return {self.partition}

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self.sought.append((partition, offset))


def batch_at(offset: int, value: bytes = b"v") -> bytes:
    return build_batch([Record(offset, NOW_MS, None, value)], base_offset=offset)


async def test_the_position_goes_back_to_a_batch_that_cannot_be_read() -> None:
    bad = batch_at(5)[:-1] + b"?"
    consumer = Polled(batch_at(4), bad, batch_at(6))
    assert (await poll_arrow(consumer, 0, max_bytes=1))["offset"].to_pylist() == [4]
    assert consumer.sought == [(consumer.partition, 5)]
    consumer = Polled(bad, batch_at(6))
    with pytest.raises(BrokerError, match=r"clicks-0 at offsets 5 to 5 cannot be read.*seek past it"):
        await poll_arrow(consumer, 0, max_bytes=1)
    assert consumer.sought == [(consumer.partition, 5)]


async def test_the_position_goes_back_if_the_poll_is_given_up() -> None:
    consumer = Polled(batch_at(7, bytes(1 << 20)))
    polling = asyncio.ensure_future(poll_arrow(consumer, 0, max_bytes=1))
    await asyncio.sleep(0)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert consumer.sought == [(consumer.partition, 7)]


async def test_sending_needs_no_more_than_its_part_of_a_producer() -> None:
    async with Broker() as broker, AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        delivery = await send_arrow(producer, "clicks", pa.table({"value": ["a", "b"]}))
        await producer.flush()
        assert delivery.done()
