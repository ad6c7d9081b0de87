"""The clients of a simulated cluster: producers, a transactional producer and a reader, configured to lose nothing.

They are Headrace's own clients. A client that fails with a fatal error is replaced by a new one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any

from headrace import AsyncConsumer, AsyncProducer, TopicPartition
from headrace.client.errors import HeadraceError
from headrace.testing.simulator.cluster import SimulatedCluster
from headrace.testing.simulator.history import History, Partition, Transaction, Write

#: The timeouts of clients: longer than any fault lasts.
_PATIENCE_MS = 120_000
_LONGEST_PAUSE_S = 0.2


class Clients:
    def __init__(self, cluster: SimulatedCluster, history: History, partitions: list[Partition]) -> None:
        self._cluster = cluster
        self._history = history
        self._partitions = partitions
        self._random = cluster.random
        self.is_stopping = False

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(0, _LONGEST_PAUSE_S))

    def _new_producer(self, **options: Any) -> AsyncProducer:
        return AsyncProducer(
            clock=self._cluster.clock,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=5_000,
            max_block_ms=_PATIENCE_MS,
            delivery_timeout_ms=_PATIENCE_MS,
            **self._cluster.client_options,
            **options,
        )

    async def _send(self, producer: AsyncProducer, partition: Partition, write: Write) -> asyncio.Future[None]:
        delivery = await producer.send(
            partition[0], write.to_bytes(), partition=partition[1], timestamp_ms=self._cluster.clock.wall_ms()
        )

        async def delivered() -> None:
            with suppress(HeadraceError):  # an unacknowledged record may be stored or not
                metadata = await delivery
                self._history.acknowledged.append((partition, metadata.offset, write))

        return asyncio.ensure_future(delivered())

    async def produce(self, name: str) -> None:
        """Sends one record after the other to random partitions, with short pauses."""
        numbers = count()
        incarnation = 0
        while not self.is_stopping:
            incarnation += 1
            pending: list[asyncio.Future[None]] = []
            try:
                async with self._new_producer() as producer:
                    while not self.is_stopping:
                        partition = self._random.choice(self._partitions)
                        # Records of a replaced producer may be stored late: its successor has another name.
                        write = Write(f"{name}.{incarnation}", next(numbers))
                        pending.append(await self._send(producer, partition, write))
                        await self._pause()
                    await producer.flush()
            except HeadraceError as error:
                self._history.note(self._cluster.loop.time(), f"{name} is replaced after: {error}")
            if pending:
                await asyncio.wait(pending)

    async def produce_transactions(self, name: str) -> None:
        """Runs one transaction after the other under one transactional id."""
        numbers = count()
        while not self.is_stopping:
            try:
                async with self._new_producer(transactional_id=name, transaction_timeout_ms=10_000) as producer:
                    await producer.init_transactions()
                    while not self.is_stopping:
                        await self._one_transaction(producer, name, numbers)
            except HeadraceError as error:
                self._history.note(self._cluster.loop.time(), f"{name} is replaced after: {error}")

    async def _one_transaction(self, producer: AsyncProducer, name: str, numbers: count[int]) -> None:
        transaction = Transaction()
        await producer.begin_transaction()
        self._history.transactions.append(transaction)
        for _ in range(self._random.randint(1, 4)):
            partition, write = self._random.choice(self._partitions), Write(name, next(numbers))
            transaction.writes.append((partition, write))
            await producer.send(
                partition[0], write.to_bytes(), partition=partition[1], timestamp_ms=self._cluster.clock.wall_ms()
            )
            await self._pause()
        if self._random.random() < 0.75:
            await producer.commit_transaction()
            transaction.is_committed = True
        else:
            await producer.abort_transaction()
            transaction.is_committed = False

    async def read(self, name: str) -> None:
        """Reads all partitions from their beginning with ``read_committed``, until it is cancelled."""
        consumer = AsyncConsumer(
            clock=self._cluster.clock,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=5_000,
            **self._cluster.client_options,
        )
        consumer.assign([TopicPartition(*partition) for partition in self._partitions])
        async with consumer:
            while True:
                for record in await consumer.poll(200):
                    assert record.value is not None
                    seen = self._history.consumed.setdefault((name, (record.topic, record.partition)), [])
                    seen.append((record.offset, Write.from_bytes(record.value)))
