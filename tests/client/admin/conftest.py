from collections.abc import AsyncIterator, Iterator

import pytest
from admin_harness import OTHER_KAFKA, unique

from headrace import AsyncAdmin, Broker
from headrace.testing.raw_client import RawClient


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    if OTHER_KAFKA is not None:
        yield OTHER_KAFKA
        return
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def admin(servers: str) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(bootstrap_servers=servers, default_api_timeout_ms=20_000) as made:
        yield made


@pytest.fixture
async def topic(admin: AsyncAdmin) -> str:
    """A topic of three partitions."""
    name = unique()
    await admin.create_topic(name, 3, 1)
    return name


@pytest.fixture
def client(servers: str) -> Iterator[RawClient]:
    with RawClient(servers) as made:
        yield made
