"""Selects the replica that a consumer reads from (KIP-392): an in-sync replica in its rack, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.replication.partition import Partition

if TYPE_CHECKING:
    from headrace.broker.metadata_cache import MetadataCache


def nearest_replica(metadata: MetadataCache, partition: Partition, offset: int, rack: str) -> int | None:
    """Returns the id of the follower in the rack with the most records, or None to read from the leader.

    Only in-sync replicas that have the offset are selected. A follower that is behind may not have the offset for a
    long time, and the leader would send the consumer there again and again.
    """
    from headrace.replication.replicated_partition import ReplicatedPartition  # a lone broker never imports it

    if not isinstance(partition, ReplicatedPartition) or partition.leader is None:
        return None
    nodes, found = metadata.nodes, list[tuple[int, int]]()
    for replica_id in partition.leader.isr:
        remote, node = partition.leader.remote(replica_id), nodes.get(replica_id)
        if remote is None or node is None or node.rack != rack:
            continue
        if remote.log_start_offset <= offset <= remote.next_offset:
            found.append((remote.next_offset, replica_id))
    return max(found)[1] if found else None
