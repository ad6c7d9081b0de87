"""Headrace's clients while their broker is killed with ``kill -9`` and started again on the same port.

A producer (idempotent, acks=all) writes numbered records to three partitions as fast as the broker acknowledges them. A
consumer of a group reads and commits them. At the end each partition must have every number once and in order, and the
consumer must have received exactly these records.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from lasting_server import Server

from headrace import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from headrace.client.errors import BufferExhausted, HeadraceError
from headrace.client.types import ConsumedRecord, RecordMetadata

TOPIC = "numbers"
PARTITIONS = 3
#: Records a partition, and after how many acknowledged ones in all the broker is killed.
COUNT = 4_000
KILLS_AT = (2_000, 6_000)
#: The largest number of unacknowledged records: up to this many are in flight when the broker dies.
ON_THE_WAY = 2_000
PATIENCE_S = 30.0
SETTINGS = (
    "-o", f"num.partitions={PARTITIONS}", "-o", "offsets.topic.num.partitions=3",
    "-o", "group.initial.rebalance.delay.ms=0", "-o", "transaction.state.log.num.partitions=3",
)  # fmt: skip

Read = dict[int, list[int]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, *SETTINGS)
    yield made
    made.close()


class Acknowledged:
    """Counts what was delivered, on the clients' thread; others wait for it on theirs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0
        self.errors: list[Exception] = []
        self.offsets: dict[int, list[int]] = defaultdict(list)

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        with self._changed:
            self.count += 1
            if metadata is None:
                assert error is not None
                self.errors.append(error)
            else:
                self.offsets[metadata.partition].append(metadata.offset)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, PATIENCE_S), self.count


def every_number() -> Read:
    return {partition: list(range(COUNT)) for partition in range(PARTITIONS)}


def collect(read: Read, records: list[ConsumedRecord]) -> int:
    for record in records:
        assert record.value is not None
        read.setdefault(record.partition, []).append(int(record.value))
    return len(records)


def read_again(address: str) -> Read:
    """Returns all records in the log."""
    read: Read = {}
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        left = sum(consumer.end_offsets(*consumer.assignment()).values())
        while left > 0:
            left -= collect(read, consumer.poll(1_000))
    return read


