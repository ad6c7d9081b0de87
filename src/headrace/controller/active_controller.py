"""One broker's time as controller: from the election, through all that happens, until it is over.

A term begins by reading the whole tree, with watches on all that may change. Then every event is handled by reading
what it is about and running what ``duties.py`` says follows from it. A term holds all that depends on being controller
(context, epoch, watches' readings), and is thrown away as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import Any

from headrace.controller.cluster_reader import ClusterReader
from headrace.controller.controller_election import ControllerEpoch
from headrace.controller.decisions import cluster_changes
from headrace.controller.decisions.broker_requests import Channel, LeaderAndIsr, StopReplica
from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.effect_runner import EffectRunner, WrittenState, read_written_states
from headrace.controller.events import (
    ApiPartitionReassignment,
    AutoPreferredReplicaLeaderElection,
    BrokerChange,
    BrokerModifications,
    ControlledShutdown,
    ControllerChange,
    Event,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    LogDirEventNotification,
    PartitionModifications,
    PartitionReassignment,
    PreferredReplicaLeaderElection,
    ReplicaLeaderElection,
    RequestEvent,
    TopicChange,
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
    TopicUncleanLeaderElectionEnable,
    UncleanLeaderElectionEnable,
)
from headrace.controller.fenced_writer import FencedWriter
from headrace.coordination.interface import Coordination
from headrace.coordination.paths import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS, delete_topic_path
from headrace.coordination.znodes import MalformedZnodeError, TopicPartition
from headrace.protocol.errors import ElectionNotNeeded, ErrorCode, KafkaError, StaleControllerEpoch

logger = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings under Kafka's names; ``broker/configs/table_cluster.py`` has them."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    delete_topic_enable: bool = True
    #: ``unclean.leader.election.enable`` of the brokers. RequestEvent whenever it matters, as it can change.
    is_unclean_by_default: Callable[[], bool] = lambda: False


class ActiveController:
    def __init__(
        self,
        broker_id: int,
        won: ControllerEpoch,
        coordination: Coordination,
        channel: Channel,
        settings: ControllerSettings,
        put: Callable[[Event], None],
    ) -> None:
        self.epoch = won.epoch
        self.context = ControllerContext(broker_id, won.epoch)
        self._settings = settings
        self._put = put
        self._coordination = coordination
        self._tree = ClusterReader(coordination, put)
        self._writes = FencedWriter(coordination, won.epoch_version)
        self._effects = EffectRunner(self._writes, channel, self.context)
        self._restarted: list[LiveBroker] = []
        self._led_by_restarted: list[TopicPartition] = []

    async def load(self) -> None:
        """Reads everything. Nobody is told anything yet.

        Notifications are cleared first: what they tell of is in what is read afterwards.
        """
        context, tree = self.context, self._tree
        context.is_unclean_by_default = self._settings.is_unclean_by_default()
        notifications = [*await tree.isr_change_paths(), *await tree.log_dir_failure_paths()]
        await self._writes.delete_znodes(notifications)
        for broker in await tree.brokers():
            context.add_broker(broker)
        wishes = await tree.topics_to_delete()
        names = await tree.topics()
        for topic, assigned in (await tree.assignments(names)).items():
            context.add_topic(topic, assigned)
        context.unclean_topics.update(await tree.unclean_topics(context.topics))
        states = await read_written_states(self._coordination, context.partitions())
        for partition, state in states.items():
            if state is not None:
                context.set_leadership(partition, state.leadership)
        self._notice_restarts({partition: state for partition, state in states.items() if state is not None})
        if self._settings.delete_topic_enable:
            for topic in wishes:
                if context.has_topic(topic):
                    context.queue_deletion(topic)

    def _notice_restarts(self, states: Mapping[TopicPartition, WrittenState]) -> None:
        """Brokers that were restarted, or lost their session, while nobody was controller to notice.

        Each registration takes its broker out of the ISRs, and so its states are written anew. One that is in an ISR
        from before it was registered is not what it was then: a host that lost its power may have lost records that
        were committed. So where others of the ISR have lived on it counts as dead first, and then as one that has come.
        Where all were registered anew, as when the tree was away for long, nobody is better than they are: there is a
        new epoch, and clients do not see the partition without a leader.
        """
        context = self.context
        epochs = {broker.broker_id: broker.epoch for broker in context.brokers}
        aside: set[int] = set()
        for state in states.values():
            alive = [broker_id for broker_id in state.leadership.isr if broker_id in epochs]
            restarted = [broker_id for broker_id in alive if state.zxid < epochs[broker_id]]
            if len(restarted) < len(alive):
                aside.update(restarted)
        self._restarted = [broker for broker in context.brokers if broker.broker_id in aside]
        for broker_id in aside:
            context.remove_broker(broker_id)
        self._led_by_restarted = [
            partition
            for partition, state in states.items()
            if context.has_leader_online(partition) and state.zxid < epochs[state.leadership.leader]
        ]

    async def begin(self) -> None:
        """All brokers are told, and what was going on goes on."""
        anew = [one for one in self._led_by_restarted if not self.context.is_to_be_deleted(one[0])]
        await self._effects.run(cluster_changes.on_controller_failover(self.context, anew))
        if self._restarted:
            names = [broker.broker_id for broker in self._restarted]
            logger.warning("brokers %s were restarted while there was no controller", names)
            seen = [*self.context.brokers, *self._restarted]
            await self._effects.run(cluster_changes.update_brokers(self.context, seen))
        await self._delete_topics()
        await self._reassign_as_wished()
        await self._elect_as_wished()

    async def handle(self, event: Event) -> None:
        """
        :raises ControllerMoved: if we are not controller any more.
        """
        try:
            await HANDLERS[type(event)](self, event)
        except StaleControllerEpoch:
            raise
        except KafkaError as error:
            if not isinstance(event, RequestEvent):
                raise
            event.fail(error)

    # Brokers

    async def _see_brokers(self, _: BrokerChange | BrokerModifications) -> None:
        await self._effects.run(cluster_changes.update_brokers(self.context, await self._tree.brokers()))

    async def _log_dirs_failed(self, _: LogDirEventNotification) -> None:
        paths, brokers = await self._tree.log_dir_failures()
        await self._writes.delete_znodes(paths)
        for broker in sorted(brokers):
            await self._effects.run(cluster_changes.on_log_dir_failure(self.context, broker))

    async def _leaders_answered(self, event: LeaderAndIsrResponseReceived) -> None:
        request, (error, partitions) = event.request, event.answer
        if not self._is_of_now(request):
            return
        if error is not ErrorCode.none:
            logger.error("broker %d refused to be told who leads: %s", request.broker_id, error.name)
            if error is ErrorCode.stale_controller_epoch:
                # It knows a later controller than us; then we shall see that, too.
                self._put(ControllerChange())
            return
        lost = [partition for partition, code in partitions.items() if code is ErrorCode.kafka_storage_error]
        fine = [partition for partition, code in partitions.items() if code is ErrorCode.none]
        await self._effects.run(cluster_changes.on_leader_and_isr_response(self.context, request.broker_id, lost, fine))

    async def _stop_answered(self, event: TopicDeletionStopReplicaResponseReceived) -> None:
        request, (error, partitions) = event.request, event.answer
        if not self._is_of_now(request):
            return
        asked = [one[:2] for one in request.partitions if one.is_deleted]
        codes = {partition: error if error is not ErrorCode.none else partitions.get(partition) for partition in asked}
        deleted = [partition for partition, code in codes.items() if code is ErrorCode.none]
        failed = [partition for partition, code in codes.items() if code is not ErrorCode.none]
        if failed:
            logger.error("broker %d could not delete %d replicas, e.g. %s", request.broker_id, len(failed), failed[0])
        await self._effects.run(
            cluster_changes.on_stop_replica_response(self.context, request.broker_id, deleted, failed)
        )

    def _is_of_now(self, request: LeaderAndIsr | StopReplica) -> bool:
        """Not an answer to a controller that we were before, nor from a broker that has been restarted since."""
        broker = self.context.broker(request.broker_id)
        is_our_request = request.controller_epoch == self.epoch
        return is_our_request and broker is not None and broker.epoch == request.broker_epoch

    # Topics

    async def _see_topics(self, _: TopicChange | None = None) -> None:
        context = self.context
        names = set(await self._tree.topics())
        new = sorted(name for name in names if not context.has_topic(name))
        gone = [topic for topic in context.topics if topic not in names]
        unwished = [delete_topic_path(topic) for topic in gone if context.is_to_be_deleted(topic)]
        seen = await self._tree.assignments(new)
        context.unclean_topics.update(await self._tree.unclean_topics(seen))
        await self._effects.run(cluster_changes.update_topics(context, seen, gone))
        await self._writes.delete_znodes(unwished)

    async def _see_topic(self, event: PartitionModifications) -> None:
        """It has grown, or we have written to it ourselves, or there is another of its name."""
        context, topic = self.context, event.topic
        if not context.has_topic(topic):
            return
        seen = await self._tree.assignments([topic])
        if topic not in seen:
            return
        if seen[topic].topic_id != context.topic_id(topic):
            logger.warning("topic %s has been replaced by another of that name", topic)
            await self._effects.run(cluster_changes.update_topics(context, seen, [topic]))
        elif not context.is_to_be_deleted(topic):
            await self._effects.run(cluster_changes.update_topics(context, seen))

    async def _see_deletions(self, _: TopicDeletion) -> None:
        await self._delete_topics()

    async def _delete_topics(self) -> None:
        wishes = await self._tree.topics_to_delete()
        if not all(map(self.context.has_topic, wishes)):
            # They may be newer than what we know.
            await self._see_topics()
        if self._settings.delete_topic_enable:
            refused = await self._effects.run(cluster_changes.delete_topics(self.context, wishes))
        else:
            refused = wishes
        if refused:
            why = "there are none" if self._settings.delete_topic_enable else "delete.topic.enable is false"
            logger.warning("topics %s are not deleted: %s", refused, why)
        await self._writes.delete_znodes(map(delete_topic_path, refused))

    # Leaders

    async def _isrs_changed(self, _: IsrChangeNotification) -> None:
        paths, partitions = await self._tree.isr_changes()
        # First, as one that we fail at must not stop those after it. Should we die now, the next controller reads all.
        await self._writes.delete_znodes(paths)
        await self._effects.run(cluster_changes.on_isr_change(self.context, sorted(partitions)))

    async def _unclean_changed(self, _: UncleanLeaderElectionEnable) -> None:
        context = self.context
        context.is_unclean_by_default = self._settings.is_unclean_by_default()
        if context.is_unclean_by_default:
            await self._effects.run(cluster_changes.on_unclean_election_enabled(context))

    async def _unclean_topic_changed(self, event: TopicUncleanLeaderElectionEnable) -> None:
        context, topic = self.context, event.topic
        configured = await self._tree.unclean_topics([topic])
        context.unclean_topics.pop(topic, None)
        if context.has_topic(topic):
            context.unclean_topics.update(configured)
            if context.allows_unclean(topic):
                await self._effects.run(cluster_changes.on_unclean_election_enabled(context, topic))

    async def _rebalance(self, _: AutoPreferredReplicaLeaderElection) -> None:
        percentage = self._settings.leader_imbalance_per_broker_percentage
        results = await self._effects.run(cluster_changes.rebalance_leaders(self.context, percentage))
        if results.elected:
            logger.info("%d partitions went back to their preferred leader", len(results.elected))

    async def _see_election(self, _: PreferredReplicaLeaderElection) -> None:
        await self._elect_as_wished()

    async def _elect_as_wished(self) -> None:
        try:
            wanted = await self._tree.preferred_election()
        except MalformedZnodeError as error:
            logger.warning("%s has no such content as it should, and goes: %s", PREFERRED_REPLICA_ELECTION, error)
            wanted = frozenset()
        if wanted is None:
            return
        steps = cluster_changes.elect_leaders(self.context, sorted(wanted), ElectionStrategy.PREFERRED)
        for partition, failure in (await self._effects.run(steps)).items():
            if failure is not None and not isinstance(failure, ElectionNotNeeded):
                logger.warning("%s-%d has not got its preferred leader: %s", *partition, failure)
        await self._writes.delete_znodes([PREFERRED_REPLICA_ELECTION])

    # Reassignments

    async def _see_reassignment(self, _: PartitionReassignment) -> None:
        await self._reassign_as_wished()

    async def _reassign_as_wished(self) -> None:
        """What is in the znode; of this some may be under way already, or be done."""
        context = self.context
        try:
            wanted = await self._tree.reassignment()
        except MalformedZnodeError as error:
            logger.warning("%s has no such content as it should, and goes: %s", REASSIGN_PARTITIONS, error)
            await self._writes.delete_znodes([REASSIGN_PARTITIONS])
            return
        moves, ended = {}, []
        for partition, target in (wanted or {}).items():
            if not context.has_partition(partition) or context.assignment(partition).target != tuple(target):
                moves[partition] = target
            elif not context.assignment(partition).is_moving:
                ended.append(partition)
        if moves:
            for partition, failure in (await self._effects.run(cluster_changes.reassign(context, moves))).items():
                if failure is not None:
                    logger.warning("%s-%d cannot be reassigned to %s: %s", *partition, moves[partition], failure)
                    ended.append(partition)
        if ended:
            await self._effects.clear_reassignments(ended)

    # What is asked

    async def _controlled_shutdown(self, event: ControlledShutdown) -> None:
        steps = cluster_changes.on_controlled_shutdown(self.context, event.broker_id, event.broker_epoch)
        still_led = await self._effects.run(steps)
        event.answer(still_led)

    async def _elect_leaders(self, event: ReplicaLeaderElection) -> None:
        wanted = event.partitions
        if wanted is None:
            wanted = [one for one in self.context.partitions() if not self.context.is_to_be_deleted(one[0])]
        answers = await self._effects.run(cluster_changes.elect_leaders(self.context, wanted, event.how))
        if event.partitions is None:
            answers = {one: error for one, error in answers.items() if not isinstance(error, ElectionNotNeeded)}
        event.answer(answers)

    async def _reassign(self, event: ApiPartitionReassignment) -> None:
        steps = cluster_changes.reassign(
            self.context, event.targets, may_change_count=event.may_change_count, supersedes_znode=True
        )
        event.answer(await self._effects.run(steps))


#: What is done at which event.
HANDLERS: Mapping[type[Event], Callable[[ActiveController, Any], Awaitable[None]]] = {
    BrokerChange: ActiveController._see_brokers,
    BrokerModifications: ActiveController._see_brokers,
    TopicChange: ActiveController._see_topics,
    PartitionModifications: ActiveController._see_topic,
    TopicDeletion: ActiveController._see_deletions,
    PartitionReassignment: ActiveController._see_reassignment,
    PreferredReplicaLeaderElection: ActiveController._see_election,
    IsrChangeNotification: ActiveController._isrs_changed,
    LogDirEventNotification: ActiveController._log_dirs_failed,
    UncleanLeaderElectionEnable: ActiveController._unclean_changed,
    TopicUncleanLeaderElectionEnable: ActiveController._unclean_topic_changed,
    LeaderAndIsrResponseReceived: ActiveController._leaders_answered,
    TopicDeletionStopReplicaResponseReceived: ActiveController._stop_answered,
    AutoPreferredReplicaLeaderElection: ActiveController._rebalance,
    ControlledShutdown: ActiveController._controlled_shutdown,
    ReplicaLeaderElection: ActiveController._elect_leaders,
    ApiPartitionReassignment: ActiveController._reassign,
}
