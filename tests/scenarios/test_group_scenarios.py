"""The four events of a group as its members see them: a member joins, leaves, crashes, or commits too late.

The members speak the protocol to one broker on a manual clock. The broker's timers run when the test advances the
clock.
"""

from concurrent.futures import Future

import pytest

from headrace import Broker
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing import ManualClock
from headrace.testing.raw_client import RawClient

GROUP, TOPIC = "orders-readers", "orders"
SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 60_000, 3_000
NONE, REBALANCING, UNKNOWN = ErrorCode.none, ErrorCode.rebalance_in_progress, ErrorCode.unknown_member_id


class GroupScenarioHarness:
    def __init__(self, folder):
        self.clock = ManualClock()
        self.broker = Broker(data=folder, clock=self.clock, config={"group.initial.rebalance.delay.ms": DELAY_MS})
        self.members = []
        self.events = []

    def member(self, name):
        member = Member(self, name)
        self.members.append(member)
        return member

    def on_loop(self, function):
        done = Future()
        self.broker.core.runtime.loop.call_soon_threadsafe(lambda: done.set_result(function()))
        return done.result(10)

    def advance(self, by_ms):
        self.clock.advance(by_ms)
        self.on_loop(self.broker.core.runtime.timer.advance)

    @property
    def state(self):
        return self.on_loop(
            lambda: self.broker.core.coordinators.groups.coordinator.shard_for(GROUP).groups[GROUP].state_name
        )

    def until(self, state):
        """Requests are answered in turn, but those of different connections in any order."""
        while self.state != state:
            pass

    def noted(self):
        events, self.events = self.events, []
        return events


class Member:
    """One consumer: its requests and the answers are noted as ``name what``."""

    def __init__(self, harness, name):
        self.harness = harness
        self.name = name
        self.client = RawClient(harness.broker.bootstrap_servers, client_id=name)
        self.member_id, self.generation_id, self.joined = "", -1, None
        self.client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])

    def note(self, what):
        self.harness.events.append(f"{self.name} {what}")

    def asks_to_join(self):
        request = {
            "group_id": GROUP,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": self.name.encode()}],
            "reason": None,
        }
        if not self.member_id:
            self.member_id = self.client.ask(Api.JOIN_GROUP, 9, member_id="", **request).member_id
        self.client.send(Api.JOIN_GROUP, 9, member_id=self.member_id, **request)
        self.note("asks to join")

    def is_in(self):
        self.joined = self.client.receive()
        assert self.joined.error_code == NONE
        self.generation_id = self.joined.generation_id
        members = " ".join(each.metadata.decode() for each in self.joined.members)
        self.note(f"is in generation {self.generation_id}" + (f" and leads {members}" if members else ""))

    def asks_for_its_part(self):
        assignments = [
            {"member_id": each.member_id, "assignment": b"of " + each.metadata} for each in self.joined.members
        ]
        self.client.send(
            Api.SYNC_GROUP, 5, **self._identity(), protocol_type="consumer", protocol_name="range",
            assignments=assignments,
        )  # fmt: skip

    def gets_its_part(self):
        synced = self.client.receive()
        self.note(f"has the part {synced.assignment.decode()}" if not synced.error_code else synced.error_code.name)

    def receives(self):
        """Sends a heartbeat; returns the code of the answer."""
        code = self.client.ask(Api.HEARTBEAT, 4, **self._identity()).error_code
        self.note(f"receives {code.name}")
        return code

    def leaves(self):
        member = {"member_id": self.member_id, "group_instance_id": None, "reason": "done"}
        self.client.ask(Api.LEAVE_GROUP, 5, group_id=GROUP, members=[member])
        self.note("leaves")

    def crashes(self):
        self.client.close()
        self.note("crashes")

    def commits(self, offset):
        partition = {
            "partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        identity = self._identity()
        identity["generation_id_or_member_epoch"] = identity.pop("generation_id")
        topics = [{"name": TOPIC, "partitions": [partition]}]
        answer = self.client.ask(Api.OFFSET_COMMIT, 8, topics=topics, **identity)
        code = answer.topics[0].partitions[0].error_code
        self.note(f"commits {offset}: {code.name}")
        return code

    def committed(self):
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        answer = self.client.ask(Api.OFFSET_FETCH, 7, group_id=GROUP, topics=topics, require_stable=True)
        return answer.topics[0].partitions[0].committed_offset

    def _identity(self):
        return {
            "group_id": GROUP, "generation_id": self.generation_id, "member_id": self.member_id,
            "group_instance_id": None,
        }  # fmt: skip


def all_join(harness, *members):
    for member in members:
        member.asks_to_join()
    harness.until("PreparingRebalance")


def all_sync(harness, *members):
    """Followers first: they wait for the leader, who is the first here."""
    for member in reversed(members):
        member.asks_for_its_part()
    for member in members:
        member.gets_its_part()
    assert harness.state == "Stable"


@pytest.fixture
def harness(tmp_path):
    made = GroupScenarioHarness(tmp_path)
    with made.broker:
        with RawClient(made.broker.bootstrap_servers) as client:
            topic = {"name": TOPIC, "num_partitions": 4, "replication_factor": 1, "assignments": (), "configs": ()}
            client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False)
        yield made
        for member in made.members:
            member.client.close()


