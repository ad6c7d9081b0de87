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

from headrace.controller.decisions.partition_states import check_transition


class ControllerReplicaState(Enum):
    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


#: From each state, which may follow.
NEXT: dict[ControllerReplicaState, frozenset[ControllerReplicaState]] = {
    ControllerReplicaState.NON_EXISTENT: frozenset({ControllerReplicaState.NEW}),
    ControllerReplicaState.NEW: frozenset({ControllerReplicaState.ONLINE, ControllerReplicaState.OFFLINE}),
    ControllerReplicaState.ONLINE: frozenset({ControllerReplicaState.ONLINE, ControllerReplicaState.OFFLINE}),
    ControllerReplicaState.OFFLINE: frozenset(
        {
            ControllerReplicaState.ONLINE,
            ControllerReplicaState.OFFLINE,
            ControllerReplicaState.DELETION_STARTED,
            ControllerReplicaState.DELETION_INELIGIBLE,
        }
    ),
    ControllerReplicaState.DELETION_STARTED: frozenset(
        {ControllerReplicaState.DELETION_SUCCESSFUL, ControllerReplicaState.DELETION_INELIGIBLE}
    ),
    ControllerReplicaState.DELETION_SUCCESSFUL: frozenset({ControllerReplicaState.NON_EXISTENT}),
    ControllerReplicaState.DELETION_INELIGIBLE: frozenset(
        {ControllerReplicaState.ONLINE, ControllerReplicaState.OFFLINE}
    ),
}


def check_replica_transition(what: object, current: ControllerReplicaState, wanted: ControllerReplicaState) -> None:
    check_transition(NEXT, "replica", what, current, wanted)
