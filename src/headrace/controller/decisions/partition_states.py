"""The states of a partition, as the controller sees them.

=============  =====================================================================================================
NON_EXISTENT   never made, or deleted
NEW            has replicas, but never had a leader: no ``state`` znode yet
ONLINE         has a leader
OFFLINE        had a leader, who is dead or gone; an election may bring it back
=============  =====================================================================================================

A partition goes from ONLINE to ONLINE when it gets another leader, and may be called OFFLINE twice. It leaves only from
OFFLINE, so that whoever counts partitions without a leader sees a deleted one go.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

_State = TypeVar("_State", bound=Enum)


class IllegalTransition(AssertionError):
    """The controller's own mistake: a state may not follow another. Nothing has changed."""


class ControllerPartitionState(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


#: From each state, which may follow.
NEXT: dict[ControllerPartitionState, frozenset[ControllerPartitionState]] = {
    ControllerPartitionState.NON_EXISTENT: frozenset({ControllerPartitionState.NEW}),
    ControllerPartitionState.NEW: frozenset({ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE}),
    ControllerPartitionState.ONLINE: frozenset({ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE}),
    ControllerPartitionState.OFFLINE: frozenset(
        {ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE, ControllerPartitionState.NON_EXISTENT}
    ),
}


def check_transition(
    table: Mapping[_State, frozenset[_State]], kind: str, what: object, current: _State, wanted: _State
) -> None:
    """
    :param table: from each state, which may follow.
    :raises IllegalTransition: if ``wanted`` may not follow ``current``.
    """
    if wanted not in table[current]:
        raise IllegalTransition(f"{kind} {what} cannot go from {current.value} to {wanted.value}")


def check_partition_transition(
    what: object, current: ControllerPartitionState, wanted: ControllerPartitionState
) -> None:
    check_transition(NEXT, "partition", what, current, wanted)
