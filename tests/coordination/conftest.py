import uuid

import pytest
from tree_harness import LocalTreeHarness, RemoteTreeHarness, ServedTreeHarness


@pytest.fixture
async def local_harness():
    return LocalTreeHarness()


@pytest.fixture
async def served_harness():
    harness = ServedTreeHarness("/kafka/here")
    await harness.start()
    yield harness
    await harness.close()


@pytest.fixture
async def real_harness(zookeeper):
    harness = RemoteTreeHarness(zookeeper.address, f"/tests/{uuid.uuid4().hex}")
    yield harness
    await harness.close()


@pytest.fixture(params=["local", "served", "real"])
def harness(request):
    """Where the tree is."""
    return request.getfixturevalue(f"{request.param}_harness")


@pytest.fixture(params=["served", "real"])
def remote(request):
    """Where the tree is, if that is not in this process."""
    return request.getfixturevalue(f"{request.param}_harness")
