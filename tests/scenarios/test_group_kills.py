"""``kill -9`` of the broker in each phase of a rebalance: committed offsets survive, and the group becomes stable
again.

The broker is a process of its own. Two consumers are stable and have committed. Then one of them starts a rebalance,
and the broker is killed in the phase that the test names.
"""

from contextlib import ExitStack

import pytest

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.raw_client import RawClient

GROUP, TOPIC, OFFSET = "readers", "orders", 42
NOT_YET = {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
PHASES = (
    "settled",
    "one has asked to join",
    "all have joined",
    "a follower waits for its part",
    "the leader has assigned",
)


class Member:
    def __init__(self, name):
        self.name = name
        self.client = None
        self.member_id, self.generation_id, self.joined = "", -1, None

    def connects(self, address):
        if self.client is not None:
            self.client.close()
        self.client = RawClient(address, client_id=self.name)
        self.client.ask(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP])

    def asks_to_join(self):
        protocols = [{"name": "range", "metadata": self.name.encode()}]
        request = {
            "group_id": GROUP, "session_timeout": 30_000, "rebalance_timeout": 30_000, "group_instance_id": None,
            "protocol_type": "consumer", "protocols": protocols, "reason": None,
        }  # fmt: skip
        if not self.member_id:
            self.member_id = self.client.ask(Api.JOIN_GROUP, 9, member_id="", **request).member_id
        self.client.send(Api.JOIN_GROUP, 9, member_id=self.member_id, **request)

    def is_in(self):
        self.joined = self.client.receive()
        assert self.joined.error_code == 0
        self.generation_id = self.joined.generation_id

    @property
    def leads(self):
        return self.joined.leader == self.member_id

    def asks_for_its_part(self):
        parts = [{"member_id": each.member_id, "assignment": b"of " + each.metadata} for each in self.joined.members]
        self.client.send(
            Api.SYNC_GROUP, 5, **self.identity(), protocol_type="consumer", protocol_name="range", assignments=parts
        )

    def gets_its_part(self):
        synced = self.client.receive()
        assert (synced.error_code, synced.assignment) == (0, b"of " + self.name.encode())

    def heartbeat(self):
        while (code := self.client.ask(Api.HEARTBEAT, 4, **self.identity()).error_code) in NOT_YET:
            pass
        return code

    def commits(self):
        partition = {
            "partition_index": 0, "committed_offset": OFFSET, "committed_leader_epoch": -1, "committed_metadata": "m",
        }  # fmt: skip
        identity = self.identity()
        identity["generation_id_or_member_epoch"] = identity.pop("generation_id")
        topics = [{"name": TOPIC, "partitions": [partition]}]
        answer = self.client.ask(Api.OFFSET_COMMIT, 8, topics=topics, **identity)
        assert answer.topics[0].partitions[0].error_code == 0

    def committed(self):
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        (topic,) = self.client.ask(Api.OFFSET_FETCH, 7, group_id=GROUP, topics=topics, require_stable=True).topics
        return topic.partitions[0].committed_offset, topic.partitions[0].metadata

    def identity(self):
        return {
            "group_id": GROUP, "generation_id": self.generation_id, "member_id": self.member_id,
            "group_instance_id": None,
        }  # fmt: skip


def sync(*members):
    for member in sorted(members, key=lambda each: each.leads):
        member.asks_for_its_part()
    for member in members:
        member.gets_its_part()


def begin_rebalance(phase, one, two):
    """Up to the phase."""
    if phase == "settled":
        return
    one.asks_to_join()
    while two.heartbeat() != ErrorCode.rebalance_in_progress:
        pass
    if phase == "one has asked to join":
        return
    two.asks_to_join()
    one.is_in()
    two.is_in()
    if phase == "all have joined":
        return
    two.asks_for_its_part()
    if phase == "the leader has assigned":
        one.asks_for_its_part()
        one.gets_its_part()


@pytest.mark.parametrize("phase", PHASES)
def test_killed_when(tmp_path, phase):
    one, two = Member("one"), Member("two")
    start = (tmp_path, "-o", "group.initial.rebalance.delay.ms=0")
    with ExitStack() as stack:
        for member in (one, two):
            stack.callback(lambda member=member: member.client.close())
        with BrokerProcess(*start) as broker:
            with RawClient(broker.address) as client:
                topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
                client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False)
            one.connects(broker.address)
            one.asks_to_join()
            one.is_in()
            sync(one)
            two.connects(broker.address)
            two.asks_to_join()
            while one.heartbeat() != ErrorCode.rebalance_in_progress:
                pass
            one.asks_to_join()
            one.is_in()
            two.is_in()
            sync(one, two)
            one.commits()
            begin_rebalance(phase, one, two)
            broker.kill()
        with BrokerProcess(*start) as broker:
            for member in (one, two):
                member.connects(broker.address)
            knows = {member.heartbeat() for member in (one, two)}
            assert one.committed() == (OFFSET, "m")
            # A generation whose parts were never given is not in the log: its members are told to join again.
            is_lost = phase in ("all have joined", "a follower waits for its part")
            assert knows == {ErrorCode.illegal_generation if is_lost else ErrorCode.none}
            one.asks_to_join()  # the leader wants a rebalance
            while two.heartbeat() not in (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation):
                pass
            two.asks_to_join()
            one.is_in()
            two.is_in()
            sync(one, two)
            assert one.committed() == (OFFSET, "m")
            one.commits()
