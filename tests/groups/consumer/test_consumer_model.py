"""Members that join, leave, crash, change topics and miss responses, while topics change and coordinators restart.

Two members never own one partition at the same time. When all members behave, some member reads every partition.
"""

from consumer_group_harness import INTERVAL_MS, SESSION_MS, ConsumerGroupHarness, Topics
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.groups.consumer.assignment import overlaps, pairs, union
from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest
from headrace.protocol.errors import KafkaError

NAMES = ("a", "b", "c", "d")
names = st.sampled_from(NAMES)
subscriptions = st.sampled_from([("t",), ("u",), ("t", "u"), ()])


class Member:
    """A client that takes its time: it is told what it is to have, and lets go of the rest when it comes to it."""

    def __init__(self, name):
        self.name = name
        self.epoch = 0
        self.owned = {}
        self.told = {}
        self.topics = ("t",)
        #: What to say in the next heartbeat besides that it lives.
        self.says_all = True

    def say(self, harness, *, is_answered=True):
        said = {}
        if self.says_all:
            said = {"rebalance_timeout_ms": 60_000, "topic_names": frozenset(self.topics), "owned": dict(self.owned)}
        elif not self.has_more_than_told:
            said = {"owned": dict(self.owned)}
        beat = ConsumerHeartbeatRequest(member_id=self.name, epoch=self.epoch, **said)
        beat.check(("uniform", "range"), needs_member_id=True)
        try:
            answer = harness.shard.consumer_heartbeat("g", beat)
        except KafkaError:
            self.epoch, self.owned, self.told, self.says_all = 0, {}, {}, True
            return
        if not is_answered:
            self.says_all = True
            return
        self.says_all, self.epoch = False, answer.epoch
        if answer.assignment is not None:
            self.told = dict(answer.assignment)
            self.owned = union(self.owned, self.told)

    @property
    def has_more_than_told(self):
        return self.owned != self.told

    def lets_go(self):
        self.owned = dict(self.told)


class Groups(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, INTERVAL_MS]))
    def start(self, interval_ms):
        self.harness = ConsumerGroupHarness(topics=Topics(t=3, u=2), group_consumer_assignment_interval_ms=interval_ms)
        self.members = {}

    @rule(name=names, topics=subscriptions)
    def joins(self, name, topics):
        if name not in self.members:
            self.members[name] = Member(name)
            self.members[name].topics = topics
            self.members[name].say(self.harness)

    @precondition(lambda self: self.members)
    @rule(name=names, is_answered=st.booleans())
    def beats(self, name, is_answered):
        if name in self.members:
            self.members[name].say(self.harness, is_answered=is_answered)

    @precondition(lambda self: self.members)
    @rule(name=names)
    def lets_go(self, name):
        if name in self.members:
            self.members[name].lets_go()

    @precondition(lambda self: self.members)
    @rule(name=names, topics=subscriptions)
    def subscribes(self, name, topics):
        if name in self.members:
            self.members[name].topics = topics
            self.members[name].says_all = True

    @rule(name=names)
    def leaves(self, name):
        member = self.members.pop(name, None)
        if member is not None and name in self.harness.group.metadata.members:
            self.harness.shard.consumer_heartbeat("g", ConsumerHeartbeatRequest(member_id=name, epoch=-1))

    @rule(name=names)
    def crashes(self, name):
        self.members.pop(name, None)

    @rule(name=st.sampled_from(["t", "u"]), partition_count=st.integers(1, 4))
    def topics_change(self, name, partition_count):
        known = self.harness.topics.topic(name)
        self.harness.topics.put(name, max(partition_count, known.partition_count if known else 0))

    @rule(name=st.sampled_from(["t", "u"]))
    def a_topic_is_deleted(self, name):
        if self.harness.topics.topic(name) is not None:
            self.harness.topics.delete(name)

    @rule(share=st.sampled_from([SESSION_MS // 2, INTERVAL_MS]))
    def time_passes(self, share):
        """Those that live say so, and do not sit on partitions for longer than they may."""
        for member in self.members.values():
            member.say(self.harness)
            member.lets_go()
        self.harness.advance(share)

    @rule()
    def the_coordinator_restarts(self):
        before = vars(self.harness.group.metadata) if self.harness.group is not None else None
        self.harness = self.harness.reloaded()
        assert (vars(self.harness.group.metadata) if self.harness.group is not None else None) == before

    @invariant()
    def nobody_shares_a_partition(self):
        owners = {}
        for member in getattr(self, "members", {}).values():
            for pair in pairs(member.owned):
                assert pair not in owners, f"{owners[pair]} and {member.name} own {pair}"
                owners[pair] = member.name

    def teardown(self):
        if not getattr(self, "members", None):
            return
        self.time_passes(SESSION_MS // 2)
        self.time_passes(SESSION_MS // 2)
        self.time_passes(SESSION_MS // 2)  # crashed members have left by now
        for _ in range(12):
            for member in self.members.values():
                member.say(self.harness)
                member.lets_go()
                self.nobody_shares_a_partition()
            self.harness.advance(INTERVAL_MS)
        assert self.harness.state == "Stable"
        wanted = {
            (topic.topic_id, partition)
            for topic in self.harness.topics.all_topics()
            if any(topic.name in member.topics for member in self.members.values())
            for partition in range(topic.partition_count)
        }
        assert {pair for member in self.members.values() for pair in pairs(member.owned)} == wanted
        for member in self.members.values():
            others = [other for other in self.members.values() if other is not member]
            assert not any(overlaps(member.owned, other.owned) for other in others)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
