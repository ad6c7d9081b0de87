import pytest
from broker_harness import OTHER_KAFKA, Client
from peer_harness import Peer

from headrace import Broker


@pytest.fixture(scope="session")
def shared_broker():
    """One broker for all tests that leave its settings alone and use topics of their own."""
    if OTHER_KAFKA:
        pytest.skip("needs our own broker")
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as broker:  # nobody waits for more members
        yield broker


@pytest.fixture(scope="session")
def address(request):
    return OTHER_KAFKA or request.getfixturevalue("shared_broker").bootstrap_servers


@pytest.fixture
def client(address):
    with Client(address) as made:
        yield made


@pytest.fixture
def topic(client):
    return client.create_topic()


@pytest.fixture
def ours():
    """For tests of what differs from Apache Kafka, or is not the protocol's."""
    if OTHER_KAFKA:
        pytest.skip("not how Apache Kafka does it")


@pytest.fixture
async def peer():
    """A broker that answers as it is told to."""
    peer = await Peer().listen()
    yield peer
    await peer.close()
