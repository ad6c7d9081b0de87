"""The states of a partition in the controller, and the transitions between them.

=============  =====================================================================================================
NON_EXISTENT   the partition was never created, or it was deleted
NEW            has replicas, but never had a leader: no ``state`` znode yet
ONLINE         has a leader
OFFLINE        had a leader that failed or was removed; an election can bring the partition back
=============  =====================================================================================================

A partition goes from ONLINE to ONLINE when it gets another leader. A partition may be moved to OFFLINE twice. A
partition is deleted only from OFFLINE, so that the count of partitions without a leader stays correct.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

_State = TypeVar("_State", bound=Enum)


class IllegalTransition(AssertionError):
    """A bug in the controller: this state must not follow the current state. Nothing has changed."""


class ControllerPartitionState(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


#: The states that may follow each state.
NEXT: dict[ControllerPartitionState, frozenset[ControllerPartitionState]] = {
    ControllerPartitionState.NON_EXISTENT: frozenset({ControllerPartitionState.NEW}),
    ControllerPartitionState.NEW: frozenset({ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE}),
    ControllerPartitionState.ONLINE: frozenset({ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE}),
    ControllerPartitionState.OFFLINE: frozenset(
        {ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE, ControllerPartitionState.NON_EXISTENT}
    ),
}


def check_transition(
    table: Mapping[_State, frozenset[_State]], kind: str, what: object, current: _State, new: _State
) -> None:
    """
    :param table: the states that may follow each state.
    :raises IllegalTransition: if ``new`` may not follow ``current``.
    """
    if new not in table[current]:
        raise IllegalTransition(f"{kind} {what} cannot change from {current.value} to {new.value}")


def check_partition_transition(what: object, current: ControllerPartitionState, new: ControllerPartitionState) -> None:
    check_transition(NEXT, "partition", what, current, new)
