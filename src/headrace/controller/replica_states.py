"""The states of a replica, as the controller sees them.

====================  ==============================================================================================
NON_EXISTENT          never made, or its deletion is over and done
NEW                   assigned, and told to follow; not yet counted as serving
ONLINE                its broker lives and has been told who leads
OFFLINE               its broker or disk is dead, or it was told to stop
DELETION_STARTED      told to delete its log; no answer yet
DELETION_SUCCESSFUL   the log is gone
DELETION_INELIGIBLE   it cannot be deleted now: its broker is dead, or answered with an error; waits for its broker
====================  ==============================================================================================

A replica is stopped (OFFLINE) before it is deleted, so that it leaves the ISR first. One that could not be deleted goes
back to OFFLINE for the next attempt, or to ONLINE when its broker comes back before that.
"""

from enum import Enum

from headrace.controller.partition_states import check_step


class ReplicaLife(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


#: From each state, which may follow.
NEXT: dict[ReplicaLife, frozenset[ReplicaLife]] = {
    ReplicaLife.NON_EXISTENT: frozenset({ReplicaLife.NEW}),
    ReplicaLife.NEW: frozenset({ReplicaLife.ONLINE, ReplicaLife.OFFLINE}),
    ReplicaLife.ONLINE: frozenset({ReplicaLife.ONLINE, ReplicaLife.OFFLINE}),
    ReplicaLife.OFFLINE: frozenset(
        {
            ReplicaLife.ONLINE,
            ReplicaLife.OFFLINE,
            ReplicaLife.DELETION_STARTED,
            ReplicaLife.DELETION_INELIGIBLE,
        }
    ),
    ReplicaLife.DELETION_STARTED: frozenset({ReplicaLife.DELETION_SUCCESSFUL, ReplicaLife.DELETION_INELIGIBLE}),
    ReplicaLife.DELETION_SUCCESSFUL: frozenset({ReplicaLife.NON_EXISTENT}),
    ReplicaLife.DELETION_INELIGIBLE: frozenset({ReplicaLife.ONLINE, ReplicaLife.OFFLINE}),
}


def check_replica_step(what: object, current: ReplicaLife, wanted: ReplicaLife) -> None:
    check_step(NEXT, "replica", what, current, wanted)
