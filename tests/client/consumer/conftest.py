from collections.abc import AsyncIterator, Iterator

import pytest
from reader_harness import BROKER_CONFIG, OTHER_KAFKA, ReaderHarness

from headrace import Broker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    if OTHER_KAFKA is not None:
        yield OTHER_KAFKA
        return
    with Broker(config=BROKER_CONFIG) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def harness(servers: str) -> AsyncIterator[ReaderHarness]:
    made = ReaderHarness(servers)
    yield made
    await made.close()
