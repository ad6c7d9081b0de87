"""Producer ids: taken from the znode tree in blocks of a thousand, so that no id is ever given out twice.

``/latest_producer_id_block`` holds the block that was taken last. Whoever wants the next one writes it there against
the version that he read; if that was not the last one any more, or the answer is lost, the next block is asked for.
What is left of a block when a broker stops is lost, which costs nothing: there are 2**63.
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
        :raises CoordinatorLoadInProgress: if the tree is not to be reached now: a client then asks again.
        """
        while self._next >= self._end:
            try:
                await self._take_block()
            except CoordinationError as error:
                raise CoordinatorLoadInProgress(f"there is no new producer id to be had: {error}") from error
        producer_id = self._next
        self._next += 1
        return producer_id

    async def begin_above(self, producer_id: int) -> None:
        """Ids up to this one are in use, although the tree does not say so."""
        while self._end <= producer_id:
            data, stat = await self._read()
            if data and ProducerIdBlock.from_json(data).last_producer_id >= producer_id:
                return
            first = producer_id - producer_id % BLOCK_SIZE
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            with suppress(BadVersionError):  # another broker was faster
                await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)

    async def _take_block(self) -> None:
        data, stat = await self._read()
        first = ProducerIdBlock.from_json(data).last_producer_id + 1 if data else 0
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)
        except (BadVersionError, ConnectionLostError):
            return  # another broker was faster, or nobody knows: the caller tries again
        self._next, self._end = block.first_producer_id, block.last_producer_id + 1

    async def _read(self) -> tuple[bytes, Stat]:
        while True:
            with suppress(NoNodeError):
                return await self._coordination.get(PRODUCER_ID_BLOCK)
            with suppress(NodeExistsError):
                await self._coordination.create(PRODUCER_ID_BLOCK)
