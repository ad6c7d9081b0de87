"""Random changes of a cluster in any order: what must always hold, and the state after all brokers are back."""

from collections import defaultdict

from decisions_harness import DecisionsHarness
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.controller.decisions import cluster_changes
from headrace.controller.decisions.effects import DeleteTopic
from headrace.controller.decisions.leader_elections import NO_LEADER, ElectionStrategy
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.reassignments import Phase, phase
from headrace.controller.decisions.replica_states import ControllerReplicaState

BROKERS = range(1, 6)
TOPICS = ("clean", "unclean", "other")
SOME_BROKERS = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=4)


class Cluster(RuleBasedStateMachine):
    @initialize()
    def start_cluster(self):
        self.harness = DecisionsHarness(BROKERS)
        #: Where each partition is to be in the end.
        self.wanted = {}
        self.origin = {}
        #: Partitions whose ISR has changed, and the controller does not know.
        self.untold = set()
        #: What brokers have said that they deleted.
        self.deleted = set()
        self.forced = False
        self.is_leader_writing = False
        write = self.harness.tree.write
        self.harness.tree.write = lambda *args, **how: self.checked_write(write, *args, **how)
        perform = self.harness.perform
        self.harness.perform = lambda effect: self.checked_effect(perform, effect)
        self.allow_unclean()
        self.create("clean", [[1, 2, 3], [2, 3]])
        self.create("unclean", [[3, 1]])

    def allow_unclean(self):
        self.harness.context.unclean_topics["unclean"] = True

    def checked_write(self, write, partition, leadership, *, is_new=False):
        before = self.harness.tree.states.get(partition)
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
            assert not any(self.harness.context.is_online(one, partition) for one in before.isr)
        return version

    def checked_effect(self, perform, effect):
        if isinstance(effect, DeleteTopic):
            for index, replicas in self.harness.tree.topics[effect.topic].partitions.items():
                for broker in replicas:
                    assert (broker, effect.topic, index) in self.deleted
                    self.deleted.discard((broker, effect.topic, index))
        return perform(effect)

    @property
    def context(self):
        return self.harness.context

    def partitions(self):
        return sorted(self.harness.tree.states)

    def leader_writes(self, data, partition):
        """The leader changes its ISR, if it lives: with its session its writes end. Whether it did."""
        state = self.harness.tree.states.get(partition)
        if state is None or state.leader not in self.harness.up:
            return False
        replicas = self.harness.tree.topics[partition[0]].partitions[partition[1]]
        others = [one for one in replicas if one != state.leader and (one in self.harness.up or one in state.isr)]
        isr = [state.leader, *data.draw(st.lists(st.sampled_from(others), unique=True) if others else st.just([]))]
        self.leader_sets_isr(partition, isr)
        return True

    def leader_sets_isr(self, partition, isr):
        self.is_leader_writing = True
        self.harness.tree.change_isr(partition, isr)
        self.is_leader_writing = False
        self.untold.add(partition)

    @rule()
    def tell(self):
        told, self.untold = sorted(self.untold), set()
        self.harness.run(cluster_changes.on_isr_change(self.context, told))

    @rule()
    def catch_up(self):
        """All replicas that live."""
        for partition in self.partitions():
            leader = self.harness.tree.states[partition].leader
            if leader in self.harness.up:
                replicas = self.harness.tree.topics[partition[0]].partitions[partition[1]]
                self.leader_sets_isr(partition, [one for one in replicas if one in self.harness.up])
        self.tell()

    @rule(topic=st.sampled_from(TOPICS), assignments=st.lists(SOME_BROKERS, min_size=1, max_size=3))
    def create(self, topic, assignments):
        if topic in self.harness.tree.topics:
            return
        self.harness.create(topic, *map(tuple, assignments))
        for index, replicas in enumerate(assignments):
            self.wanted[topic, index] = self.origin[topic, index] = set(replicas)

    @rule(brokers=SOME_BROKERS)
    def kill(self, brokers):
        if gone := [one for one in brokers if one in self.harness.up]:
            self.harness.kill(*gone)

    @rule(brokers=SOME_BROKERS)
    def kill_and_start(self, brokers):
        self.kill(brokers[:-1])
        self.harness.start(brokers[-1])

    @rule(brokers=SOME_BROKERS)
    def start(self, brokers):
        self.harness.start(*brokers)

    @precondition(lambda self: self.harness.tree.states)
    @rule(data=st.data(), is_told=st.booleans())
    def change_isr(self, data, is_told):
        partition = data.draw(st.sampled_from(self.partitions()))
        if self.leader_writes(data, partition) and is_told:
            self.tell()

    @precondition(lambda self: self.harness.tree.states)
    @rule(data=st.data())
    def be_faster_once(self, data):
        partition = data.draw(st.sampled_from(self.partitions()))

        def act():
            self.harness.tree.before_write = lambda: None
            self.leader_writes(data, partition)

        self.harness.tree.before_write = act

    @precondition(lambda self: self.harness.tree.states)
    @rule(data=st.data(), brokers=st.none() | SOME_BROKERS)
    def reassign(self, data, brokers):
        partition = data.draw(st.sampled_from(self.partitions()))
        was_moving = self.context.assignment(partition).is_moving
        if not was_moving:
            self.origin[partition] = set(self.context.assignment(partition).replicas)
        if self.harness.reassign(partition, brokers) is None:
            assert was_moving or brokers is not None
            self.wanted[partition] = self.origin[partition] if brokers is None else set(brokers)

    @precondition(lambda self: self.harness.tree.topics)
    @rule(data=st.data())
    def delete(self, data):
        self.harness.delete(data.draw(st.sampled_from(sorted(self.harness.tree.topics))))

    @rule(broker=st.sampled_from(BROKERS), data=st.data())
    def answer_stops(self, broker, data):
        asked = sorted(self.harness.deleting.get(broker, ()))
        if broker in self.harness.up:
            failed = data.draw(st.lists(st.sampled_from(asked), unique=True)) if asked else []
            self.deleted |= {(broker, *one) for one in asked if one not in failed}
            self.harness.answer_stops(broker, failed=failed)

    @rule(broker=st.sampled_from(BROKERS))
    def stop(self, broker):
        if broker not in self.harness.up:
            return
        left = self.harness.run(cluster_changes.on_controlled_shutdown(self.context, broker))
        for partition in left:
            state = self.harness.tree.states[partition]
            others = [one for one in state.isr if one != broker and self.context.is_online(one, partition)]
            assert not others

    @precondition(lambda self: self.harness.tree.states)
    @rule(data=st.data(), broker=st.sampled_from(BROKERS))
    def lose_disk(self, data, broker):
        partition = data.draw(st.sampled_from(self.partitions()))
        if broker in self.harness.up:
            self.harness.run(cluster_changes.on_log_dir_failure(self.context, broker))
            self.harness.run(cluster_changes.on_leader_and_isr_response(self.context, broker, [partition], []))

    @rule()
    def fail_over(self):
        self.untold.clear()
        self.harness.fail_over()
        self.allow_unclean()
        self.harness.run(cluster_changes.on_unclean_election_enabled(self.context, "unclean"))

    @precondition(lambda self: self.harness.tree.states)
    @rule(how=st.sampled_from([ElectionStrategy.PREFERRED, ElectionStrategy.UNCLEAN]))
    def elect(self, how):
        self.forced = how is ElectionStrategy.UNCLEAN
        self.harness.run(cluster_changes.elect_leaders(self.context, [*self.partitions(), ("none", 0)], how))
        self.forced = False

    @rule()
    def rebalance(self):
        self.harness.run(cluster_changes.rebalance_leaders(self.context, 10))

    @invariant()
    def the_tree_is_sound(self):
        for (topic, index), state in self.harness.tree.states.items():
            replicas = self.harness.tree.topics[topic].partitions[index]
            assert len(set(replicas)) == len(replicas)
            assert state.isr
            assert state.leader in (NO_LEADER, *state.isr)
            assert set(state.isr) <= set(replicas)

    @invariant()
    def the_context_is_the_tree(self):
        assert set(self.context.topics) == set(self.harness.tree.topics)
        for topic, assigned in self.harness.tree.topics.items():
            assert self.context.topic_assignment(topic) == assigned
        assert set(self.context.leaderships) == set(self.harness.tree.states)
        for partition, known in self.context.leaderships.items():
            there = self.harness.tree.states[partition]
            # Only leaders' changes of the ISR can be news.
            assert known == there._replace(isr=known.isr, version=known.version)
            assert known.version <= there.version
            assert known.version < there.version or known == there
        assert set(self.context.topics_to_delete) == self.harness.tree.topics_to_delete

    @invariant()
    def states_fit_what_is_known(self):
        context = self.context
        for partition in context.partitions():
            state, leadership = context.partition_state(partition), context.leadership(partition)
            if context.has_deletion_started(partition[0]):
                assert state is ControllerPartitionState.NON_EXISTENT
                continue
            if state is ControllerPartitionState.ONLINE:
                assert context.is_online(leadership.leader, partition, include_shutting_down=True)
                if partition not in self.untold:
                    assert set(leadership.isr) <= self.harness.up
            elif state is ControllerPartitionState.NEW:
                assert leadership is None
                assert not context.online_replicas(partition)
            else:
                assert state is ControllerPartitionState.OFFLINE
                might_lead = context.assignment(partition).origin if partition[0] == "unclean" else leadership.isr
                assert not context.online_replicas(partition) & set(might_lead)
        for replica in context.replicas_of(context.partitions()):
            life = context.replica_state(replica)
            assert life is not ControllerReplicaState.NON_EXISTENT
            if context.has_deletion_started(replica.topic):
                assert life.name.startswith("DELETION")
            if life is ControllerReplicaState.DELETION_STARTED:
                assert replica.broker in self.harness.up

    @invariant()
    def a_move_goes_on_as_soon_as_it_can(self):
        for partition in set(self.context.moving_partitions) - self.untold:
            assignment, isr = self.context.assignment(partition), self.context.leadership(partition).isr
            if phase(assignment, isr) is Phase.COMPLETE:
                assert not self.context.online_replicas(partition) & set(assignment.target) & set(isr)

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
        for state in (ControllerPartitionState.NEW, ControllerPartitionState.ONLINE, ControllerPartitionState.OFFLINE):
            assert context.partitions_in(state) == sorted(
                one for one in context.partitions() if context.partition_state(one) is state
            )

    def teardown(self):
        """All brokers are started anew, all replicas catch up, all answers come."""
        if not hasattr(self, "harness"):
            return
        harness, tree = self.harness, self.harness.tree
        tree.before_write = lambda: None
        for broker in BROKERS:
            harness.start(broker)
        for _ in range(4):
            for partition in self.partitions():
                state = tree.states.get(partition)
                if state is not None and state.leader != NO_LEADER:
                    self.leader_sets_isr(partition, tree.topics[partition[0]].partitions[partition[1]])
            self.tell()
            for broker in BROKERS:
                self.deleted |= {(broker, *one) for one in harness.deleting[broker]}
                harness.answer_stops(broker)
        assert not tree.topics_to_delete
        assert not self.context.moving_partitions
        for topic, assigned in tree.topics.items():
            assert not assigned.adding_replicas
            assert not assigned.removing_replicas
            for index, replicas in assigned.partitions.items():
                assert set(replicas) == self.wanted[topic, index]
                assert self.context.partition_state((topic, index)) is ControllerPartitionState.ONLINE
                assert set(tree.states[topic, index].isr) == set(replicas)
        assert set(tree.states) == {(topic, index) for topic in tree.topics for index in tree.topics[topic].partitions}


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
