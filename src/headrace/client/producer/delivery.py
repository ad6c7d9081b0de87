"""What ``send`` gives back: a way to learn what became of a record, which costs next to nothing until it is asked.

A delivery is a batch and a place in it. The batch is answered as a whole, so a million records make a few thousand
answers, and nobody is woken who does not wait. A batch that had to be split has parts; a delivery finds its own.

:class:`Delivery` is for threads: ``delivery.result(timeout)``. :class:`AsyncDelivery` is for coroutines of the
producer's event loop: ``await delivery``.

There is no lock. Who waits leaves a listener with the batch and only then looks whether the batch is settled; the
sender marks it settled and only then takes the listeners: so one of the two sees the other.
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

#: Called once a record is delivered, or has failed: one of the two is None. On the producer's event loop.
OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]


class _Delivery:
    __slots__ = ("_batch", "_index")

    #: Set by who makes one. There is no __init__: it would double what a delivery costs.
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
        """Where the record goes."""
        return self._batch.partition

    def done(self) -> bool:
        """Whether the record is delivered, or has failed."""
        return self._leaf()._batch.is_settled

    def exception_now(self) -> Exception | None:
        """Why it failed; None if it did not, or is not done."""
        batch = self._leaf()._batch
        return batch.error if batch.is_settled else None

    def _leaf(self) -> _Delivery:
        """This record where it is now, after any splits."""
        found = self
        while parts := found._batch.parts:
            first, part = parts[bisect_right(parts, found._index, key=lambda part: part[0]) - 1]
            found = _Delivery.of(part, found._index - first)
        return found

    def _metadata(self) -> RecordMetadata:
        """Of a settled leaf.

        :raises HeadraceError: if the record has failed.
        """
        batch = self._batch
        if batch.error is not None:
            raise batch.error.with_traceback(None)
        return metadata_of(batch, self._index)


def metadata_of(batch: ProducerBatch, index: int) -> RecordMetadata:
    """Of a record whose batch is delivered."""
    offset = NO_OFFSET if batch.base_offset < 0 else batch.base_offset + index
    timestamp_ms = batch.log_append_time_ms
    return RecordMetadata(
        batch.topic, batch.partition, offset, timestamp_ms if timestamp_ms >= 0 else batch.timestamp_ms_of(index)
    )


class Delivery(_Delivery):
    """Of the blocking producer."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the record is delivered.

        :param timeout: in seconds; without one, ``delivery.timeout.ms`` ends the wait.
        :raises KafkaTimeout: if the time is up first; the record is still on its way then.
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
                    "it is still being tried"
                )
            leaf = leaf._leaf()
        return leaf._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits as :meth:`result` does, and returns why the record failed."""
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise
            return error
        return None


class AsyncDelivery(_Delivery):
    """Of the asyncio producer. It may be awaited as often as one likes."""

    __slots__ = ()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        leaf = self._leaf()
        while not leaf._batch.is_settled:
            yield from asyncio.shield(_settled(leaf._batch)).__await__()
            leaf = leaf._leaf()
        return leaf._metadata()


def _settled(batch: ProducerBatch) -> asyncio.Future[None]:
    """One future for all who wait for a batch."""
    future = batch.done_future
    if future is None:
        future = batch.done_future = asyncio.get_running_loop().create_future()
        batch.listeners.append(partial(_end, future))
    return future


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def tell(batch: ProducerBatch) -> None:
    """Tells all who wait for a batch. It is settled, and no lock is held: who is called may send again."""
    listeners, batch.listeners = batch.listeners, []
    for listener in listeners:
        listener()
    slots, batch.slots = batch.slots, []
    for index, on_delivery in slots:
        assert callable(on_delivery)
        try:
            if batch.error is None:
                on_delivery(metadata_of(batch, index), None)
            else:
                on_delivery(None, batch.error)
        except Exception:
            logger.exception("on_delivery of a record for %s-%s failed", batch.topic, batch.partition)