@pytest.fixture
def pair(harness):
    """Two members, settled in the first generation; the first leads."""
    one, two = harness.member("one"), harness.member("two")
    one.asks_to_join()
    harness.until("PreparingRebalance")
    two.asks_to_join()
    while (
        harness.on_loop(
            lambda: len(harness.broker.core.coordinators.groups.coordinator.shard_for(GROUP).groups[GROUP].members)
        )
        < 2
    ):
        pass
    harness.advance(DELAY_MS)
    harness.advance(DELAY_MS)
    one.is_in()
    two.is_in()
    all_sync(harness, one, two)
    assert harness.noted() == [
        "one asks to join",
        "two asks to join",
        "one is in generation 1 and leads one two",
        "two is in generation 1",
        "one has the part of one",
        "two has the part of two",
    ]
    return one, two


def test_a_member_joins(harness, pair):
    one, two = pair
    three = harness.member("three")
    assert one.receives() == two.receives() == NONE
    all_join(harness, three)
    assert one.receives() == two.receives() == REBALANCING
    one.asks_to_join()
    two.asks_to_join()
    for member in (one, two, three):
        member.is_in()
    assert harness.state == "CompletingRebalance"
    all_sync(harness, one, two, three)
    assert harness.noted() == [
        "one receives none",
        "two receives none",
        "three asks to join",
        "one receives rebalance_in_progress",
        "two receives rebalance_in_progress",
        "one asks to join",
        "two asks to join",
        "one is in generation 2 and leads one two three",
        "two is in generation 2",
        "three is in generation 2",
        "one has the part of one",
        "two has the part of two",
        "three has the part of three",
    ]


def test_a_member_leaves(harness, pair):
    one, two = pair
    one.leaves()
    assert harness.state == "PreparingRebalance"
    assert two.receives() == REBALANCING
    two.asks_to_join()
    two.is_in()
    all_sync(harness, two)
    two.leaves()
    assert harness.state == "Empty"
    assert harness.noted() == [
        "one leaves",
        "two receives rebalance_in_progress",
        "two asks to join",
        "two is in generation 2 and leads two",
        "two has the part of two",
        "two leaves",
    ]


def test_a_member_crashes(harness, pair):
    one, two = pair
    two.crashes()
    harness.advance(SESSION_MS - 1)
    assert one.receives() == NONE
    harness.advance(1)
    assert one.receives() == REBALANCING
    one.asks_to_join()
    one.is_in()
    all_sync(harness, one)
    assert harness.noted() == [
        "two crashes",
        "one receives none",
        "one receives rebalance_in_progress",
        "one asks to join",
        "one is in generation 2 and leads one",
        "one has the part of one",
    ]


def test_members_commit_during_a_rebalance(harness, pair):
    """A commit of earlier records succeeds when the rebalance begins, and fails after the new assignment."""
    one, two = pair
    all_join(harness, one)
    assert two.receives() == REBALANCING
    assert two.commits(7) == NONE
    two.asks_to_join()
    one.is_in()
    two.is_in()
    assert two.commits(8) == REBALANCING
    two.generation_id -= 1
    assert two.commits(9) == ErrorCode.illegal_generation
    two.generation_id += 1
    all_sync(harness, one, two)
    assert two.committed() == 7
    assert two.commits(10) == NONE
    assert two.committed() == 10
    assert harness.noted() == [
        "one asks to join",
        "two receives rebalance_in_progress",
        "two commits 7: none",
        "two asks to join",
        "one is in generation 2 and leads one two",
        "two is in generation 2",
        "two commits 8: rebalance_in_progress",
        "two commits 9: illegal_generation",
        "one has the part of one",
        "two has the part of two",
        "two commits 10: none",
    ]


def test_a_member_that_was_thrown_out_cannot_commit(harness, pair):
    one, two = pair
    harness.advance(SESSION_MS - 1)
    one.receives()
    harness.advance(1)
    assert two.commits(7) == UNKNOWN
    assert one.commits(8) == NONE
    assert one.committed() == 8


def test_members_go_on_when_the_broker_is_started_anew(harness, pair):
    one, _ = pair
    assert one.commits(7) == NONE
    harness.broker.stop()
    harness.broker.start()
    for member in pair:
        member.client.close()
        member.client = RawClient(harness.broker.bootstrap_servers, client_id=member.name)
        while (code := member.receives()) == ErrorCode.coordinator_load_in_progress:
            pass
        assert code == NONE
    assert one.committed() == 7
    harness.advance(SESSION_MS)
    assert harness.state == "Empty"
