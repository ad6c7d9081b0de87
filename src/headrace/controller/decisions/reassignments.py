"""Moving a partition to other brokers, as KIP-455 does it.

A partition that moves has the replicas of both ends: those that it will have (the target) first, then those that only
it had. ``adding`` and ``removing`` say which are which, so the topic's znode alone is enough to go on after a crash:

======================  =========  ==========  ======  ==================  ===========================================
replicas                adding     removing    leader  ISR                 what has happened
======================  =========  ==========  ======  ==================  ===========================================
1 2 3                                          1       1 2 3
4 5 6 1 2 3             4 5 6      1 2 3       1       1 2 3               begun: the new ones copy (:data:`COPYING`)
4 5 6 1 2 3             4 5 6      1 2 3       1       1 2 3 4 5 6         the target is in sync (:data:`COMPLETE`)
4 5 6 1 2 3             4 5 6      1 2 3       4       4 5 6               leadership moved, the old ones stopped
4 5 6                                          4       4 5 6               written down: over
======================  =========  ==========  ======  ==================  ===========================================

The znode is written last, so that a controller that dies before knows what was to be removed. A move is cancelled by
moving to where it came from; a new target replaces the one before. Both drop at once the new replicas that nobody wants
any more, and are refused where no replica in sync would remain (Kafka on ZooKeeper lost data there). A change of the
replica count, or of their order alone, is the same thing with nothing to add or to remove.

As in Kafka, the znode does not tell in which order the original replicas were: after a cancel those that the dropped
target shares come first, in its order.
"""

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which brokers hold a partition, the preferred leader first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> tuple[int, ...]:
        return _minus(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return _minus(self.replicas, self.removing)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    def moving_to(self, target: Sequence[int]) -> "Assignment":
        """From where it is or, if it moves already, where it came from."""
        origin = self.origin
        replicas = (*target, *_minus(origin, target))
        return Assignment(replicas, _minus(target, origin), _minus(origin, target))

    def cancelled(self) -> "Assignment":
        """On its way back; what was removed stays, what was added is dropped.

        :raises NoReassignmentInProgress: if it does not move.
        """
        if not self.is_moving:
            raise NoReassignmentInProgress("no reassignment is in progress")
        return self.moving_to(self.origin)

    def settled(self) -> "Assignment":
        return Assignment(self.target)

    def without(self, replica: int) -> "Assignment":
        gone = (replica,)
        return Assignment(_minus(self.replicas, gone), _minus(self.adding, gone), _minus(self.removing, gone))


class Phase(Enum):
    #: New replicas copy; the old ones serve.
    COPYING = "copying"
    #: All of the target is in sync, or nothing is to be copied: the rest can go.
    COMPLETE = "complete"


def phase(assignment: Assignment, isr: Collection[int]) -> Phase:
    if assignment.is_moving and not set(assignment.target) <= set(isr):
        return Phase.COPYING
    return Phase.COMPLETE


def dropped(before: Assignment, after: Assignment) -> tuple[int, ...]:
    """Replicas of which a new target, or a cancel, makes an end at once."""
    return _minus(before.replicas, after.replicas)


def check_move(
    current: Assignment,
    target: Sequence[int] | None,
    live_brokers: Container[int],
    isr: Sequence[int],
    *,
    may_change_count: bool = True,
) -> Assignment:
    """The move to a target that a client asks for; None cancels. Brokers that are to be added must live.

    :raises NoReassignmentInProgress: if there is nothing to cancel.
    :raises InvalidReplicaAssignment: if the target is empty, has a broker twice or a dead or unknown one; or if all
        that are in sync would be dropped, and with them what only they have.
    :raises InvalidReplicationFactor: if it has another count of replicas and may not (KIP-860).
    """
    if target is None:
        moving = current.cancelled()
    else:
        _check_brokers(target)
        moving = current.moving_to(target)
        if dead := [broker for broker in moving.adding if broker not in live_brokers]:
            raise InvalidReplicaAssignment(f"the target has brokers that are not alive: {dead}")
        if not may_change_count and len(target) != len(current.target):
            raise InvalidReplicationFactor(
                f"the replication factor would change from {len(current.target)} to {len(target)}"
            )
    gone = dropped(current, moving)
    if gone and not any(replica not in gone and replica in live_brokers for replica in isr):
        raise InvalidReplicaAssignment(f"of the replicas in sync, {list(isr)}, none would stay and be online")
    return moving


def _check_brokers(target: Sequence[int]) -> None:
    if not target:
        raise InvalidReplicaAssignment("a partition cannot be moved to no broker at all")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"a broker is twice in the target: {list(target)}")
    if any(broker < 0 for broker in target):
        raise InvalidReplicaAssignment(f"a broker's id is not negative: {list(target)}")


def _minus(replicas: Sequence[int], others: Container[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)
