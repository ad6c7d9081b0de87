"""The controller's requests to a broker that has just started."""

import asyncio

import pytest
from cluster_member_harness import ClusterMemberHarness, led, live, update

from headrace.broker.cluster.control_requests import ClusterControlRequests
from headrace.coordination.tree.host import TreeHost
from headrace.protocol.errors import StaleBrokerEpoch
from headrace.testing import ManualClock


class Replicas:
    def __init__(self):
        self.calls = []

    async def become_leader_or_follower(self, request):
        self.calls.append(request)

    async def stop_replicas(self, request):
        self.calls.append(request)


@pytest.fixture
async def broker(tmp_path):
    clock = ManualClock()
    made = ClusterMemberHarness(TreeHost(clock), clock, tmp_path / "a", broker_id=1)
    await made.registration.identify()
    return made


def served(broker, replicas=None):
    return ClusterControlRequests(broker.registration, replicas or Replicas(), broker.updates, None)


async def test_metadata_for_a_killed_process_is_not_taken_for_that_of_its_successor(broker):
    """The controller repeats what the killed process has not answered: all brokers, and no topics."""
    requests = served(broker)
    outdated = update(brokers=[live(1, epoch=0), live(2)])._replace(broker_epoch=0)
    waiting = asyncio.create_task(requests.update_metadata(outdated))
    await asyncio.sleep(0)
    assert broker.metadata.nodes == {}
    await broker.registration.register()
    with pytest.raises(StaleBrokerEpoch):
        await waiting
    assert broker.metadata.nodes == {}
    await requests.update_metadata(
        update(led("t", 0, 2), brokers=[live(1), live(2)])._replace(broker_epoch=broker.registration.broker_epoch)
    )
    assert sorted(broker.metadata.nodes) == [1, 2]


async def test_replicas_wait_for_the_registration(broker):
    replicas = Replicas()
    requests = served(broker, replicas)
    waiting = [asyncio.create_task(requests.leader_and_isr("lead")), asyncio.create_task(requests.stop_replica("stop"))]
    await asyncio.sleep(0)
    assert replicas.calls == []
    await broker.registration.register()
    await asyncio.gather(*waiting)
    assert replicas.calls == ["lead", "stop"]
