"""Anything may happen to a cluster in any order: what must always hold, and how everything ends when all are back."""

from collections import defaultdict

from controllerbed import Bed
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.controller import duties
from headrace.controller.decisions import DeleteTopic, Election
from headrace.controller.elections import NO_LEADER
from headrace.controller.partition_states import PartitionLife
from headrace.controller.reassignments import Phase, phase
from headrace.controller.replica_states import ReplicaLife

BROKERS = range(1, 6)
TOPICS = ("clean", "unclean", "other")
SOME_BROKERS = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=4)


class Cluster(RuleBasedStateMachine):
    @initialize()
    def start_cluster(self):
        self.bed = Bed(BROKERS)
        #: Where each partition is to be in the end.
        self.wanted = {}
        self.origin = {}
        #: Partitions whose ISR has changed, and the controller does not know.
        self.untold = set()
        #: What brokers have said that they deleted.
        self.deleted = set()
        self.forced = False
        self.is_leader_writing = False
        write = self.bed.tree.write
        self.bed.tree.write = lambda *args, **how: self.checked_write(write, *args, **how)
        perform = self.bed.perform
        self.bed.perform = lambda effect: self.checked_effect(perform, effect)
        self.allow_unclean()
        self.create("clean", [[1, 2, 3], [2, 3]])
        self.create("unclean", [[3, 1]])

    def allow_unclean(self):
        self.bed.context.unclean_topics["unclean"] = True

    def checked_write(self, write, partition, leadership, *, is_new=False):
        before = self.bed.tree.states.get(partition)
        version = write(partition, leadership, is_new=is_new)
        if version is None or is_new:
            return version
        if self.is_leader_writing:
            return version
        assert leadership.leader_epoch == before.leader_epoch + 1
        may_lose = self.forced or partition[0] == "unclean"
        if not set(leadership.isr) <= set(before.isr):
            assert may_lose
            assert leadership.isr == (leadership.leader,)
            assert leadership.is_recovering
            assert not any(self.bed.context.is_online(one, partition) for one in before.isr)
        return version

    def checked_effect(self, perform, effect):
        if isinstance(effect, DeleteTopic):
            for index, replicas in self.bed.tree.topics[effect.topic].partitions.items():
                for broker in replicas:
                    assert (broker, effect.topic, index) in self.deleted
                    self.deleted.discard((broker, effect.topic, index))
        return perform(effect)

    @property
    def context(self):
        return self.bed.context

    def partitions(self):
        return sorted(self.bed.tree.states)

    def leader_writes(self, data, partition):
        """The leader changes its ISR, if it lives: with its session its writes end. Whether it did."""
        state = self.bed.tree.states.get(partition)
        if state is None or state.leader not in self.bed.up:
            return False
        replicas = self.bed.tree.topics[partition[0]].partitions[partition[1]]
        others = [one for one in replicas if one != state.leader and (one in self.bed.up or one in state.isr)]
        isr = [state.leader, *data.draw(st.lists(st.sampled_from(others), unique=True) if others else st.just([]))]
        self.leader_sets_isr(partition, isr)
        return True

    def leader_sets_isr(self, partition, isr):
        self.is_leader_writing = True
        self.bed.tree.change_isr(partition, isr)
        self.is_leader_writing = False
        self.untold.add(partition)

    @rule()
    def tell(self):
        told, self.untold = sorted(self.untold), set()
        self.bed.run(duties.isr_changed(self.context, told))

    @rule()
    def catch_up(self):
        """All replicas that live."""
        for partition in self.partitions():
            leader = self.bed.tree.states[partition].leader
            if leader in self.bed.up:
                replicas = self.bed.tree.topics[partition[0]].partitions[partition[1]]
                self.leader_sets_isr(partition, [one for one in replicas if one in self.bed.up])
        self.tell()

    @rule(topic=st.sampled_from(TOPICS), assignments=st.lists(SOME_BROKERS, min_size=1, max_size=3))
    def create(self, topic, assignments):
        if topic in self.bed.tree.topics:
            return
        self.bed.create(topic, *map(tuple, assignments))
        for index, replicas in enumerate(assignments):
            self.wanted[topic, index] = self.origin[topic, index] = set(replicas)

    @rule(brokers=SOME_BROKERS)
    def kill(self, brokers):
        if gone := [one for one in brokers if one in self.bed.up]:
            self.bed.kill(*gone)

    @rule(brokers=SOME_BROKERS)
    def kill_and_start(self, brokers):
        self.kill(brokers[:-1])
        self.bed.start(brokers[-1])

    @rule(brokers=SOME_BROKERS)
    def start(self, brokers):
        self.bed.start(*brokers)

    @precondition(lambda self: self.bed.tree.states)
    @rule(data=st.data(), is_told=st.booleans())
    def change_isr(self, data, is_told):
        partition = data.draw(st.sampled_from(self.partitions()))
        if self.leader_writes(data, partition) and is_told:
            self.tell()

    @precondition(lambda self: self.bed.tree.states)
    @rule(data=st.data())
    def be_faster_once(self, data):
        partition = data.draw(st.sampled_from(self.partitions()))

        def act():
            self.bed.tree.before_write = lambda: None
            self.leader_writes(data, partition)

        self.bed.tree.before_write = act

    @precondition(lambda self: self.bed.tree.states)
    @rule(data=st.data(), brokers=st.none() | SOME_BROKERS)
    def reassign(self, data, brokers):
        partition = data.draw(st.sampled_from(self.partitions()))
        was_moving = self.context.assignment(partition).is_moving
        if not was_moving:
            self.origin[partition] = set(self.context.assignment(partition).replicas)
        if self.bed.reassign(partition, brokers) is None:
            assert was_moving or brokers is not None
            self.wanted[partition] = self.origin[partition] if brokers is None else set(brokers)

    @precondition(lambda self: self.bed.tree.topics)
    @rule(data=st.data())
    def delete(self, data):
        self.bed.delete(data.draw(st.sampled_from(sorted(self.bed.tree.topics))))

    @rule(broker=st.sampled_from(BROKERS), data=st.data())
    def answer_stops(self, broker, data):
        asked = sorted(self.bed.deleting.get(broker, ()))
        if broker in self.bed.up:
            failed = data.draw(st.lists(st.sampled_from(asked), unique=True)) if asked else []
            self.deleted |= {(broker, *one) for one in asked if one not in failed}
            self.bed.answer_stops(broker, failed=failed)

    @rule(broker=st.sampled_from(BROKERS))
    def stop(self, broker):
        if broker not in self.bed.up:
            return
        left = self.bed.run(duties.broker_stops(self.context, broker))
        for partition in left:
            state = self.bed.tree.states[partition]
            others = [one for one in state.isr if one != broker and self.context.is_online(one, partition)]
            assert not others

    @precondition(lambda self: self.bed.tree.states)
    @rule(data=st.data(), broker=st.sampled_from(BROKERS))
    def lose_disk(self, data, broker):
        partition = data.draw(st.sampled_from(self.partitions()))
        if broker in self.bed.up:
            self.bed.run(duties.disks_failed(self.context, broker))
            self.bed.run(duties.leaders_answered(self.context, broker, [partition], []))

    @rule()
    def fail_over(self):
        self.untold.clear()
        self.bed.fail_over()
        self.allow_unclean()
        self.bed.run(duties.unclean_allowed(self.context, "unclean"))

    @precondition(lambda self: self.bed.tree.states)
    @rule(how=st.sampled_from([Election.PREFERRED, Election.UNCLEAN]))
    def elect(self, how):
        self.forced = how is Election.UNCLEAN
        self.bed.run(duties.elect_leaders(self.context, [*self.partitions(), ("none", 0)], how))
        self.forced = False

    @rule()
    def rebalance(self):
        self.bed.run(duties.rebalance_leaders(self.context, 10))

    @invariant()
    def the_tree_is_sound(self):
        for (topic, index), state in self.bed.tree.states.items():
            replicas = self.bed.tree.topics[topic].partitions[index]
            assert len(set(replicas)) == len(replicas)
            assert state.isr
            assert state.leader in (NO_LEADER, *state.isr)
            assert set(state.isr) <= set(replicas)

    @invariant()
    def the_context_is_the_tree(self):
        assert set(self.context.topics) == set(self.bed.tree.topics)
        for topic, assigned in self.bed.tree.topics.items():
            assert self.context.topic_assignment(topic) == assigned
        assert set(self.context.leaderships) == set(self.bed.tree.states)
        for partition, known in self.context.leaderships.items():
            there = self.bed.tree.states[partition]
            # Only leaders' changes of the ISR can be news.
            assert known == there._replace(isr=known.isr, version=known.version)
            assert known.version <= there.version
            assert known.version < there.version or known == there
        assert set(self.context.topics_to_delete) == self.bed.tree.wishes

    @invariant()
    def states_fit_what_is_known(self):
        context = self.context
        for partition in context.partitions():
            state, leadership = context.partition_state(partition), context.leadership(partition)
            if context.has_begun_deletion(partition[0]):
                assert state is PartitionLife.NON_EXISTENT
                continue
            if state is PartitionLife.ONLINE:
                assert context.is_online(leadership.leader, partition, with_stopping=True)
                if partition not in self.untold:
                    assert set(leadership.isr) <= self.bed.up
            elif state is PartitionLife.NEW:
                assert leadership is None
                assert not context.online(partition)
            else:
                assert state is PartitionLife.OFFLINE
                might_lead = context.assignment(partition).origin if partition[0] == "unclean" else leadership.isr
                assert not context.online(partition) & set(might_lead)
        for replica in context.replicas_of(context.partitions()):
            life = context.replica_state(replica)
            assert life is not ReplicaLife.NON_EXISTENT
            if context.has_begun_deletion(replica.topic):
                assert life.name.startswith("DELETION")
            if life is ReplicaLife.DELETION_STARTED:
                assert replica.broker in self.bed.up

    @invariant()
    def a_move_goes_on_as_soon_as_it_can(self):
        for partition in set(self.context.moving_partitions) - self.untold:
            assignment, isr = self.context.assignment(partition), self.context.leadership(partition).isr
            if phase(assignment, isr) is Phase.COMPLETE:
                assert not self.context.online(partition) & set(assignment.target) & set(isr)

    @invariant()
    def indexes_say_what_a_search_says(self):
        context = self.context
        on, led, moving = defaultdict(set), defaultdict(set), []
        for partition in context.partitions():
            assignment, leadership = context.assignment(partition), context.leadership(partition)
            for broker in assignment.replicas:
                on[broker].add(partition)
            if leadership is not None:
                led[leadership.leader].add(partition)
            if assignment.is_moving:
                moving.append(partition)
        for broker in BROKERS:
            assert context.partitions_of_broker(broker) == on[broker]
            assert context.partitions_led_by(broker) == led[broker]
        assert context.moving_partitions == sorted(moving)
        for state in (PartitionLife.NEW, PartitionLife.ONLINE, PartitionLife.OFFLINE):
            assert context.partitions_in(state) == sorted(
                one for one in context.partitions() if context.partition_state(one) is state
            )

    def teardown(self):
        """All brokers are started anew, all replicas catch up, all answers come."""
        if not hasattr(self, "bed"):
            return
        bed, tree = self.bed, self.bed.tree
        tree.before_write = lambda: None
        for broker in BROKERS:
            bed.start(broker)
        for _ in range(4):
            for partition in self.partitions():
                state = tree.states.get(partition)
                if state is not None and state.leader != NO_LEADER:
                    self.leader_sets_isr(partition, tree.topics[partition[0]].partitions[partition[1]])
            self.tell()
            for broker in BROKERS:
                self.deleted |= {(broker, *one) for one in bed.deleting[broker]}
                bed.answer_stops(broker)
        assert not tree.wishes
        assert not self.context.moving_partitions
        for topic, assigned in tree.topics.items():
            assert not assigned.adding_replicas
            assert not assigned.removing_replicas
            for index, replicas in assigned.partitions.items():
                assert set(replicas) == self.wanted[topic, index]
                assert self.context.partition_state((topic, index)) is PartitionLife.ONLINE
                assert set(tree.states[topic, index].isr) == set(replicas)
        assert set(tree.states) == {(topic, index) for topic in tree.topics for index in tree.topics[topic].partitions}


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
