"""A broker that dies before or after each record that its groups write: everything that it had answered still holds.

Each test runs a group up to the crash. Then another coordinator loads the log. It must have every commit that was
answered and the last generation whose members got their assignments, and the clients must form a group again.
"""

import pytest
from group_harness import DELAY_MS, NONE, GroupHarness

from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.committed_offsets import TopicCommit
from headrace.protocol.errors import ErrorCode
from headrace.testing.faulty_disk import Crash

PARTS = "before", "after"


class Life:
    """The requests of clients, and their answers."""

    def __init__(self):
        self.harness = GroupHarness()
        self.committed = None
        self.trying = None
        self.write = self.harness.journal.write
        self.writes = 0

    def dies(self, part, at):
        """In place of the write with this number, or when it is done."""

        def write(records, **fields):
            self.writes += 1
            if self.writes == at and part == "before":
                raise Crash
            self.write(records, **fields)
            if self.writes == at:
                raise Crash

        self.harness.journal.write = write

    def commits(self, client, offset):
        assert client.commit() is NONE
        self.trying = offset
        shard = self.harness.shard
        shard.write(shard.offsets.commit_records("g", [TopicCommit("t", None, [(0, offset, -1, "")])]))
        self.committed = offset

    def runs(self):
        harness = self.harness
        one, two = harness.join("one", "two")
        harness.advance(2 * DELAY_MS)
        harness.all_sync()
        self.commits(one, 1)
        three = harness.join("three")
        self.commits(two, 2)
        one.joins()
        two.joins()
        harness.all_sync()
        self.commits(three, 3)
        static = harness.join("four", instance_id="F")
        for each in (one, two, three):
            each.joins()
        harness.all_sync()
        static.member_id = ""
        static.joins()
        self.commits(static, 4)
        for each in (one, two, three, static):
            each.leaves()
        harness.shard.delete_group("g")


def writes_of_a_life():
    life = Life()
    life.dies("never", 0)
    life.runs()
    return life.writes


COUNT = writes_of_a_life()


def test_the_life_of_a_group_has_these_writes():
    assert COUNT == 10  # three generations, a static member that came back, an empty group, four commits, the end


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("at", range(1, COUNT + 1))
def test_dies(at, part):
    life = Life()
    life.dies(part, at)
    with pytest.raises(Crash):
        life.runs()
    told = max(client.synced_generation_id for client in life.harness.clients.values())
    again = life.harness.reloaded()
    if at == COUNT and part == "after":
        assert again.group is None
        return

    found = again.shard.offsets.committed("g", "t", 0)
    assert (found and found.offset) in {life.committed, life.trying}
    assert found is not None or life.committed is None
    if told:
        assert again.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY)
        assert again.group.generation_id >= told

    loaded = again.group.generation_id if again.group is not None else 0
    come_back(again)
    assert again.state is ClassicGroupState.STABLE
    assert again.group.generation_id >= loaded
    assert {each.member_id for each in again.group.members} == {each.member_id for each in again.clients.values()}


def come_back(harness):
    """The clients: an unknown member joins as a new member, and a member that learns of a rebalance joins again."""
    for client in harness.clients.values():
        client.is_joining = False  # its connection went with the broker
    for _ in range(4):
        for client in harness.clients.values():
            code = client.heartbeat()
            if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id) and not client.is_joining:
                client.member_id = ""
            if code is not NONE and not client.is_joining:
                client.joins()
        harness.advance(DELAY_MS)
        harness.all_sync()
