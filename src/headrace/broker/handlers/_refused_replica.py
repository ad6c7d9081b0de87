"""Refuses the Fetch of a broker that has no replica here: a lone broker has no followers.

As in Kafka, such a broker needs CLUSTER_ACTION and no right to read. It learns which partitions exist, and gets no
records (CVE-2018-1288: the fetch of a client that said it is a replica moved the high watermark).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.protocol.errors import NotLeaderOrFollower, UnknownLeaderEpoch

if TYPE_CHECKING:
    from headrace.replication.partition import Partition
    from headrace.replication.partitions import Partitions


def refused_replica(partitions: Partitions, replica_id: int) -> Callable[[str, int, int], Partition]:
    """Returns a function that finds a partition for the replica, and always raises an error."""

    def find(name: str, index: int, leader_epoch: int) -> Partition:
        partitions.leader(name, index, leader_epoch)
        text = f"broker {replica_id} has no replica of {name}-{index}"
        raise UnknownLeaderEpoch(text) if leader_epoch >= 0 else NotLeaderOrFollower(text)

    return find
