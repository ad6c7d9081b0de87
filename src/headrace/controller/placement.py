"""Which brokers hold which partition.

Replicas go round the brokers: partition p begins at broker p, and its followers come after the leader with a shift that
grows by one each time round, so that the followers of one broker's partitions are spread over all the others.

With racks (``broker.rack``, KIP-36) the brokers are first put in an order in which racks alternate, one broker of each
in turn; the shift then is a whole turn of racks. A follower on a rack that already has a replica is passed over as long
as some rack has none. So a partition has at most one replica a rack or, with more replicas than there are racks, at
least one in each. Replicas are as even as the racks are.

Where to begin (``start_index``, and ``start_shift`` for the followers) is given: random for a topic in a cluster, so
that small topics do not all sit on the first brokers; fixed in tests. Given the same, Kafka 2.x and 3.x place the same.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum

from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor


class RackMode(Enum):
    """What to do about racks; brokers without one count as brokers whose rack is not known."""

    #: All brokers must have a rack, or none.
    ENFORCED = "enforced"
    #: By racks if all brokers have one.
    SAFE = "safe"
    IGNORED = "ignored"


def place_replicas(
    count: int,
    replication_factor: int,
    brokers: Sequence[int],
    *,
    racks: Mapping[int, str | None] | None = None,
    rack_mode: RackMode = RackMode.SAFE,
    first_partition: int = 0,
    start_index: int = 0,
    start_shift: int = 0,
) -> tuple[tuple[int, ...], ...]:
    """
    :raises InvalidReplicationFactor: if it is not between 1 and the number of brokers.
    :raises InvalidReplicaAssignment: if racks are enforced, and only some brokers have one.
    """
    if replication_factor < 1:
        raise InvalidReplicationFactor(f"the replication factor is at least 1, not {replication_factor}")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"a replication factor of {replication_factor} needs as many brokers, and {len(brokers)} are alive"
        )
    rack_of = _known_racks(brokers, racks or {}, rack_mode)
    ring = alternate_racks(rack_of) if rack_of else list(brokers)
    # Without racks each broker is a rack of its own, and the shift goes on by one broker.
    turn = len(set(rack_of.values())) if rack_of else 1
    placed = []
    for partition in range(first_partition, first_partition + count):
        leader = (partition + start_index) % len(ring)
        shift = (start_shift + partition // len(ring)) * turn
        order = [ring[leader], *_followers(ring, leader, shift)]
        placed.append(_pick(order, replication_factor, rack_of))
    return tuple(placed)


def alternate_racks(rack_of: Mapping[int, str]) -> list[int]:
    """Brokers, one of each rack in turn; racks by name, brokers of a rack by id. Racks that run out are left out."""
    by_rack: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(rack_of):
        by_rack[rack_of[broker]].append(broker)
    turns = max((len(brokers) for brokers in by_rack.values()), default=0)
    return [by_rack[rack][turn] for turn in range(turns) for rack in sorted(by_rack) if turn < len(by_rack[rack])]


def start_for_more(first_leader: int, brokers: Sequence[int]) -> int:
    """Where to begin for partitions that are added, so that they go on from partition 0's first replica.

    As in Kafka: its place among the brokers or, if it is gone, the next one's; for the followers' shift as well.
    """
    ordered = sorted(brokers)
    return next((index for index, broker in enumerate(ordered) if broker >= first_leader), 0)


def propose_reassignment(
    topics: Mapping[str, Sequence[Sequence[int]]],
    brokers: Sequence[int],
    *,
    starts: Mapping[str, tuple[int, int]],
    racks: Mapping[int, str | None] | None = None,
    rack_mode: RackMode = RackMode.ENFORCED,
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Topics placed anew on some brokers, with as many replicas as their first partition has now.

    ``starts`` has each topic's start index and shift.

    :raises InvalidReplicationFactor: if there are fewer brokers than replicas.
    :raises InvalidReplicaAssignment: if racks are enforced, and only some brokers have one.
    """
    return {
        topic: place_replicas(
            len(assignment),
            len(assignment[0]),
            sorted(brokers),
            racks=racks,
            rack_mode=rack_mode,
            start_index=starts[topic][0],
            start_shift=starts[topic][1],
        )
        for topic, assignment in topics.items()
    }


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


def _known_racks(brokers: Sequence[int], racks: Mapping[int, str | None], mode: RackMode) -> dict[int, str]:
    """Each broker's rack; nothing where racks do not count."""
    known = {broker: rack for broker in brokers if (rack := racks.get(broker)) is not None}
    if mode is RackMode.IGNORED or not known:
        return {}
    if len(known) < len(brokers):
        if mode is RackMode.ENFORCED:
            without = sorted(set(brokers) - set(known))
            raise InvalidReplicaAssignment(f"some brokers have a rack, and {without} have none")
        return {}
    return known


def _followers(ring: Sequence[int], leader: int, shift: int) -> list[int]:
    """All brokers but the leader, in the order in which they are asked."""
    others = len(ring) - 1
    return [ring[(leader + 1 + (shift + nth) % others) % len(ring)] for nth in range(others)]


def _pick(order: Sequence[int], size: int, rack_of: Mapping[int, str]) -> tuple[int, ...]:
    """The first brokers of an order, those of racks that have no replica yet before the others."""
    if not rack_of:
        return tuple(order[:size])
    rack_count = len(set(rack_of.values()))
    picked: list[int] = []
    used: set[str] = set()
    # The order goes round: after the last broker comes the first follower again.
    position = 0
    while len(picked) < size:
        broker = order[position]
        is_new_rack = rack_of[broker] not in used
        if broker not in picked and (is_new_rack or len(used) == rack_count):
            picked.append(broker)
            used.add(rack_of[broker])
        position = position + 1 if position + 1 < len(order) else 1
    return tuple(picked)
