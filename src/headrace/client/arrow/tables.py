"""Implements ``send_arrow`` and ``poll_arrow`` of producers and consumers.

A worker thread encodes a table in steps, while the event loop sends the batches of earlier steps. The kernels release
the interpreter lock. The batches wait in the accumulator like all others, with sequence numbers, retries and
transactions. A worker thread also decodes fetched batches, while the next ones arrive. Small work is done in place,
because passing it to a thread would cost more.

This module needs pyarrow and Numba (``pip install headrace[arrow]``). It is imported only when it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from headrace.client.own_random import randrange

try:
    import numba as _numba  # noqa: F401  so that one place reports missing packages
    import pyarrow as pa  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError(f"Arrow tables need pyarrow and numba: pip install 'headrace[arrow]' ({error})") from error

from headrace.client.arrow.reading import ALL, Decoded, RecordRange, arrow_schema, batches_to_arrow, decode_batches
from headrace.client.arrow.writing import TableEncoder, as_arrow_table, table_to_batches
from headrace.client.encoded_batch import EncodedBatch
from headrace.client.errors import RecordTooLarge, error_for
from headrace.client.types import OffsetAndMetadata, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    from headrace.client.config import ProducerConfig
    from headrace.client.consumer.fetch_positions import BatchToRead
    from headrace.client.producer.batch import ProducerBatch
    from headrace.client.producer.record_buffer import RecordBuffer

__all__ = [
    "ArrowDelivery",
    "ArrowSummary",
    "BlockingArrowDelivery",
    "PartitionSummary",
    "RecordRange",
    "arrow_schema",
    "as_arrow_table",
    "batches_to_arrow",
    "poll_arrow",
    "send_arrow",
    "table_to_batches",
]

T = TypeVar("T")
#: Work on at least this many bytes goes to a thread.
_LONG_BYTES = 256 * 1024
#: Batches of a table are at least this large, if there are enough rows. ``batch.size`` is small because single records
#: should not wait long, but a table is complete from the start.
_BATCH_BYTES = 256 * 1024
#: The most bytes of a table that wait per leader. More would only use memory that is in no processor cache.
_AHEAD_BYTES = 16 << 20
#: How many bytes of a table are encoded at a time.
_STEP_BYTES = 4 << 20


async def _worked(size_bytes: int, work: Callable[[], T]) -> T:
    if size_bytes < _LONG_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


# ------------------------------------------------------------------------------------------------------------- polling


class PollsBatches(Protocol):
    """The part of ``AsyncConsumer`` that this module uses."""

    async def poll_batches(self, timeout_ms: float, *, max_bytes: int) -> list[BatchToRead]: ...
    def assignment(self) -> set[TopicPartition]: ...
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None: ...


async def poll_arrow(
    consumer: PollsBatches,
    timeout_ms: float,
    *,
    max_bytes: int,
    include_headers: bool = False,
    check_crcs: bool = True,
    wanted: RecordRange = ALL,
) -> pa.RecordBatch:
    """Returns the records of the next poll; no rows if the timeout passes first.

    If batches cannot be read or do not fit, or if the call is cancelled, the positions go back to the first batch that
    was not returned.

    :raises BrokerError: if the first batch cannot be read. Seek past it to go on.
    """
    batches = await consumer.poll_batches(timeout_ms, max_bytes=max_bytes)

    def work() -> Decoded:
        return decode_batches(batches, include_headers=include_headers, check_crcs=check_crcs, wanted=wanted)

    done = 0
    try:
        decoded = await _worked(sum(one.batch.header.size_bytes for one in batches), work)
        done = decoded.batches
    finally:
        _give_back(consumer, batches[done:])
    if decoded.error is not None and not done:
        partition, batch, _ = batches[0]
        where = f"the batch of {partition} at offsets {batch.header.base_offset} to {batch.header.last_offset}"
        raise error_for(
            decoded.error.code, f"{where} cannot be read: {decoded.error}; seek past it to go on"
        ) from decoded.error
    return decoded.records


def _give_back(consumer: PollsBatches, batches: Iterable[BatchToRead]) -> None:
    assigned = consumer.assignment() if batches else set()
    firsts: dict[TopicPartition, int] = {}
    for partition, _, from_offset in batches:
        firsts.setdefault(partition, from_offset)
    for partition, offset in firsts.items():
        if partition in assigned:
            consumer.seek(partition, offset)


# ------------------------------------------------------------------------------------------------------------- sending


class SendsEncoded(Protocol):
    """The part of ``AsyncProducer`` that this module uses."""

    config: ProducerConfig

    @property
    def record_buffer(self) -> RecordBuffer: ...
    async def partitions_of(self, topic: str) -> list[PartitionInfo]: ...
    async def send_encoded(self, topic: str, encoded: EncodedBatch) -> ProducerBatch: ...


async def send_arrow(
    producer: SendsEncoded, topic: str, table: object, *, partition: int | None = None
) -> ArrowDelivery:
    """Buffers the rows of a table, whose columns ``arrow/writing.py`` describes. Waits for memory if necessary.

    :param partition: the partition of all rows. Without it, the key or a column decides.
    :raises ValueError: if the table has other columns or types. Then nothing is sent.
    :raises RecordTooLarge: if a row is larger than ``max.request.size``. Then nothing is sent.
    :raises HeadraceError: as ``send`` does. Rows that were buffered before are sent nevertheless.
    """
    partitions = await producer.partitions_of(topic)
    config, options = producer.config, producer.record_buffer.accumulator.options

    def look() -> TableEncoder:
        available = [one.partition for one in partitions if one.leader_id >= 0]
        return TableEncoder(
            table,
            partition_count=len(partitions),
            available=available,
            batch_size_bytes=_batch_bytes(config),
            now_ms=int(time() * 1000),
            partition=partition,
            run_turn=randrange(len(available) or 1),
            step_bytes=min(_STEP_BYTES, config.buffer_memory // 4),
            codec=options.codec,
            compression_level=options.compression_level,
        )

    encoder = await _worked(getattr(table, "nbytes", _LONG_BYTES), look)
    if encoder.largest_row_bytes > config.max_request_size:
        raise RecordTooLarge(
            message=f"a row of {encoder.largest_row_bytes} bytes for {topic} is larger than max.request.size, which is "
            f"{config.max_request_size}; raise it, and the topic's max.message.bytes if necessary"
        )
    batches: list[ProducerBatch] = []
    most_ahead_bytes = _AHEAD_BYTES * len({one.leader_id for one in partitions})
    ahead_bytes, first_ahead = 0, 0
    async for encoded in _ahead(encoder):
        for one in encoded:
            batches.append(await producer.send_encoded(topic, one))
            ahead_bytes += batches[-1].limit_bytes
            while ahead_bytes > most_ahead_bytes:
                await _all_settled(batches[first_ahead : first_ahead + 1])
                ahead_bytes -= batches[first_ahead].limit_bytes
                first_ahead += 1
    return ArrowDelivery(topic, batches)


def _batch_bytes(config: ProducerConfig) -> int:
    return min(max(config.batch_size, _BATCH_BYTES), config.max_request_size, config.buffer_memory // 4)


async def _ahead(encoder: TableEncoder) -> AsyncIterator[list[EncodedBatch]]:
    """Encodes the table in steps. The next step is encoded while the last one is sent."""
    steps = list(encoder.steps())
    if len(steps) == 1:
        yield await _worked(encoder.size_bytes, partial(encoder.encode, *steps[0]))
        return
    loop = asyncio.get_running_loop()
    following: asyncio.Future[list[EncodedBatch]] | None = None
    for number in range(len(steps)):
        encoded = await (following or loop.run_in_executor(None, encoder.encode, *steps[number]))
        following = None
        if number + 1 < len(steps):
            following = loop.run_in_executor(None, encoder.encode, *steps[number + 1])
        yield encoded


class PartitionSummary(NamedTuple):
    """The rows of a table in one partition. Other records may be in between. With ``acks=0``, offsets are -1."""

    first_offset: int
    last_offset: int
    record_count: int


class ArrowSummary(NamedTuple):
    """The offsets of a table's rows, by partition."""

    topic: str
    partitions: dict[int, PartitionSummary]

    @property
    def record_count(self) -> int:
        return sum(one.record_count for one in self.partitions.values())


