"""How records and positions get to the target: in a transaction, or one after the other.

The positions are offsets of the mirror's own group, committed at the target under the names of the target's
partitions, each with the offset of the next record to read at the source. With a transaction both are there or
neither is. Without, records come first: after a crash, those of the last round may be there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.client.admin.async_admin import AsyncAdmin
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.types import OffsetAndMetadata, TopicPartition

Positions = Mapping[TopicPartition, OffsetAndMetadata]


class Delivery(Protocol):
    async def init(self) -> None:
        """Whoever was this mirror before can do no more from now on, where that can be ensured."""

    async def begin(self) -> None: ...

    async def commit(self, positions: Positions) -> None:
        """All that was sent since :meth:`begin`, and the positions behind it."""

    async def abort(self) -> None: ...


class ExactlyOnce:
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
