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

_Life = TypeVar("_Life", bound=Enum)


class IllegalTransition(AssertionError):
    """The controller's own mistake: a state may not follow another. Nothing has changed."""


class PartitionLife(Enum):
    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"


#: From each state, which may follow.
NEXT: dict[PartitionLife, frozenset[PartitionLife]] = {
    PartitionLife.NON_EXISTENT: frozenset({PartitionLife.NEW}),
    PartitionLife.NEW: frozenset({PartitionLife.ONLINE, PartitionLife.OFFLINE}),
    PartitionLife.ONLINE: frozenset({PartitionLife.ONLINE, PartitionLife.OFFLINE}),
    PartitionLife.OFFLINE: frozenset({PartitionLife.ONLINE, PartitionLife.OFFLINE, PartitionLife.NON_EXISTENT}),
}


def check_step(table: Mapping[_Life, frozenset[_Life]], kind: str, what: object, current: _Life, wanted: _Life) -> None:
    """
    :param table: from each state, which may follow.
    :raises IllegalTransition: if ``wanted`` may not follow ``current``.
    """
    if wanted not in table[current]:
        raise IllegalTransition(f"{kind} {what} cannot go from {current.value} to {wanted.value}")


def check_partition_step(what: object, current: PartitionLife, wanted: PartitionLife) -> None:
    check_step(NEXT, "partition", what, current, wanted)
