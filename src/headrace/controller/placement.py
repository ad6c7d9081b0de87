"""Which brokers hold which partition.

Replicas go round the brokers: partition p begins at broker p, and its followers come after the leader with a shift that
grows by one each time round, so that the followers of one broker's partitions are spread over all the others.
"""

from collections.abc import Mapping, Sequence

from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def place_replicas(
    count: int, replication_factor: int, brokers: Sequence[int], *, first_partition: int = 0
) -> tuple[tuple[int, ...], ...]:
    """
    :raises InvalidReplicationFactor: if it is not between 1 and the number of brokers.
    """
    if replication_factor < 1:
        raise InvalidReplicationFactor(f"the replication factor is at least 1, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"a replication factor of {replication_factor} needs as many brokers, and {len(brokers)} are alive"
        )
    placed = []
    for partition in range(first_partition, first_partition + count):
        leader, shift = partition % len(brokers), 1 + partition // len(brokers)
        others = len(brokers) - 1
        followers = [
            brokers[(leader + 1 + (shift - 1 + nth) % others) % len(brokers)] for nth in range(replication_factor - 1)
        ]
        placed.append((brokers[leader], *followers))
    return tuple(placed)


def check_assignment(
    assignment: Mapping[int, tuple[int, ...]], brokers: Sequence[int], *, replication_factor: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """
    :raises InvalidReplicaAssignment: if partitions are missing, a broker is unknown or twice in one, or sizes differ.
    """
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignment(f"partitions must be numbered from 0 without a gap, not {sorted(assignment)}")
    ordered = tuple(tuple(assignment[index]) for index in range(len(assignment)))
    size = replication_factor or len(ordered[0])
    for index, replicas in enumerate(ordered):
        if not replicas:
            raise InvalidReplicaAssignment(f"partition {index} is assigned to no broker")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {index} is assigned twice to a broker: {list(replicas)}")
        if len(replicas) != size:
            raise InvalidReplicaAssignment(f"partition {index} has {len(replicas)} replicas, others have {size}")
        unknown = set(replicas) - set(brokers)
        if unknown:
            raise InvalidReplicaAssignment(f"partition {index} is assigned to unknown brokers: {sorted(unknown)}")
    return ordered
