"""Reads the topic of schemas into the state, and writes records to it as its only writer.

A task applies each record when its transaction is committed. A leader writes in transactions of one transactional id,
which all registries of a group share: a registry that becomes leader takes the id over, and from then on the broker
rejects every write of an earlier leader. Then the new leader writes a NOOP record, and reads up to it. So a leader
decides on a state that has everything, and no two leaders can give out the same id, also if one of them was paused for
long and does not know that it was replaced.

If a write fails, it is unknown whether the brokers have it. The leader then takes the transactional id over again,
which settles the question, before it writes anything else. A crash of the leader leaves at most one open transaction,
which the next leader aborts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from logging import getLogger

from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.errors import HeadraceError, ProducerFenced
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.types import TopicPartition
from headrace.registry.changes import noop
from headrace.registry.errors import RegistryError, no_leader, store_failed, timed_out
from headrace.registry.records import Record
from headrace.registry.state import RegistryState

logger = getLogger(__name__)

WRITE_SECONDS = 10.0
CATCH_UP_SECONDS = 3.0
_RETRY_SECONDS = 0.5
_POLL_MS = 1_000
_CONSUMER = {
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}
_WRITE_MS = int(WRITE_SECONDS * 1000)
_PRODUCER = {"linger.ms": 0, "max.request.size": 16 << 20, "delivery.timeout.ms": _WRITE_MS, "max.block.ms": _WRITE_MS,
             "request.timeout.ms": _WRITE_MS // 2, "transaction.timeout.ms": 30_000}  # fmt: skip


class TopicJournal:
    """The topic of schemas, as one registry reads and writes it."""

    def __init__(
        self,
        state: RegistryState,
        topic: str,
        group: str,
        consumer_options: Mapping[str, object],
        producer_options: Mapping[str, object],
    ) -> None:
        self._state = state
        self._partition = TopicPartition(topic, 0)
        self._consumer = AsyncConsumer(config={**consumer_options, **_CONSUMER})
        self._producer_options = {**producer_options, **_PRODUCER, "transactional.id": f"headrace-registry-{group}"}
        self._producer: AsyncProducer | None = None
        self._applied_offset = 0
        self._applied = asyncio.Condition()
        self._reading: asyncio.Task[None] | None = None
        self._is_leading = False

    async def start(self) -> None:
        """Reads everything that the topic has.

        :raises HeadraceError: if the brokers do not answer.
        """
        self._consumer.assign([self._partition])
        self._consumer.seek_to_beginning(self._partition)
        end = (await self._consumer.end_offsets(self._partition))[self._partition]
        self._reading = asyncio.create_task(self._read())
        async with self._applied:
            await self._applied.wait_for(lambda: self._applied_offset >= end)

    @property
    def reading(self) -> asyncio.Task[None]:
        """The task that reads the topic. It runs until the journal is closed."""
        assert self._reading is not None
        return self._reading

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._drop_producer()
        with suppress(HeadraceError):
            await self._consumer.close()

    # -- reading

    async def _read(self) -> None:
        while True:
            try:
                for record in await self._consumer.poll(_POLL_MS):
                    self._state.apply(record.key, record.value)
                offset = await self._consumer.position(self._partition)
            except HeadraceError as error:
                logger.warning("the topic %s cannot be read, and is tried again: %s", self._partition.topic, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if offset != self._applied_offset:
                async with self._applied:
                    self._applied_offset = offset
                    self._applied.notify_all()

    async def catch_up(self) -> None:
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                end = (await self._consumer.end_offsets(self._partition))[self._partition]
                await self._until(end)
        except TimeoutError:
            raise store_failed(f"the brokers did not answer within {CATCH_UP_SECONDS:.0f} s") from None
        except HeadraceError as error:
            raise store_failed(str(error)) from None

    async def _until(self, offset: int) -> None:
        async with self._applied:
            await self._applied.wait_for(lambda: self._applied_offset >= offset)

    # -- writing

    async def lead(self) -> None:
        """Makes this registry the only writer.

        :raises RegistryError: if the brokers do not allow it in time.
        """
        self._is_leading = True
        await self._take_over()

    async def resign(self) -> None:
        self._is_leading = False
        await self._drop_producer()

    async def ensure_writer(self) -> None:
        if not self._is_leading:
            raise no_leader("this registry is not the leader any more; try again")
        if self._producer is None:
            await self._take_over()

    async def write(self, records: tuple[Record, ...]) -> None:
        # No take-over here: the records were decided on a state that may lack those of another leader.
        if self._producer is None:
            raise no_leader("this registry is not the leader any more; try again")
        await self._write(records)

    async def _take_over(self) -> None:
        await self._drop_producer()
        producer = AsyncProducer(config=self._producer_options)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await producer.start()
                self._producer = producer
                await producer.init_transactions()
        except (HeadraceError, TimeoutError) as error:
            self._producer = producer
            await self._drop_producer()
            raise timed_out(
                f"the registry could not become the writer of the topic: {str(error) or 'no answer'}"
            ) from None
        # All records of earlier leaders are before this record.
        await self._write((noop(self._state),), is_first=True)

    async def _write(self, records: tuple[Record, ...], *, is_first: bool = False) -> None:
        producer = self._producer
        assert producer is not None
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await producer.begin_transaction()
                sent = [
                    await producer.send(self._partition.topic, value, key=key, partition=0) for key, value in records
                ]
                await producer.commit_transaction()
                last = max([(await each).offset for each in sent])
                await self._until(last + 1)
        except ProducerFenced:
            await self._drop_producer()
            raise no_leader("another registry has become the leader; try again") from None
        except TimeoutError:
            await self._drop_producer()
            raise timed_out(f"the brokers did not confirm the write within {WRITE_SECONDS:.0f} s") from None
        except HeadraceError as error:
            await self._drop_producer()
            raise store_failed(str(error)) from None
        if is_first:
            await self._write_grown_ids(records)

    async def _write_grown_ids(self, records: tuple[Record, ...]) -> None:
        """Writes the NOOP record again if ids were given out between its decision and its place in the topic."""
        if self._producer is not None and noop(self._state) != records[0]:
            await self._write((noop(self._state),))

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(HeadraceError, TimeoutError, RegistryError):
                await producer.close(0)
