import uuid

import pytest
from places import LocalPlace, RemotePlace, ServedPlace


@pytest.fixture
async def local_place():
    return LocalPlace()


@pytest.fixture
async def served_place():
    place = ServedPlace("/kafka/here")
    await place.start()
    yield place
    await place.close()


@pytest.fixture
async def real_place(zookeeper):
    place = RemotePlace(zookeeper.address, f"/tests/{uuid.uuid4().hex}")
    yield place
    await place.close()


@pytest.fixture(params=["local", "served", "real"])
def place(request):
    """Where the tree is."""
    return request.getfixturevalue(f"{request.param}_place")


@pytest.fixture(params=["served", "real"])
def remote(request):
    """Where the tree is, if that is not in this process."""
    return request.getfixturevalue(f"{request.param}_place")
