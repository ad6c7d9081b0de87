"""Processes the controller's events, from the election of this broker until another broker is elected.

The active controller first reads the whole znode tree and sets watches on everything that can change. After that, each
event is processed in two steps: read the znodes that the event is about, then run the steps that
``decisions/cluster_changes.py`` returns. :class:`ActiveController` holds everything that is valid only in one
controller epoch (context, epoch, watches). The object is discarded as a whole.
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
from headrace.controller.decisions.context import ControllerContext
from headrace.controller.decisions.effects import ClearReassignments
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.decisions.unnoticed_restarts import UnnoticedRestarts, remove_restarted_brokers
from headrace.controller.effect_runner import EffectRunner
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
from headrace.controller.partition_state_writer import read_written_states
from headrace.coordination.interface import Coordination
from headrace.coordination.paths import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS, delete_topic_path
from headrace.coordination.znodes import MalformedZnodeError
from headrace.protocol.errors import ElectionNotNeeded, ErrorCode, KafkaError, StaleControllerEpoch

logger = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller's settings, under Kafka's names."""

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    delete_topic_enable: bool = True
    #: ``unclean.leader.election.enable`` of the brokers. Called each time it is needed, because the setting can change.
    is_unclean_by_default: Callable[[], bool] = lambda: False


class ActiveController:
    def __init__(
        self,
        broker_id: int,
        epoch: ControllerEpoch,
        coordination: Coordination,
        channel: Channel,
        settings: ControllerSettings,
        put: Callable[[Event], None],
    ) -> None:
        self.epoch = epoch.epoch
        self.context = ControllerContext(broker_id, epoch.epoch)
        self._settings = settings
        self._put = put
        self._coordination = coordination
        self._reader = ClusterReader(coordination, put)
        self._writer = FencedWriter(coordination, epoch.znode_version)
        self._effects = EffectRunner(self._writer, channel, self.context)
        self._restarts = UnnoticedRestarts([], [])

    async def load(self) -> None:
        """Reads everything. Sends nothing to brokers yet.

        Deletes the notifications first. The reads that follow include every change that the notifications announced.
        """
        context, reader = self.context, self._reader
        context.is_unclean_by_default = self._settings.is_unclean_by_default()
        notifications = [*await reader.isr_change_paths(), *await reader.log_dir_failure_paths()]
        await self._writer.delete_znodes(notifications)
        for broker in await reader.brokers():
            context.add_broker(broker)
        topics_to_delete = await reader.topics_to_delete()
        names = await reader.topics()
        for topic, assigned in (await reader.assignments(names)).items():
            context.add_topic(topic, assigned)
        context.unclean_topics.update(await reader.unclean_topics(context.topics))
        states = await read_written_states(self._coordination, context.partitions())
        for partition, state in states.items():
            if state is not None:
                context.set_leadership(partition, state.leadership)
        found = {partition: state for partition, state in states.items() if state is not None}
        self._restarts = remove_restarted_brokers(context, found)
        if self._settings.delete_topic_enable:
            for topic in topics_to_delete:
                if context.has_topic(topic):
                    context.queue_deletion(topic)

    async def start(self) -> None:
        """Sends the state of the cluster to all brokers, and continues what an earlier controller started."""
        context = self.context
        led_partitions = [one for one in self._restarts.led_partitions if not context.is_to_be_deleted(one[0])]
        await self._effects.run(cluster_changes.on_controller_failover(context, led_partitions))
        if restarted := self._restarts.brokers:
            broker_ids = [broker.broker_id for broker in restarted]
            logger.warning("brokers %s restarted while there was no controller", broker_ids)
            await self._effects.run(cluster_changes.update_brokers(context, [*context.brokers, *restarted]))
        await self._delete_requested_topics()
        await self._start_requested_reassignments()
        await self._run_requested_election()

    async def handle(self, event: Event) -> None:
        """
        :raises ControllerMoved: if another broker is the controller now.
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

    async def _process_broker_change(self, _: BrokerChange | BrokerModifications) -> None:
        await self._effects.run(cluster_changes.update_brokers(self.context, await self._reader.brokers()))

    async def _process_log_dir_event(self, _: LogDirEventNotification) -> None:
        paths, brokers = await self._reader.log_dir_failures()
        await self._writer.delete_znodes(paths)
        for broker in sorted(brokers):
            await self._effects.run(cluster_changes.on_log_dir_failure(self.context, broker))

    async def _process_leader_and_isr_response(self, event: LeaderAndIsrResponseReceived) -> None:
        request, (error, partitions) = event.request, event.response
        if not self._is_current(request):
            return
        if error is not ErrorCode.none:
            logger.error("broker %d rejected a LeaderAndIsr request: %s", request.broker_id, error.name)
            if error is ErrorCode.stale_controller_epoch:
                # The broker has a request of a later controller. Then /controller has changed.
                self._put(ControllerChange())
            return
        failed = [partition for partition, code in partitions.items() if code is ErrorCode.kafka_storage_error]
        working = [partition for partition, code in partitions.items() if code is ErrorCode.none]
        await self._effects.run(
            cluster_changes.on_leader_and_isr_response(self.context, request.broker_id, failed, working)
        )

    async def _process_stop_replica_response(self, event: TopicDeletionStopReplicaResponseReceived) -> None:
        request, (error, partitions) = event.request, event.response
        if not self._is_current(request):
            return
        requested = [one[:2] for one in request.partitions if one.is_deleted]
        codes = {
            partition: error if error is not ErrorCode.none else partitions.get(partition) for partition in requested
        }
        deleted = [partition for partition, code in codes.items() if code is ErrorCode.none]
        failed = [partition for partition, code in codes.items() if code is not ErrorCode.none]
        if failed:
            logger.error(
                "broker %d failed to delete %d replicas, for example %s-%d; it tries again after its next start",
                request.broker_id,
                len(failed),
                *failed[0],
            )
        await self._effects.run(
            cluster_changes.on_stop_replica_response(self.context, request.broker_id, deleted, failed)
        )

    def _is_current(self, request: LeaderAndIsr | StopReplica) -> bool:
        """Whether the request was sent in this controller epoch, to a broker that has not restarted since."""
        broker = self.context.broker(request.broker_id)
        is_of_this_epoch = request.controller_epoch == self.epoch
        return is_of_this_epoch and broker is not None and broker.epoch == request.broker_epoch

    # Topics

    async def _process_topic_change(self, _: TopicChange | None = None) -> None:
        context = self.context
        names = set(await self._reader.topics())
        new = sorted(name for name in names if not context.has_topic(name))
        removed = [topic for topic in context.topics if topic not in names]
        obsolete = [delete_topic_path(topic) for topic in removed if context.is_to_be_deleted(topic)]
        added = await self._reader.assignments(new)
        context.unclean_topics.update(await self._reader.unclean_topics(added))
        await self._effects.run(cluster_changes.update_topics(context, added, removed))
        await self._writer.delete_znodes(obsolete)

    async def _process_partition_modifications(self, event: PartitionModifications) -> None:
        """The topic has more partitions, or the controller itself wrote the znode, or the topic was deleted and
        recreated.
        """
        context, topic = self.context, event.topic
        if not context.has_topic(topic):
            return
        found = await self._reader.assignments([topic])
        if topic not in found:
            return
        if found[topic].topic_id != context.topic_id(topic):
            logger.warning("topic %s was deleted and created again outside of the controller", topic)
            await self._effects.run(cluster_changes.update_topics(context, found, [topic]))
        elif not context.is_to_be_deleted(topic):
            await self._effects.run(cluster_changes.update_topics(context, found))

    async def _process_topic_deletion(self, _: TopicDeletion) -> None:
        await self._delete_requested_topics()

    async def _delete_requested_topics(self) -> None:
        requested = await self._reader.topics_to_delete()
        if not all(map(self.context.has_topic, requested)):
            # The topics may be so new that the context does not contain them yet.
            await self._process_topic_change()
        if self._settings.delete_topic_enable:
            rejected = await self._effects.run(cluster_changes.delete_topics(self.context, requested))
        else:
            rejected = requested
        if rejected:
            reason = "they do not exist" if self._settings.delete_topic_enable else "delete.topic.enable is false"
            logger.warning("topics %s are not deleted: %s", rejected, reason)
        await self._writer.delete_znodes(map(delete_topic_path, rejected))

    # Leaders

    async def _process_isr_change(self, _: IsrChangeNotification) -> None:
        paths, partitions = await self._reader.isr_changes()
        # Deleted first, so that a notification that fails does not block later ones. If this controller dies now, the
        # next one reads everything.
        await self._writer.delete_znodes(paths)
        await self._effects.run(cluster_changes.on_isr_change(self.context, sorted(partitions)))

    async def _process_unclean_election_enable(self, _: UncleanLeaderElectionEnable) -> None:
        context = self.context
        context.is_unclean_by_default = self._settings.is_unclean_by_default()
        if context.is_unclean_by_default:
            await self._effects.run(cluster_changes.on_unclean_election_enabled(context))

    async def _process_topic_unclean_election_enable(self, event: TopicUncleanLeaderElectionEnable) -> None:
        context, topic = self.context, event.topic
        configured = await self._reader.unclean_topics([topic])
        context.unclean_topics.pop(topic, None)
        if context.has_topic(topic):
            context.unclean_topics.update(configured)
            if context.allows_unclean(topic):
                await self._effects.run(cluster_changes.on_unclean_election_enabled(context, topic))

    async def _process_auto_preferred_election(self, _: AutoPreferredReplicaLeaderElection) -> None:
        percentage = self._settings.leader_imbalance_per_broker_percentage
        results = await self._effects.run(cluster_changes.rebalance_leaders(self.context, percentage))
        if results.elected:
            logger.info("elected the preferred leader of %d partitions", len(results.elected))

    async def _process_preferred_election(self, _: PreferredReplicaLeaderElection) -> None:
        await self._run_requested_election()

    async def _run_requested_election(self) -> None:
        try:
            requested = await self._reader.preferred_election()
        except MalformedZnodeError as error:
            logger.warning("%s has malformed content and is deleted: %s", PREFERRED_REPLICA_ELECTION, error)
            requested = frozenset()
        if requested is None:
            return
        steps = cluster_changes.elect_leaders(self.context, sorted(requested), ElectionStrategy.PREFERRED)
        for partition, failure in (await self._effects.run(steps)).items():
            if failure is not None and not isinstance(failure, ElectionNotNeeded):
                logger.warning("the preferred leader of %s-%d was not elected: %s", *partition, failure)
        await self._writer.delete_znodes([PREFERRED_REPLICA_ELECTION])

    # Reassignments

    async def _process_reassignment(self, _: PartitionReassignment) -> None:
        await self._start_requested_reassignments()

    async def _start_requested_reassignments(self) -> None:
        """Starts what the znode requests. Some of these reassignments may already be in progress or complete."""
        context = self.context
        try:
            requested = await self._reader.reassignment()
        except MalformedZnodeError as error:
            logger.warning("%s has malformed content and is deleted: %s", REASSIGN_PARTITIONS, error)
            await self._writer.delete_znodes([REASSIGN_PARTITIONS])
            return
        new, done = {}, []
        for partition, target in (requested or {}).items():
            if not context.has_partition(partition) or context.assignment(partition).target != tuple(target):
                new[partition] = target
            elif not context.assignment(partition).is_moving:
                done.append(partition)
        if new:
            for partition, failure in (await self._effects.run(cluster_changes.reassign(context, new))).items():
                if failure is not None:
                    logger.warning("%s-%d cannot be reassigned to %s: %s", *partition, new[partition], failure)
                    done.append(partition)
        if done:
            await self._effects.perform(ClearReassignments(tuple(done)))

    # Requests

    async def _process_controlled_shutdown(self, event: ControlledShutdown) -> None:
        steps = cluster_changes.on_controlled_shutdown(self.context, event.broker_id, event.broker_epoch)
        still_led = await self._effects.run(steps)
        event.answer(still_led)

    async def _process_leader_election(self, event: ReplicaLeaderElection) -> None:
        requested = event.partitions
        if requested is None:
            requested = [one for one in self.context.partitions() if not self.context.is_to_be_deleted(one[0])]
        results = await self._effects.run(cluster_changes.elect_leaders(self.context, requested, event.strategy))
        if event.partitions is None:
            results = {one: error for one, error in results.items() if not isinstance(error, ElectionNotNeeded)}
        event.answer(results)

    async def _process_api_reassignment(self, event: ApiPartitionReassignment) -> None:
        steps = cluster_changes.reassign(
            self.context, event.targets, may_change_count=event.may_change_count, supersedes_znode=True
        )
        event.answer(await self._effects.run(steps))


#: The method that processes each kind of event.
HANDLERS: Mapping[type[Event], Callable[[ActiveController, Any], Awaitable[None]]] = {
    BrokerChange: ActiveController._process_broker_change,
    BrokerModifications: ActiveController._process_broker_change,
    TopicChange: ActiveController._process_topic_change,
    PartitionModifications: ActiveController._process_partition_modifications,
    TopicDeletion: ActiveController._process_topic_deletion,
    PartitionReassignment: ActiveController._process_reassignment,
    PreferredReplicaLeaderElection: ActiveController._process_preferred_election,
    IsrChangeNotification: ActiveController._process_isr_change,
    LogDirEventNotification: ActiveController._process_log_dir_event,
    UncleanLeaderElectionEnable: ActiveController._process_unclean_election_enable,
    TopicUncleanLeaderElectionEnable: ActiveController._process_topic_unclean_election_enable,
    LeaderAndIsrResponseReceived: ActiveController._process_leader_and_isr_response,
    TopicDeletionStopReplicaResponseReceived: ActiveController._process_stop_replica_response,
    AutoPreferredReplicaLeaderElection: ActiveController._process_auto_preferred_election,
    ControlledShutdown: ActiveController._process_controlled_shutdown,
    ReplicaLeaderElection: ActiveController._process_leader_election,
    ApiPartitionReassignment: ActiveController._process_api_reassignment,
}
