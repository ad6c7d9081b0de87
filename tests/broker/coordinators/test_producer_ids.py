"""Producer ids of brokers that share a tree."""

import asyncio

import pytest

from headrace.broker.coordinators.producer_ids import BLOCK_SIZE, ProducerIds
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import ConnectionLostError, SessionExpiredError
from headrace.coordination.paths import PRODUCER_ID_BLOCK
from headrace.coordination.tree.host import TreeHost
from headrace.coordination.znodes import ProducerIdBlock
from headrace.protocol.errors import CoordinatorLoadInProgress
from headrace.testing import ManualClock


class Slow(LocalCoordination):
    """Others get a turn before each answer, so that they read the same and write at once."""

    breaks_after_next_set = False

    async def get(self, path, *, watch=None):
        found = await super().get(path, watch=watch)
        await asyncio.sleep(0)
        return found

    async def set(self, path, data, *, version=-1):
        stat = await super().set(path, data, version=version)
        if self.breaks_after_next_set:
            self.breaks_after_next_set = False
            raise ConnectionLostError("the answer was lost")
        return stat


@pytest.fixture
def host():
    return TreeHost(ManualClock())


def of_broker(host, number):
    return ProducerIds(Slow(host), number)


async def test_two_brokers_never_give_the_same_id(host):
    brokers = [of_broker(host, number) for number in range(3)]

    async def take(ids):
        return [await ids.next() for _ in range(BLOCK_SIZE + 5)]

    taken = [number for each in await asyncio.gather(*map(take, brokers)) for number in each]
    assert len(set(taken)) == len(taken) == 3 * (BLOCK_SIZE + 5)


async def test_many_at_once_of_one_broker(host):
    ids = of_broker(host, 1)
    taken = await asyncio.gather(*(ids.next() for _ in range(50)))
    assert len(set(taken)) == 50


async def test_a_block_whose_answer_was_lost_is_not_used(host):
    ids = of_broker(host, 1)
    ids._coordination.breaks_after_next_set = True
    assert await ids.next() == BLOCK_SIZE
    data, _ = await ids._coordination.get(PRODUCER_ID_BLOCK)
    assert ProducerIdBlock.from_json(data) == ProducerIdBlock(1, BLOCK_SIZE, 2 * BLOCK_SIZE - 1)


async def test_no_session_no_id(host):
    ids = of_broker(host, 1)
    await ids._coordination.close()
    with pytest.raises(CoordinatorLoadInProgress) as raised:
        await ids.next()
    assert isinstance(raised.value.__cause__, SessionExpiredError)
