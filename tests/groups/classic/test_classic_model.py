"""Members that join, leave, crash and delay at random while the clock jumps. These rules must hold in every case:

- Every transition between states is in the table (the group asserts it).
- Every JoinGroup and SyncGroup that was accepted is answered exactly once, at the latest when the group is unloaded.
- The generation only grows, and a coordinator that loads the group finds the last complete generation.
- All members of a generation agree on leader and protocol, and each gets the assignment that the leader sent.
- Without further events a group becomes stable: waiting requests are answered, and silent members are removed.
"""

from contextlib import suppress

from group_harness import GroupHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.group import JoinRequest, LeavingMember, SyncRequest
from headrace.protocol.errors import KafkaError

NAMES = st.sampled_from("abcdef")
PROTOCOLS = st.sampled_from([("range",), ("sticky", "range"), ("range", "sticky")])


class Waiting:
    """A callback that may be called once."""

    def __init__(self, on_answer):
        self.count = 0
        self._on_answer = on_answer

    def __call__(self, answer):
        self.count += 1
        self._on_answer(answer)


class Groups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.harness = GroupHarness()
        self.waiting = []
        self.ids = {}
        self.generations = {}
        self.joined = {}
        self.last_generation = 0

    def ask(self, send, on_answer):
        waiting = Waiting(on_answer)
        try:
            send(waiting)
        except KafkaError:
            assert waiting.count == 0
        else:
            self.waiting.append(waiting)

    @rule(
        name=NAMES,
        protocols=PROTOCOLS,
        is_static=st.booleans(),
        is_anew=st.booleans(),
        needs_id=st.booleans(),
        session_s=st.integers(6, 20),
        rebalance_s=st.integers(1, 40),
    )
    def join(self, name, protocols, is_static, is_anew, needs_id, session_s, rebalance_s):
        if is_anew:
            self.ids.pop(name, None)
        joining = JoinRequest(
            member_id=self.ids.get(name, ""),
            instance_id=name if is_static else None,
            client_id=name,
            protocol_type="consumer",
            protocols=tuple((each, name.encode()) for each in protocols),
            session_timeout_ms=1_000 * session_s,
            rebalance_timeout_ms=1_000 * rebalance_s,
            needs_member_id=needs_id,
        )

        def answered(joined):
            if joined.member_id:
                self.ids[name] = joined.member_id
            if not joined.error:
                self.generations[name] = joined.generation_id
                known = self.joined.setdefault(joined.generation_id, joined)
                assert joined.protocol_name == known.protocol_name
                if joined.members and not joined.skip_assignment:
                    assert joined.leader_id == joined.member_id

        self.ask(lambda respond: self.harness.shard.join("g", joining, respond), answered)

    @rule(name=NAMES)
    def sync(self, name):
        if name not in self.generations or self.harness.group is None:
            return
        member_id, generation_id = self.ids.get(name, ""), self.generations[name]
        assignments = {
            each.member_id: f"{generation_id} {each.client_id}".encode() for each in self.harness.group.members
        }
        syncing = SyncRequest(member_id=member_id, generation_id=generation_id, assignments=assignments)

        def answered(synced):
            if not synced.error:
                assert synced.assignment in (b"", f"{generation_id} {name}".encode())

        self.ask(lambda respond: self.harness.group.sync(syncing, respond), answered)

    @rule(name=NAMES)
    def heartbeat(self, name):
        if self.harness.group is not None:
            with suppress(KafkaError):
                self.harness.group.heartbeat(self.ids.get(name, ""), self.generations.get(name, -1), None)

    @rule(name=NAMES, by_instance=st.booleans())
    def leave(self, name, by_instance):
        if self.harness.group is not None:
            member_id = "" if by_instance else self.ids.get(name, "")
            self.harness.group.leave([LeavingMember(member_id=member_id, instance_id=name if by_instance else None)])

    @rule(by_ms=st.sampled_from([1, 500, 3_000, 6_000, 15_000, 45_000]))
    def time_passes(self, by_ms):
        self.harness.advance(by_ms)

    @rule()
    def all_fall_silent(self):
        self.harness.advance(2_000_000)
        assert all(waiting.count == 1 for waiting in self.waiting)
        assert self.harness.group is None or self.harness.state is ClassicGroupState.EMPTY
        assert len(self.harness.timer) == 0

    @rule()
    def the_coordinator_moves(self):
        settled = self.harness.group is not None and self.harness.state in (
            ClassicGroupState.STABLE,
            ClassicGroupState.EMPTY,
        )
        before = self.harness.group
        self.harness.shard.unload()
        assert all(waiting.count == 1 for waiting in self.waiting)
        assert len(self.harness.timer) == 0
        self.harness = GroupHarness(batches=self.harness.journal.written)
        after = self.harness.group
        if settled and before.generation_id:
            assert after.generation_id == before.generation_id
            assert [each.member_id for each in after.members] == [each.member_id for each in before.members]
            assert [each.assignment for each in after.members] == [each.assignment for each in before.members]
        self.last_generation = 0 if after is None else after.generation_id
        self.joined.clear()  # a generation that was never settled is counted anew

    @invariant()
    def answers_come_once(self):
        assert all(waiting.count <= 1 for waiting in self.waiting)

    @invariant()
    def generations_grow(self):
        if self.harness.group is not None:
            assert self.harness.group.generation_id >= self.last_generation
            self.last_generation = self.harness.group.generation_id

    @invariant()
    def states_mean_what_they_say(self):
        group = self.harness.group
        if group is None:
            return
        members = list(group.members)
        assert bool(members) or group.state in (ClassicGroupState.EMPTY, ClassicGroupState.PREPARING)
        if group.state is ClassicGroupState.EMPTY:
            assert not members
        elif members:
            assert group.members.leader_id in group.members
        if group.state is not ClassicGroupState.PREPARING:
            assert not any(member.awaiting_join for member in members)
        if group.state is not ClassicGroupState.COMPLETING:
            assert not any(member.awaiting_sync for member in members)
        assert all(member.session is not None or member.is_waiting for member in members)


Groups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
