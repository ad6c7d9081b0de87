"""Describes a partition to clients, for Metadata and DescribeTopicPartitions."""

from typing import Any

from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, PartitionInfo
from headrace.protocol.errors import ErrorCode


def describe_partition(metadata: MetadataCache, listener: str, index: int, info: PartitionInfo) -> dict[str, Any]:
    """Describes a partition to the clients of a listener.

    A leader that is not alive, or that has no such listener, is reported as no leader with an error code.
    """
    error, leader_id = ErrorCode.none, info.leader_id
    if not metadata.is_reachable(leader_id, listener):
        is_alive = leader_id in metadata.nodes
        error = ErrorCode.listener_not_found if is_alive else ErrorCode.leader_not_available
        leader_id = NO_LEADER
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader_id,
        "leader_epoch": info.leader_epoch,
        "replica_nodes": info.replicas,
        "isr_nodes": info.isr,
        "offline_replicas": [one for one in info.replicas if one in info.offline or one not in metadata.nodes],
    }
