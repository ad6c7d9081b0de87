from collections.abc import AsyncIterator, Iterator

import pytest
from readerbed import BROKER_CONFIG, OTHER_KAFKA, Bed

from headrace import Broker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    if OTHER_KAFKA is not None:
        yield OTHER_KAFKA
        return
    with Broker(config=BROKER_CONFIG) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def bed(servers: str) -> AsyncIterator[Bed]:
    made = Bed(servers)
    yield made
    await made.close()
