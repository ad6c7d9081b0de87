"""Gives out producer ids, from blocks of a thousand that are reserved in the znode tree. No id is given out twice.

``/latest_producer_id_block`` holds the last reserved block. A broker reserves the next block by a write that names the
version it has read. If another broker was faster, or the answer is lost, the broker reads again and reserves a later
block. The rest of a block is lost when a broker stops. That does not matter: there are 2**63 ids.
"""

from contextlib import suppress

from headrace.coordination.interface import (
    BadVersionError,
    ConnectionLostError,
    Coordination,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    Stat,
)
from headrace.coordination.paths import PRODUCER_ID_BLOCK
from headrace.coordination.znodes import ProducerIdBlock
from headrace.protocol.errors import CoordinatorLoadInProgress

BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self, coordination: Coordination, broker_id: int) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._next = 0
        self._end = 0

    async def next(self) -> int:
        """
        :raises CoordinatorLoadInProgress: if the tree does not answer now: a client then asks again.
        """
        while self._next >= self._end:
            try:
                await self._reserve_block()
            except CoordinationError as error:
                raise CoordinatorLoadInProgress(f"no producer ids can be reserved in the tree now: {error}") from error
        producer_id = self._next
        self._next += 1
        return producer_id

    async def begin_above(self, producer_id: int) -> None:
        """Makes sure that all new ids are above this one, which is in use although the tree does not say so."""
        while self._end <= producer_id:
            data, stat = await self._read()
            if data and ProducerIdBlock.from_json(data).last_producer_id >= producer_id:
                return
            first = producer_id - producer_id % BLOCK_SIZE
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            with suppress(BadVersionError):  # another broker was faster
                await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)

    async def _reserve_block(self) -> None:
        data, stat = await self._read()
        first = ProducerIdBlock.from_json(data).last_producer_id + 1 if data else 0
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)
        except (BadVersionError, ConnectionLostError):
            return  # another broker was faster, or the answer is lost: the caller tries again
        self._next, self._end = block.first_producer_id, block.last_producer_id + 1

    async def _read(self) -> tuple[bytes, Stat]:
        while True:
            with suppress(NoNodeError):
                return await self._coordination.get(PRODUCER_ID_BLOCK)
            with suppress(NodeExistsError):
                await self._coordination.create(PRODUCER_ID_BLOCK)
