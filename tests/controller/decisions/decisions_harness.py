"""A cluster for the decisions without I/O: ZooKeeper is a dict, and brokers record their requests."""

from collections import defaultdict
from uuid import UUID

from headrace.controller.decisions import cluster_changes
from headrace.controller.decisions.broker_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.effects import (
    ClearReassignments,
    DeleteTopic,
    ReadStates,
    Send,
    WriteStates,
    WriteTopic,
)
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.znodes import BrokerRegistration, Endpoint, TopicAssignment


def live_broker(broker_id, epoch=1, rack=None):
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"host{broker_id}", 9092)
    return LiveBroker(broker_id, epoch, BrokerRegistration((endpoint,), 0, rack))


class Tree:
    """The content of ZooKeeper. Every write of a state is checked against the state before."""

    def __init__(self):
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[tuple[str, int], Leadership] = {}
        self.topics_to_delete: set[str] = set()
        self.controller_epoch = 0
        self.state_writes = 0
        #: Called before a write: someone else may be faster.
        self.before_write = lambda: None

    def write(self, partition, leadership, *, is_new=False):
        """The new version, or None."""
        known = self.states.get(partition)
        if is_new:
            if known is not None:
                return None
            self.states[partition] = leadership._replace(version=0)
            self.state_writes += 1
            return 0
        if known is None or known.version != leadership.version:
            return None
        assert leadership.leader_epoch >= known.leader_epoch
        self.states[partition] = leadership._replace(version=known.version + 1)
        self.state_writes += 1
        return known.version + 1

    def change_isr(self, partition, isr):
        """As a leader does: in its epoch, by a versioned write."""
        known = self.states[partition]
        assert known.leader in isr
        self.write(partition, known._replace(isr=tuple(isr)))


class DecisionsHarness:
    def __init__(self, brokers=(1, 2, 3), *, racks=None):
        self.tree = Tree()
        self.epochs = dict.fromkeys(brokers, 1)
        self.racks = racks or {}
        self.up = set(brokers)
        self.sent = []
        self.ended_moves = []
        #: By broker, partitions that it was told to delete, and has not answered for.
        self.deleting = defaultdict(set)
        self.fail_over()

    # The controller

    def fail_over(self, controller_id=1):
        """Another controller reads the tree."""
        self.tree.controller_epoch += 1
        self.context = ControllerContext(controller_id, self.tree.controller_epoch)
        for broker in sorted(self.up):
            self.context.add_broker(self._live(broker))
        for topic, assigned in self.tree.topics.items():
            self.context.add_topic(topic, assigned)
        for partition, leadership in self.tree.states.items():
            self.context.set_leadership(partition, leadership)
        for topic in sorted(self.tree.topics_to_delete):
            self.context.queue_deletion(topic)
        self.run(cluster_changes.on_controller_failover(self.context))

    def run(self, steps):
        """Performs the effects; what the steps return."""
        answer = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = self.perform(effect)

    def perform(self, effect):
        tree = self.tree
        if isinstance(effect, WriteStates):
            assert len({write.partition for write in effect.writes}) == len(effect.writes)
            tree.before_write()
            return {
                one.partition: tree.write(one.partition, one.leadership, is_new=one.is_new) for one in effect.writes
            }
        if isinstance(effect, ReadStates):
            return {partition: tree.states.get(partition) for partition in effect.partitions}
        if isinstance(effect, WriteTopic):
            tree.topics[effect.topic] = effect.assignment
        elif isinstance(effect, DeleteTopic):
            del tree.topics[effect.topic]
            tree.topics_to_delete.discard(effect.topic)
            for partition in [one for one in tree.states if one[0] == effect.topic]:
                del tree.states[partition]
        elif isinstance(effect, ClearReassignments):
            self.ended_moves += effect.partitions
        else:
            assert isinstance(effect, Send)
            assert effect.requests
            for request in effect.requests:
                self.receive(request)
        return None

    def receive(self, request):
        assert request.broker_id in self.up
        assert request.broker_epoch == self.epochs[request.broker_id]
        assert request.controller_epoch == self.tree.controller_epoch
        self.sent.append(request)
        if isinstance(request, StopReplica):
            self.deleting[request.broker_id] |= {one[:2] for one in request.partitions if one.is_deleted}

    # What happens

    def create(self, topic, *assignment):
        """Creates a topic's znode, and notifies the controller."""
        known = self.tree.topics.get(topic)
        partitions = {**known.partitions, **dict(enumerate(assignment))} if known else dict(enumerate(assignment))
        moves = (known.adding_replicas, known.removing_replicas) if known else ()
        self.tree.topics[topic] = TopicAssignment(UUID(int=len(topic)), partitions, *moves)
        return self.run(cluster_changes.update_topics(self.context, {topic: self.tree.topics[topic]}))

    def kill(self, *brokers):
        for broker in brokers:
            self.up.discard(broker)
            self.deleting.pop(broker, None)
        self.see_brokers()

    def start(self, *brokers):
        """If they live already, they are restarted too fast to be noticed."""
        for broker in brokers:
            self.up.add(broker)
            self.deleting.pop(broker, None)
            self.epochs[broker] = self.epochs.get(broker, 0) + 1
        self.see_brokers()

    def see_brokers(self):
        self.run(cluster_changes.update_brokers(self.context, [self._live(broker) for broker in sorted(self.up)]))

    def change_isr(self, partition, isr, *, is_told=True):
        self.tree.change_isr(partition, isr)
        if is_told:
            self.run(cluster_changes.on_isr_change(self.context, [partition]))

    def reassign(self, partition, target, **how):
        return self.run(cluster_changes.reassign(self.context, {partition: target}, **how))[partition]

    def delete(self, *topics):
        self.tree.topics_to_delete |= set(topics)
        unknown = self.run(cluster_changes.delete_topics(self.context, topics))
        self.tree.topics_to_delete -= set(unknown)
        return unknown

    def answer_stops(self, broker, *, failed=()):
        deleted = self.deleting.pop(broker, set()) - set(failed)
        self.run(cluster_changes.on_stop_replica_response(self.context, broker, sorted(deleted), failed))

    # What can be seen

    def take_sent(self):
        """Requests since the last time, as short tuples: kind, broker, what."""
        short = []
        for request in self.sent:
            if isinstance(request, LeaderAndIsr):
                told = [
                    (*one[:2], one.leadership.leader, one.leadership.leader_epoch, one.is_new) for one in request[4]
                ]
                short.append(("lead", request.broker_id, told))
            elif isinstance(request, UpdateMetadata):
                short.append(("metadata", request.broker_id, [one[:3] for one in request.partitions]))
            else:
                short.append(("stop", request.broker_id, [one[:4] for one in request.partitions]))
        self.sent.clear()
        return short

    def led(self, partition):
        state = self.tree.states[partition]
        return state.leader, state.isr

    def _live(self, broker):
        return live_broker(broker, self.epochs[broker], self.racks.get(broker))
