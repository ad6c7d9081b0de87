import uuid

import pytest
from places import LocalPlace, RemotePlace, ServedPlace

from headrace.testing.zookeeper_process import ZookeeperMissing, ZookeeperProcess


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory):
    try:
        process = ZookeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    except ZookeeperMissing as error:
        pytest.skip(str(error))
    with process:
        yield process


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
async def real_place(real_zookeeper):
    place = RemotePlace(real_zookeeper.address, f"/tests/{uuid.uuid4().hex}")
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
