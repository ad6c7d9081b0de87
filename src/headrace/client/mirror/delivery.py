"""Writes records and positions to the target: in one transaction, or one after the other.

The positions are committed offsets of the mirror's own group at the target. They have the names of the target's
partitions, and the offset of the next record to read at the source. A transaction commits records and positions
together. Without a transaction, records are written first. Then the records of the last round may be duplicated after a
crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.types import OffsetAndMetadata, TopicPartition

Positions = Mapping[TopicPartition, OffsetAndMetadata]


class Delivery(Protocol):
    """Writes rounds of records to the target."""

    async def init(self) -> None:
        """Fences an earlier instance of this mirror, if transactions are used."""

    async def begin(self) -> None: ...

    async def commit(self, positions: Positions) -> None:
        """Commits the records that were sent since :meth:`begin`, and the positions behind them."""

    async def abort(self) -> None: ...


class ExactlyOnce:
    """Writes each round in one transaction."""

    def __init__(self, producer: AsyncProducer, group: str) -> None:
        self._producer = producer
        self._group = group

    async def init(self) -> None:
        await self._producer.init_transactions()

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def commit(self, positions: Positions) -> None:
        await self._producer.send_offsets_to_transaction(positions, self._group)
        await self._producer.commit_transaction()

    async def abort(self) -> None:
        await self._producer.abort_transaction()


class AtLeastOnce:
    """Writes the records of a round first, and its positions then."""

    def __init__(self, producer: AsyncProducer, admin: AsyncAdmin, group: str) -> None:
        self._producer = producer
        self._admin = admin
        self._group = group

    async def init(self) -> None:
        pass

    async def begin(self) -> None:
        pass

    async def commit(self, positions: Positions) -> None:
        await self._producer.flush()
        (await self._admin.alter_group_offsets(self._group, positions)).all()

    async def abort(self) -> None:
        pass
