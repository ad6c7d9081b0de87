"""Producer ids: taken from the znode tree in blocks of a thousand, so that no id is ever given out twice.

``/latest_producer_id_block`` holds the block that was taken last. Whoever wants the next one writes it there against
the version that he read. What is left of a block when a broker stops is lost, which costs nothing: there are 2**63.
"""

from contextlib import suppress

from headrace.coordination.interface import BadVersionError, Coordination
from headrace.coordination.paths import PRODUCER_ID_BLOCK, ProducerIdBlock

BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self, coordination: Coordination, broker_id: int) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._next = 0
        self._end = 0

    async def next(self) -> int:
        while self._next >= self._end:
            await self._take_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def begin_above(self, producer_id: int) -> None:
        """Ids up to this one are in use, although the tree does not say so."""
        while self._end <= producer_id:
            data, stat = await self._coordination.get(PRODUCER_ID_BLOCK)
            if data and ProducerIdBlock.from_json(data).last_producer_id >= producer_id:
                return
            first = producer_id - producer_id % BLOCK_SIZE
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            with suppress(BadVersionError):  # another broker was faster
                await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)

    async def _take_block(self) -> None:
        data, stat = await self._coordination.get(PRODUCER_ID_BLOCK)
        first = ProducerIdBlock.from_json(data).last_producer_id + 1 if data else 0
        block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
        try:
            await self._coordination.set(PRODUCER_ID_BLOCK, block.to_json(), version=stat.version)
        except BadVersionError:
            return  # another broker was faster: the caller tries again
        self._next, self._end = block.first_producer_id, block.last_producer_id + 1