class ArrowDelivery:
    """The result of sending a table. Awaiting it returns the offsets, once all rows are acknowledged.

    :raises HeadraceError: when awaited, if a row could not be delivered. It is the first error that occurred.
    """

    def __init__(self, topic: str, batches: list[ProducerBatch]) -> None:
        self._topic = topic
        self._batches = batches

    def __await__(self) -> Generator[object, None, ArrowSummary]:
        return self.summary().__await__()

    def done(self) -> bool:
        """Whether all rows are acknowledged, or have failed."""
        return all(batch.is_settled for batch in _leaves(self._batches))

    def batch_offsets(self) -> dict[int, list[tuple[int, int]]]:
        """Returns first offset and number of records of each batch, by partition. Await the delivery before."""
        found: dict[int, list[tuple[int, int]]] = {}
        for leaf in _leaves(self._batches):
            found.setdefault(leaf.partition, []).append((leaf.base_offset, leaf.record_count))
        return found

    async def summary(self) -> ArrowSummary:
        await _all_settled(self._batches)
        partitions: dict[int, PartitionSummary] = {}
        for leaf in _leaves(self._batches):
            if leaf.error is not None:
                raise leaf.error.with_traceback(None)
            first, count = leaf.base_offset, leaf.record_count
            last = first + count - 1 if first >= 0 else first
            before = partitions.get(leaf.partition)
            if before is None:
                partitions[leaf.partition] = PartitionSummary(first, last, count)
            else:
                partitions[leaf.partition] = PartitionSummary(
                    min(before.first_offset, first), max(before.last_offset, last), before.record_count + count
                )
        return ArrowSummary(self._topic, partitions)


class BlockingArrowDelivery:
    """The result of sending a table with the blocking producer."""

    def __init__(self, delivery: ArrowDelivery, run: Callable[[Coroutine[Any, Any, ArrowSummary], float | None], Any]):
        self._delivery = delivery
        self._run = run

    def done(self) -> bool:
        """Whether all rows are acknowledged, or have failed."""
        return self._delivery.done()

    def result(self, timeout: float | None = None) -> ArrowSummary:
        """Waits until all rows are acknowledged, and returns their offsets.

        :param timeout: in seconds. Without a timeout, ``delivery.timeout.ms`` ends the wait.
        :raises KafkaTimeout: if the timeout passes first. The producer still tries to deliver the rows.
        :raises HeadraceError: if a row could not be delivered.
        """
        summary: ArrowSummary = self._run(self._delivery.summary(), timeout)
        return summary


async def _all_settled(batches: Sequence[ProducerBatch]) -> None:
    while waiting := [leaf for leaf in _leaves(batches) if not leaf.is_settled]:
        await _settled(waiting[-1])


async def _settled(batch: ProducerBatch) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    batch.listeners.append(partial(_end, future))
    if not batch.is_settled:  # Otherwise the listener may never be called.
        await future


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _leaves(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Returns the batches, or the parts that they were split into."""
    found: list[ProducerBatch] = []
    for batch in batches:
        found += _leaves(part for _, part in batch.parts) if batch.parts else [batch]
    return found