def read_committed(address: str, topic: str) -> Read:
    """Returns the committed records. Markers are between the records, so positions show the end, not counts."""
    read: Read = {}
    with Consumer(
        bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(*partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            collect(read, consumer.poll(1_000))
    return read


def consumer_options(address: str, protocol: str) -> dict[str, object]:
    return {
        "bootstrap_servers": address,
        "group_id": "readers",
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_blocking_clients_lose_and_double_nothing(server: Server, protocol: str) -> None:
    acknowledged, read = Acknowledged(), Read()
    failures: list[BaseException] = []

    def write() -> None:
        with Producer(bootstrap_servers=server.address) as producer:
            for number in range(COUNT):
                acknowledged.wait_for(number * PARTITIONS - ON_THE_WAY)
                for partition in range(PARTITIONS):
                    producer.send(TOPIC, b"%d" % number, partition=partition, on_delivery=acknowledged)

    def consume() -> None:
        left = COUNT * PARTITIONS
        with Consumer(TOPIC, **consumer_options(server.address, protocol)) as consumer:
            while left > 0 and not failures:
                left -= collect(read, consumer.poll(1_000))
                consumer.commit()

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001  told by the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, consume)]
    for thread in threads:
        thread.start()
    for count in KILLS_AT:
        acknowledged.wait_for(count)
        server.kill()
        server.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures == []
    assert acknowledged.errors == []
    assert not any(thread.is_alive() for thread in threads)
    assert {partition: sorted(offsets) for partition, offsets in acknowledged.offsets.items()} == every_number()
    assert read_again(server.address) == every_number()
    assert read == every_number()


async def test_async_clients_lose_and_double_nothing(server: Server) -> None:
    acknowledged, read = Acknowledged(), Read()
    changed = asyncio.Event()

    def on_delivery(metadata: RecordMetadata | None, error: Exception | None) -> None:
        acknowledged(metadata, error)
        changed.set()

    async def until(count: int) -> None:
        while acknowledged.count < count:
            changed.clear()
            await changed.wait()

    async def write() -> None:
        async with AsyncProducer(bootstrap_servers=server.address) as producer:
            for number in range(COUNT):
                await until(number * PARTITIONS - ON_THE_WAY)
                for partition in range(PARTITIONS):
                    await producer.send(TOPIC, b"%d" % number, partition=partition, on_delivery=on_delivery)

    async def consume() -> None:
        left = COUNT * PARTITIONS
        async with AsyncConsumer(TOPIC, **consumer_options(server.address, "classic")) as consumer:
            while left > 0:
                left -= collect(read, await consumer.poll(1_000))
                await consumer.commit()

    async def kill() -> None:
        for count in KILLS_AT:
            await until(count)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(write(), consume(), kill())
    assert acknowledged.errors == []
    assert await asyncio.to_thread(read_again, server.address) == every_number()
    assert read == every_number()


def test_transactions_are_seen_whole_or_not_at_all(server: Server) -> None:
    """A producer that is told of a failure aborts and writes the same again; a reader of committed records sees each
    transaction once."""
    transactions, size = 30, 50
    options = {"bootstrap_servers": server.address, "transactional_id": "writer"}
    killer = iter([10, 20])
    kill_at = next(killer)
    with Producer(**options) as producer:
        producer.init_transactions()
        done = 0
        while done < transactions:
            producer.begin_transaction()
            try:
                for number in range(done * size, (done + 1) * size):
                    producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                if done == kill_at:
                    kill_at = next(killer, -1)
                    server.kill()
                    server.start()
                producer.commit_transaction()
            except HeadraceError:
                producer.abort_transaction()
            else:
                done += 1
    whole = range(transactions * size)
    assert read_committed(server.address, TOPIC) == {
        index: [n for n in whole if n % PARTITIONS == index] for index in range(PARTITIONS)
    }


def test_read_transform_and_write_is_exactly_once(server: Server) -> None:
    """Each record is read in one topic and written to another, with the reader's offset in the same transaction. One
    that fails is aborted, and the reader goes back to what was committed. In the end each record was written once."""
    with Producer(bootstrap_servers=server.address) as producer:
        for number in range(COUNT // 8):
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"%d" % number, partition=partition)
    with (
        Consumer(TOPIC, **consumer_options(server.address, "consumer"), max_poll_records=50) as consumer,
        Producer(bootstrap_servers=server.address, transactional_id="doubler") as producer,
    ):
        producer.init_transactions()
        kills_at = [300, 800]
        done = 0
        while done < PARTITIONS * COUNT // 8:
            records = consumer.poll(1_000)
            producer.begin_transaction()
            try:
                for record in records:
                    producer.send("written", record.value, partition=record.partition)
                if kills_at and done >= kills_at[0]:
                    kills_at.pop(0)
                    server.kill()
                    server.start()
                ends = {TopicPartition(TOPIC, record.partition): record.offset + 1 for record in records}
                producer.send_offsets_to_transaction(ends, consumer.group_metadata())
                producer.commit_transaction()
            except HeadraceError:
                producer.abort_transaction()
                for partition, offset in consumer.committed(*consumer.assignment()).items():
                    consumer.seek(partition, 0 if offset is None else offset)
            else:
                done += len(records)
    assert kills_at == []
    assert read_committed(server.address, "written") == {
        partition: list(range(COUNT // 8)) for partition in range(PARTITIONS)
    }


def test_memory_is_bounded_while_there_is_no_broker_and_what_was_taken_arrives(server: Server) -> None:
    buffer_memory, value = 1 << 20, b"x" * 1_000
    with Producer(
        bootstrap_servers=server.address, buffer_memory=buffer_memory, max_block_ms=300, linger_ms=0
    ) as producer:
        producer.send_and_wait(TOPIC, value)
        server.kill()
        deliveries = []

        def send_until_refused() -> None:
            while len(deliveries) * len(value) <= 2 * buffer_memory:
                deliveries.append(producer.send(TOPIC, value))

        with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
            send_until_refused()
        assert buffer_memory / 2 < len(deliveries) * len(value) <= buffer_memory
        server.start()
        producer.flush(PATIENCE_S)
        assert all(delivery.result().offset >= 0 for delivery in deliveries)
        assert producer.send_and_wait(TOPIC, value).offset >= 0
    with Consumer(bootstrap_servers=server.address) as consumer:
        ends = consumer.end_offsets(*[TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
    assert sum(ends.values()) == len(deliveries) + 2
