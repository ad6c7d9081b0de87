"""The tables of states, every pair. The expected table is written the other way round, as in the documents of Kafka."""

import pytest

from headrace.controller.decisions.partition_states import NEXT as NEXT_PARTITION
from headrace.controller.decisions.partition_states import (
    ControllerPartitionState,
    IllegalTransition,
    check_partition_transition,
)
from headrace.controller.decisions.replica_states import NEXT as NEXT_REPLICA
from headrace.controller.decisions.replica_states import ControllerReplicaState, check_replica_transition

PARTITION_BEFORE = {
    "NonExistentPartition": {"OfflinePartition"},
    "NewPartition": {"NonExistentPartition"},
    "OnlinePartition": {"NewPartition", "OnlinePartition", "OfflinePartition"},
    "OfflinePartition": {"NewPartition", "OnlinePartition", "OfflinePartition"},
}
REPLICA_BEFORE = {
    "NonExistentReplica": {"ReplicaDeletionSuccessful"},
    "NewReplica": {"NonExistentReplica"},
    "OnlineReplica": {"NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible"},
    "OfflineReplica": {"NewReplica", "OnlineReplica", "OfflineReplica", "ReplicaDeletionIneligible"},
    "ReplicaDeletionStarted": {"OfflineReplica"},
    "ReplicaDeletionSuccessful": {"ReplicaDeletionStarted"},
    "ReplicaDeletionIneligible": {"OfflineReplica", "ReplicaDeletionStarted"},
}


@pytest.mark.parametrize("wanted", ControllerPartitionState)
@pytest.mark.parametrize("current", ControllerPartitionState)
def test_every_step_of_a_partition(current, wanted):
    if current.value in PARTITION_BEFORE[wanted.value]:
        check_partition_transition("t-0", current, wanted)
    else:
        with pytest.raises(IllegalTransition, match="t-0"):
            check_partition_transition("t-0", current, wanted)


@pytest.mark.parametrize("wanted", ControllerReplicaState)
@pytest.mark.parametrize("current", ControllerReplicaState)
def test_every_step_of_a_replica(current, wanted):
    if current.value in REPLICA_BEFORE[wanted.value]:
        check_replica_transition("t-0 on 1", current, wanted)
    else:
        with pytest.raises(IllegalTransition, match="t-0 on 1"):
            check_replica_transition("t-0 on 1", current, wanted)


@pytest.mark.parametrize("table", [NEXT_PARTITION, NEXT_REPLICA])
def test_the_tables_are_whole_and_every_state_is_reached_from_the_first(table):
    states = set(type(next(iter(table))))
    assert set(table) == states
    reached, new = set(), {next(state for state in states if state.name == "NON_EXISTENT")}
    while new:
        reached |= new
        new = {after for state in new for after in table[state]} - reached
    assert reached == states
