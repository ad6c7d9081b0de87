"""The values of a reassignment: how a partition moves to other brokers, as in KIP-455.

While a partition is being reassigned, it has the replicas of the target first, and then the replicas that are to be
removed. ``adding`` and ``removing`` say which replicas are new and which are old. So the topic's znode is enough to
continue after a crash:

======================  =========  ==========  ======  ==================  ===========================================
replicas                adding     removing    leader  ISR                 what has happened
======================  =========  ==========  ======  ==================  ===========================================
1 2 3                                          1       1 2 3
4 5 6 1 2 3             4 5 6      1 2 3       1       1 2 3               started: new replicas copy (:data:`COPYING`)
4 5 6 1 2 3             4 5 6      1 2 3       1       1 2 3 4 5 6         the target is in sync (:data:`COMPLETE`)
4 5 6 1 2 3             4 5 6      1 2 3       4       4 5 6               leadership moved, old replicas stopped
4 5 6                                          4       4 5 6               the topic's znode is written: done
======================  =========  ==========  ======  ==================  ===========================================

The znode is written last, so that after a crash the next controller finds the replicas to remove. Cancelling is a
reassignment to the original replicas. A new target replaces the target before. Both drop at once the new replicas that
are no longer needed. Both are rejected if no in-sync replica would remain (Kafka on ZooKeeper lost data there). A
change of the replication factor, or of the order of replicas, is a reassignment with nothing to add or nothing to
remove.

As in Kafka, the znode does not contain the original order of the replicas. After a cancel, the replicas that were also
in the dropped target come first, in the order of that target.
"""

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress


@dataclass(frozen=True, slots=True)
class Assignment:
    """The brokers that hold a partition, the preferred leader first."""

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
        """The assignment while the partition moves to a target.

        A partition that is being reassigned keeps the original replicas of the first reassignment.
        """
        origin = self.origin
        replicas = (*target, *_minus(origin, target))
        return Assignment(replicas, _minus(target, origin), _minus(origin, target))

    def cancelled(self) -> "Assignment":
        """The assignment after a cancel: replicas to remove stay, and added replicas are dropped.

        :raises NoReassignmentInProgress: if the partition is not being reassigned.
        """
        if not self.is_moving:
            raise NoReassignmentInProgress("the partition is not being reassigned")
        return self.moving_to(self.origin)

    def completed(self) -> "Assignment":
        return Assignment(self.target)


class Phase(Enum):
    #: The new replicas copy; the old replicas serve.
    COPYING = "copying"
    #: All replicas of the target are in sync, or there is nothing to copy. The old replicas can be removed.
    COMPLETE = "complete"


def phase(assignment: Assignment, isr: Collection[int]) -> Phase:
    if assignment.is_moving and not set(assignment.target) <= set(isr):
        return Phase.COPYING
    return Phase.COMPLETE


def dropped(before: Assignment, after: Assignment) -> tuple[int, ...]:
    """The replicas that a new target, or a cancel, removes at once."""
    return _minus(before.replicas, after.replicas)


def check_move(
    current: Assignment,
    target: Sequence[int] | None,
    live_brokers: Container[int],
    isr: Sequence[int],
    *,
    may_change_count: bool = True,
) -> Assignment:
    """Checks a client's target, and returns the assignment while the partition moves there. Added brokers must be
    alive.

    :param target: None cancels the reassignment.
    :raises NoReassignmentInProgress: if there is nothing to cancel.
    :raises InvalidReplicaAssignment: if the target is empty, contains a broker twice, or contains a broker that is not
        alive; or if all in-sync replicas would be dropped, and committed records with them.
    :raises InvalidReplicationFactor: if the target changes the replication factor and must not (KIP-860).
    """
    if target is None:
        moving = current.cancelled()
    else:
        _check_brokers(target)
        moving = current.moving_to(target)
        if dead := [broker for broker in moving.adding if broker not in live_brokers]:
            raise InvalidReplicaAssignment(f"the target contains brokers that are not alive: {dead}")
        if not may_change_count and len(target) != len(current.target):
            raise InvalidReplicationFactor(
                f"the target changes the replication factor from {len(current.target)} to {len(target)}"
            )
    gone = dropped(current, moving)
    if gone and not any(replica not in gone and replica in live_brokers for replica in isr):
        raise InvalidReplicaAssignment(f"no in-sync replica would stay and be online; the ISR is {list(isr)}")
    return moving


def _check_brokers(target: Sequence[int]) -> None:
    if not target:
        raise InvalidReplicaAssignment("the target is empty; a partition needs at least one broker")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"the target contains a broker twice: {list(target)}")
    if any(broker < 0 for broker in target):
        raise InvalidReplicaAssignment(f"the target contains a negative broker id: {list(target)}")


def _minus(replicas: Sequence[int], others: Container[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)
