"""Which replica a consumer is to read from (KIP-392): one in its own rack, if there is one that has what it wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.replication.partition import Partition

if TYPE_CHECKING:
    from headrace.broker.metadata_cache import MetadataCache


def nearest_replica(metadata: MetadataCache, partition: Partition, offset: int, rack: str) -> int | None:
    """None: the one that was asked. Of several followers in the rack, the one that is furthest.

    Only of those in sync: one that is behind may stay so, and its reader would be sent there again and again.
    """
    from headrace.replication.replicated_partition import ReplicatedPartition  # a broker alone does without

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
