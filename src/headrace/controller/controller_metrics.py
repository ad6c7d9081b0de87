"""The controller's metrics, under Kafka's names. May be read from any thread.

A broker that is not the active controller reports 0 for the counts of the cluster. So the sum over all brokers is
correct, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.controller.active_controller import ActiveController
from headrace.controller.decisions import topic_deletions
from headrace.controller.decisions.context import ControllerContext
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.event_queue import EventQueue, EventTimes
from headrace.controller.events import IDLE, STATE_NUMBERS


class ControllerMetrics:
    def __init__(self, queue: EventQueue, active: Callable[[], ActiveController | None]) -> None:
        self._queue = queue
        self._active = active
        #: Unclean elections in the controller epochs of this broker that are over.
        self.past_unclean_elections = 0

    @property
    def event_times(self) -> Mapping[str, EventTimes]:
        """How long events waited and how long they were processed, by the name of the event."""
        return self._queue.times

    @property
    def event_queue_size(self) -> int:
        return len(self._queue)

    @property
    def state(self) -> str:
        """The name of the event that is being processed, or ``Idle``."""
        return "Idle" if (event := self._queue.current) is None else event.name

    @property
    def state_number(self) -> int:
        """The state as a number of Kafka's metric ``ControllerState``."""
        return IDLE if (event := self._queue.current) is None else STATE_NUMBERS[type(event)]

    @property
    def unclean_elections_count(self) -> int:
        """In all controller epochs of this broker."""
        return self.past_unclean_elections + self._count(lambda context: context.unclean_elections)

    @property
    def active_controller_count(self) -> int:
        return int(self._active() is not None)

    @property
    def active_broker_count(self) -> int:
        return self._count(lambda context: len(context.brokers))

    @property
    def global_topic_count(self) -> int:
        return self._count(lambda context: len(context.topics))

    @property
    def global_partition_count(self) -> int:
        return self._count(lambda context: context.partition_count)

    @property
    def offline_partitions_count(self) -> int:
        return self._count(
            lambda context: context.count_in(ControllerPartitionState.NEW, ControllerPartitionState.OFFLINE)
        )

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return self._count(lambda context: context.count_not_preferred())

    @property
    def topics_to_delete_count(self) -> int:
        return self._count(lambda context: len(context.topics_to_delete))

    @property
    def replicas_to_delete_count(self) -> int:
        return self._count(lambda context: len(topic_deletions.replicas_to_delete(context)))

    @property
    def topics_ineligible_to_delete_count(self) -> int:
        return self._count(lambda context: len(topic_deletions.ineligible_topics(context)))

    @property
    def replicas_ineligible_to_delete_count(self) -> int:
        return self._count(lambda context: len(topic_deletions.ineligible_replicas(context)))

    def _count(self, read: Callable[[ControllerContext], int]) -> int:
        active = self._active()
        return 0 if active is None else read(active.context)
