"""The tables of states, every pair of them; drawn once more here, the other way round, as Kafka's documents do."""

import pytest

from headrace.controller.partition_states import NEXT as NEXT_PARTITION
from headrace.controller.partition_states import IllegalTransition, PartitionLife, check_partition_step
from headrace.controller.replica_states import NEXT as NEXT_REPLICA
from headrace.controller.replica_states import ReplicaLife, check_replica_step

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


@pytest.mark.parametrize("wanted", PartitionLife)
@pytest.mark.parametrize("current", PartitionLife)
def test_every_step_of_a_partition(current, wanted):
    if current.value in PARTITION_BEFORE[wanted.value]:
        check_partition_step("t-0", current, wanted)
    else:
        with pytest.raises(IllegalTransition, match="t-0"):
            check_partition_step("t-0", current, wanted)


@pytest.mark.parametrize("wanted", ReplicaLife)
@pytest.mark.parametrize("current", ReplicaLife)
def test_every_step_of_a_replica(current, wanted):
    if current.value in REPLICA_BEFORE[wanted.value]:
        check_replica_step("t-0 on 1", current, wanted)
    else:
        with pytest.raises(IllegalTransition, match="t-0 on 1"):
            check_replica_step("t-0 on 1", current, wanted)


@pytest.mark.parametrize("table", [NEXT_PARTITION, NEXT_REPLICA])
def test_the_tables_are_whole_and_every_state_is_reached_from_the_first(table):
    states = set(type(next(iter(table))))
    assert set(table) == states
    reached, new = set(), {next(state for state in states if state.name == "NON_EXISTENT")}
    while new:
        reached |= new
        new = {after for state in new for after in table[state]} - reached
    assert reached == states
