"""Chooses the brokers that hold each partition.

The replicas go round the brokers. Partition p starts at broker p. The followers come after the leader, with a shift
that grows by one per round. So the followers of one broker's partitions are spread over all other brokers.

With racks (``broker.rack``, KIP-36), the brokers are first put into an order in which the racks alternate, one broker
of each rack in turn. The shift is then a whole turn of racks. A follower on a rack that already has a replica is
skipped while another rack has none. So a partition has at most one replica per rack, or at least one per rack if there
are more replicas than racks. The replicas are spread as evenly as the racks are. Racks are ignored if some brokers have
none.

The caller gives the start (``start_index``, and ``start_shift`` for the followers). In a cluster the start is random,
so that small topics do not all use the first brokers. In tests the start is fixed. With the same start, Kafka 2.x and
3.x choose the same brokers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor


class PlacementOptions(NamedTuple):
    """The brokers that can hold partitions, their racks, and the start of the placement."""

    brokers: Sequence[int]
    racks: Mapping[int, str | None] = {}
    start_index: int = 0
    start_shift: int = 0


def place_replicas(
    count: int, replication_factor: int, options: PlacementOptions, *, first_partition: int = 0
) -> tuple[tuple[int, ...], ...]:
    """The brokers of each new partition, the leader first.

    :raises InvalidReplicationFactor: if the factor is not between 1 and the number of brokers.
    """
    brokers = options.brokers
    if replication_factor < 1:
        raise InvalidReplicationFactor(f"the replication factor must be at least 1, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"the replication factor {replication_factor} needs as many brokers, but only {len(brokers)} are alive"
        )
    rack_of = _known_racks(brokers, options.racks)
    ring = alternate_racks(rack_of) if rack_of else list(brokers)
    # Without racks each broker counts as a rack of its own, and the shift grows by one broker.
    turn = len(set(rack_of.values())) if rack_of else 1
    placed = []
    for partition in range(first_partition, first_partition + count):
        leader = (partition + options.start_index) % len(ring)
        shift = (options.start_shift + partition // len(ring)) * turn
        order = [ring[leader], *_followers(ring, leader, shift)]
        placed.append(_pick(order, replication_factor, rack_of))
    return tuple(placed)


def alternate_racks(rack_of: Mapping[int, str]) -> list[int]:
    """The brokers, one of each rack in turn. Racks are sorted by name, the brokers of a rack by id."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(rack_of):
        by_rack[rack_of[broker]].append(broker)
    turns = max((len(brokers) for brokers in by_rack.values()), default=0)
    return [by_rack[rack][turn] for turn in range(turns) for rack in sorted(by_rack) if turn < len(by_rack[rack])]


def start_for_more(first_leader: int, brokers: Sequence[int]) -> int:
    """The start index and shift for added partitions: the position of partition 0's first replica, as in Kafka.

    If that broker is gone, the position of the next broker.
    """
    ordered = sorted(brokers)
    return next((index for index, broker in enumerate(ordered) if broker >= first_leader), 0)


def check_assignment(
    assignment: Mapping[int, tuple[int, ...]], brokers: Sequence[int], *, replication_factor: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """
    :raises InvalidReplicaAssignment: if partitions are missing, a broker is unknown, a partition has a broker twice, or
        partitions have different replication factors.
    """
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidReplicaAssignment(f"partitions must be numbered from 0 without gaps, not {sorted(assignment)}")
    ordered = tuple(tuple(assignment[index]) for index in range(len(assignment)))
    size = replication_factor or len(ordered[0])
    for index, replicas in enumerate(ordered):
        if not replicas:
            raise InvalidReplicaAssignment(f"partition {index} has no broker assigned")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"partition {index} has a broker assigned twice: {list(replicas)}")
        if len(replicas) != size:
            raise InvalidReplicaAssignment(
                f"partition {index} has {len(replicas)} replicas, but the other partitions have {size}"
            )
        unknown = set(replicas) - set(brokers)
        if unknown:
            raise InvalidReplicaAssignment(f"partition {index} has unknown brokers assigned: {sorted(unknown)}")
    return ordered


def _known_racks(brokers: Sequence[int], racks: Mapping[int, str | None]) -> dict[int, str]:
    """The rack of each broker; empty if a broker has no rack."""
    known = {broker: rack for broker in brokers if (rack := racks.get(broker)) is not None}
    return known if len(known) == len(brokers) else {}


def _followers(ring: Sequence[int], leader: int, shift: int) -> list[int]:
    """All brokers except the leader, in the order in which they become followers."""
    others = len(ring) - 1
    return [ring[(leader + 1 + (shift + nth) % others) % len(ring)] for nth in range(others)]


def _pick(order: Sequence[int], size: int, rack_of: Mapping[int, str]) -> tuple[int, ...]:
    """The first brokers of an order; brokers on racks that have no replica yet come before the others."""
    if not rack_of:
        return tuple(order[:size])
    rack_count = len(set(rack_of.values()))
    picked: list[int] = []
    used: set[str] = set()
    # After the last broker, continue with the first follower.
    position = 0
    while len(picked) < size:
        broker = order[position]
        is_new_rack = rack_of[broker] not in used
        if broker not in picked and (is_new_rack or len(used) == rack_count):
            picked.append(broker)
            used.add(rack_of[broker])
        position = position + 1 if position + 1 < len(order) else 1
    return tuple(picked)
