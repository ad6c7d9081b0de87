"""Whole tables through the clients: what ``send_arrow`` and ``poll_arrow`` of producers and consumers do.

A table is encoded in steps on a worker thread, where the kernels release the interpreter lock, while the event loop
sends what came before; its batches then wait in the accumulator like all others, with sequences, retries and
transactions as they have them. Fetched batches are decoded on a worker thread likewise, while the next ones come in.

Small work is done in place: handing it to a thread would cost more.

Needs pyarrow and Numba (``pip install headrace[arrow]``); nothing of this is imported before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

try:
    import numba as _numba  # noqa: F401  so that what is missing is told in one place
    import pyarrow as pa  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError(f"Arrow tables need pyarrow and numba: pip install 'headrace[arrow]' ({error})") from error

from headrace.client.arrow_reading import ALL, Decoded, RecordRange, arrow_schema, batches_to_arrow, decode_batches
from headrace.client.arrow_writing import as_arrow_table, table_to_batches
from headrace.client.errors import error_for
from headrace.client.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from headrace.client.fetch_positions import BatchToRead
    from headrace.client.producer_batch import ProducerBatch

__all__ = [
    "ArrowDelivery",
    "ArrowSummary",
    "PartitionSummary",
    "RecordRange",
    "arrow_schema",
    "as_arrow_table",
    "batches_to_arrow",
    "poll_arrow",
    "table_to_batches",
]

T = TypeVar("T")
#: From so many bytes on, work goes to a thread.
_LONG_BYTES = 256 * 1024


async def _worked(size_bytes: int, work: Callable[[], T]) -> T:
    if size_bytes < _LONG_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)


# ------------------------------------------------------------------------------------------------------------- polling


class PollsBatches(Protocol):
    """As much of an AsyncConsumer as is needed here."""

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
    """The records of the next poll; no rows if the time is up first.

    What cannot be read, does not fit or was given up on the way has not been polled: the positions go back to it.

    :raises BrokerError: if the first batch cannot be read; seek past it to go on.
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


class PartitionSummary(NamedTuple):
    """What a partition has of a table. Other senders' records may lie between; offsets are -1 with ``acks=0``."""

    first_offset: int
    last_offset: int
    record_count: int


class ArrowSummary(NamedTuple):
    topic: str
    partitions: dict[int, PartitionSummary]

    @property
    def record_count(self) -> int:
        return sum(one.record_count for one in self.partitions.values())


class ArrowDelivery:
    """A table that is buffered. Awaited, it says where it went, once all of it is acknowledged.

    :raises HeadraceError: when awaited, if a part of it could not be delivered: the first error that there was.
    """

    def __init__(self, topic: str, batches: list[ProducerBatch]) -> None:
        self._topic = topic
        self._batches = batches

    def __await__(self) -> Generator[object, None, ArrowSummary]:
        return self._summary().__await__()

    def done(self) -> bool:
        return all(batch.is_settled for batch in _leaves(self._batches))

    async def _summary(self) -> ArrowSummary:
        while waiting := [leaf for leaf in _leaves(self._batches) if not leaf.is_settled]:
            await _settled(waiting[-1])
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


async def _settled(batch: ProducerBatch) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    batch.listeners.append(partial(_end, future))
    if not batch.is_settled:  # else it may be that nobody calls any more
        await future


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _leaves(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """The batches, or what they were split into."""
    found: list[ProducerBatch] = []
    for batch in batches:
        found += _leaves(part for _, part in batch.parts) if batch.parts else [batch]
    return found
