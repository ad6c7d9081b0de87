"""The states of a replica in the controller, and the transitions between them.

====================  ==============================================================================================
NON_EXISTENT          the replica was never created, or its deletion is complete
NEW                   assigned, and its broker was told to follow the leader; does not count as serving yet
ONLINE                its broker is alive and has received the leader
OFFLINE               its broker or disk failed, or its broker was told to stop the replica
DELETION_STARTED      its broker was told to delete the log; no response yet
DELETION_SUCCESSFUL   the log is deleted
DELETION_INELIGIBLE   cannot be deleted now: its broker is down, or responded with an error; waits for the broker
====================  ==============================================================================================

A replica is stopped (OFFLINE) before it is deleted, so that it leaves the ISR first. A replica that could not be
deleted goes back to OFFLINE for the next attempt, or to ONLINE when its broker starts before that.
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


#: The states that may follow each state.
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


def check_replica_transition(what: object, current: ControllerReplicaState, new: ControllerReplicaState) -> None:
    check_transition(NEXT, "replica", what, current, new)
