"""The deliveries that ``send`` returns. A delivery has the result of sending one record.

A delivery holds a batch and the index of the record in the batch, so it costs next to nothing. The broker answers for a
whole batch: a million records make a few thousand answers, and only callers that wait are woken. The records of a split
batch are in its parts; a delivery finds the part of its record.

:class:`Delivery` is for threads: ``delivery.result(timeout)``. :class:`AsyncDelivery` is for coroutines on the
producer's event loop: ``await delivery``.

There is no lock. A waiting caller first adds a listener to the batch and then checks whether the batch is settled. The
sender first marks the batch as settled and then takes the listeners. So at least one of the two sees the other.
"""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator
from functools import partial
from logging import getLogger
from typing import Self

from headrace.client.errors import KafkaTimeout
from headrace.client.producer.batch import NO_OFFSET, ProducerBatch
from headrace.client.types import RecordMetadata

logger = getLogger(__name__)

#: Called on the producer's event loop when a record is delivered or has failed. One of the two arguments is None.
OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]


class _Delivery:
    """The common part of both kinds of delivery."""

    __slots__ = ("_batch", "_index")

    #: Set by the code that makes a delivery. There is no __init__: it would double the cost of a delivery.
    _batch: ProducerBatch
    _index: int

    @classmethod
    def of(cls, batch: ProducerBatch, index: int) -> Self:
        delivery = cls()
        delivery._batch, delivery._index = batch, index
        return delivery

    def __repr__(self) -> str:
        state = "waiting" if not self.done() else "failed" if self.exception_now() is not None else "delivered"
        return f"<{type(self).__name__} of a record for {self._batch.topic}-{self._batch.partition}, {state}>"

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        """The partition that the record goes to."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether the record is delivered, or has failed."""
        return self._leaf()._batch.is_settled

    def exception_now(self) -> Exception | None:
        """Returns the error of a failed record; None if the record has not failed, or is not done."""
        batch = self._leaf()._batch
        return batch.error if batch.is_settled else None

    def _leaf(self) -> _Delivery:
        """Returns a delivery whose batch has the record now, after any splits."""
        found = self
        while parts := found._batch.parts:
            first, part = parts[bisect_right(parts, found._index, key=lambda part: part[0]) - 1]
            found = _Delivery.of(part, found._index - first)
        return found

    def _metadata(self) -> RecordMetadata:
        """Returns the record's metadata. The batch is settled and not split.

        :raises HeadraceError: if the record has failed.
        """
        batch = self._batch
        if batch.error is not None:
            raise batch.error.with_traceback(None)
        return metadata_of(batch, self._index)


def metadata_of(batch: ProducerBatch, index: int) -> RecordMetadata:
    """Returns the metadata of a record whose batch is delivered."""
    offset = NO_OFFSET if batch.base_offset < 0 else batch.base_offset + index
    timestamp_ms = batch.log_append_time_ms
    return RecordMetadata(
        batch.topic, batch.partition, offset, timestamp_ms if timestamp_ms >= 0 else batch.timestamp_ms_of(index)
    )


class Delivery(_Delivery):
    """The result of sending a record with the blocking producer."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is delivered.

        :param timeout: in seconds. Without a timeout, ``delivery.timeout.ms`` ends the wait.
        :raises KafkaTimeout: if the timeout passes first. The producer still tries to deliver the record.
        :raises HeadraceError: if the record could not be delivered.
        """
        leaf = self._leaf()
        while not leaf._batch.is_settled:
            settled = threading.Event()
            leaf._batch.listeners.append(settled.set)
            if leaf._batch.is_settled:
                settled.set()
            if not settled.wait(timeout):
                raise KafkaTimeout(
                    f"the record for {self.topic}-{self.partition} was not delivered within {timeout} s; "
                    "the producer still tries to deliver it"
                )
            leaf = leaf._leaf()
        return leaf._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits like :meth:`result`, and returns the error of a failed record; None if the record is delivered."""
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None


class AsyncDelivery(_Delivery):
    """The result of sending a record with the asyncio producer. It may be awaited several times."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        leaf = self._leaf()
        while not leaf._batch.is_settled:
            yield from asyncio.shield(_settled(leaf._batch)).__await__()
            leaf = leaf._leaf()
        return leaf._metadata()


def _settled(batch: ProducerBatch) -> asyncio.Future[None]:
    """Returns the one future that all callers use to wait for a batch."""
    future = batch.done_future
    if future is None:
        future = batch.done_future = asyncio.get_running_loop().create_future()
        batch.listeners.append(partial(_end, future))
    return future


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def call_back(batch: ProducerBatch) -> None:
    """Calls the listeners and callbacks of a settled batch. No lock is held, because a callback may send again."""
    listeners, batch.listeners = batch.listeners, []
    for listener in listeners:
        listener()
    callbacks, batch.callbacks = batch.callbacks, []
    for index, on_delivery in callbacks:
        assert callable(on_delivery)
        try:
            if batch.error is None:
                on_delivery(metadata_of(batch, index), None)
            else:
                on_delivery(None, batch.error)
        except Exception:
            logger.exception(
                "the on_delivery callback of a record for %s-%s raised an exception", batch.topic, batch.partition
            )
