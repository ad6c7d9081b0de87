"""Runs one broker with the code paths of a cluster; the test decides what the internal topics' followers do.

``harness.hold()``: records written from now on stay uncommitted; ``harness.release()`` commits them.
``harness.lose()`` makes another broker the leader of all partitions of the internal topics. ``harness.regain()`` makes
this broker the leader again in a later epoch, with a log that has lost its uncommitted records.
"""

import asyncio

from broker_harness import await_on_loop, on_loop

from headrace.broker.cluster.coordinator_placement import ClusterPlacement
from headrace.broker.cluster.markers import ClusterMarkers
from headrace.broker.cluster.participants import ClusterParticipants
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS
from headrace.protocol.errors import NotEnoughReplicas, NotLeaderOrFollower
from headrace.replication.partition import Partition

TOPICS = (GROUPS, TRANSACTIONS)


class HeldPartition(Partition):
    """Its high watermark moves when the test says."""

    __slots__ = ("has_too_few", "is_held")

    def __init__(self, log, leader_epoch):
        super().__init__(log, leader_epoch)
        self.is_held = self.has_too_few = False

    def append(self, records, origin):
        if not self.is_leader:
            raise NotLeaderOrFollower("not any more")
        appended = self.log.append(records, leader_epoch=self.leader_epoch, origin=origin)
        if not self.is_held:
            self.log.high_watermark = self.log.next_offset
        return appended

    def check_enough_replicas(self):
        if self.has_too_few:
            raise NotEnoughReplicas("there is only one")

    def is_acknowledged(self, end_offset):
        if not self.is_leader:
            raise NotLeaderOrFollower("not any more")
        return super().is_acknowledged(end_offset)


async def wait_until_loaded(service):
    """Waits until the coordinator has loaded all partitions."""
    if service._loader is not None:
        await asyncio.wait([service._loader])


class HeldPartitionsHarness:
    def __init__(self, broker, links=None):
        self.broker = broker
        self.core = broker.core
        self.partitions = []
        for topic in TOPICS:
            await_on_loop(broker, self.core.internal_topics.ensure(topic))
        self._call(self._join, links)
        self._wait_until_loaded()

    def _call(self, function, *arguments):
        return on_loop(self.broker, function, *arguments)

    def _wait_until_loaded(self):
        for service in (self.core.coordinators.groups, self.core.coordinators.transactions):
            await_on_loop(self.broker, wait_until_loaded(service))

    def _join(self, links):
        core = self.core
        tree, metadata, transactions = core.role.coordination, core.metadata, core.coordinators.transactions
        for service in (core.coordinators.groups, transactions):
            service.placement = ClusterPlacement(service.topic, tree, metadata, core.partitions, core.commit_waits)
        markers = ClusterMarkers(core.broker_id, metadata, tree, links, core.commit_waits, transactions.markers)
        transactions.participants = ClusterParticipants(
            core.broker_id, metadata, core.partitions, links, transactions, markers
        )
        for topic in TOPICS:
            for index in range(core.internal_topics.partition_count(topic)):
                partition = HeldPartition(core.logs.get(topic, index), 0)
                core.partitions.add(partition)
                self.partitions.append(partition)
        self._tell()

    def _tell(self):
        for partition in self.partitions:
            log = partition.log
            self.core.coordinators.leadership_changed(log.topic, log.partition, partition.is_leader)
            self.core.purgatories.produce.check_and_complete((log.topic, log.partition))

    def _set(self, **values):
        for partition in self.partitions:
            for name, value in values.items():
                setattr(partition, name, value)

    # -- what followers do

    def hold(self, *, has_too_few=False):
        self._call(lambda: self._set(is_held=True, has_too_few=has_too_few))

    def release(self):
        self._call(self._release)

    def _release(self):
        self._set(is_held=False, has_too_few=False)
        for partition in self.partitions:
            log = partition.log
            log.high_watermark = log.next_offset
            self.core.purgatories.produce.check_and_complete((log.topic, log.partition))

    def lose(self):
        self._call(self._lose)

    def _lose(self):
        for partition in self.partitions:
            partition.is_leader = False
            partition.leader_epoch += 1
        self._tell()

    def regain(self, *, waits=True):
        self._call(self._regain)
        if waits:
            self._wait_until_loaded()

    def _regain(self):
        for partition in self.partitions:
            partition.log.truncate_to(partition.log.high_watermark)
            partition.is_leader = True
            partition.leader_epoch += 1
        self._set(is_held=False)
        self._tell()

    def renew(self):
        """The same leader, in the next epoch."""
        self._call(self._renew)

    def _renew(self):
        for partition in self.partitions:
            partition.leader_epoch += 1
        self._tell()
