"""The metrics that depend on whether there are other brokers: one interface with two implementations.

:class:`LocalMetrics` is for a broker without other brokers, and for a member of a cluster that has not joined yet. Such
a broker is its own controller, and leads all of its replicas. ``MemberMetrics`` (``cluster/member_metrics.py``) is for
a member. A collection is empty if the broker has no such part: its metrics have no rows then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Protocol

from headrace.broker.metadata_cache import NO_LEADER, PartitionInfo
from headrace.broker.metrics.values import View, in_turns

if TYPE_CHECKING:
    from headrace.broker.metrics.cluster_counts import QueueMeter, SessionCounts
    from headrace.broker.replicas.fetchers import Fetchers
    from headrace.controller.event_queue import EventTimes
    from headrace.coordination.interface import SessionState
    from headrace.coordination.request_times import RequestTimes


class ReplicaCounts(Protocol):
    """The replicas that this broker leads, and how much was replicated since the start."""

    isr_shrinks: int
    isr_expands: int
    failed_isr_updates: int
    bytes_in: int
    bytes_out: int

    def under_replicated(self) -> Sized: ...
    def under_min_isr(self) -> Sized: ...
    def at_min_isr(self) -> Sized: ...
    def reassigning(self) -> Sized: ...


class ControllerCounts(Protocol):
    """The counts of the controller in this process."""

    @property
    def active_controller_count(self) -> int: ...
    @property
    def active_broker_count(self) -> int: ...
    @property
    def global_topic_count(self) -> int: ...
    @property
    def global_partition_count(self) -> int: ...
    @property
    def offline_partitions_count(self) -> int: ...
    @property
    def preferred_replica_imbalance_count(self) -> int: ...
    @property
    def topics_to_delete_count(self) -> int: ...
    @property
    def replicas_to_delete_count(self) -> int: ...
    @property
    def topics_ineligible_to_delete_count(self) -> int: ...
    @property
    def replicas_ineligible_to_delete_count(self) -> int: ...
    @property
    def unclean_elections_count(self) -> int: ...
    @property
    def state_number(self) -> int: ...
    @property
    def event_queue_size(self) -> int: ...
    @property
    def event_times(self) -> Mapping[str, EventTimes]: ...


class TreeSession(Protocol):
    """The session with ZooKeeper."""

    counts: SessionCounts
    state: SessionState


class RoleMetrics(ABC):
    @abstractmethod
    def replicas(self, view: View) -> ReplicaCounts: ...

    @abstractmethod
    def controller(self, view: View) -> ControllerCounts: ...

    @abstractmethod
    def fetchers(self) -> Sequence[Fetchers]:
        """The fetchers of the replicas that follow other brokers."""

    @abstractmethod
    def unanswered_requests(self) -> int:
        """How many requests of the controller to brokers are not answered yet."""

    @abstractmethod
    def queue_meters(self) -> Mapping[int, QueueMeter]:
        """The counts of the controller's requests, by the broker that they are for."""

    @abstractmethod
    def sessions(self) -> Sequence[TreeSession]:
        """The session with ZooKeeper."""

    @abstractmethod
    def zookeeper_times(self) -> RequestTimes | None:
        """How long ZooKeeper's answers took."""


class LocalMetrics(RoleMetrics):
    """Tells what the broker knows without other brokers."""

    def replicas(self, view: View) -> ReplicaCounts:
        return _LocalReplicas(view)

    def controller(self, view: View) -> ControllerCounts:
        return _LocalController(view)

    def fetchers(self) -> Sequence[Fetchers]:
        return ()

    def unanswered_requests(self) -> int:
        return 0

    def queue_meters(self) -> Mapping[int, QueueMeter]:
        return {}

    def sessions(self) -> Sequence[TreeSession]:
        return ()

    def zookeeper_times(self) -> RequestTimes | None:
        return None


class _LocalReplicas:
    isr_shrinks = isr_expands = failed_isr_updates = bytes_in = bytes_out = 0

    def __init__(self, view: View) -> None:
        self._view = view

    def under_replicated(self) -> Sequence[PartitionInfo]:
        return [partition for partition in self._view.led() if len(partition.isr) < len(partition.replicas)]

    def under_min_isr(self) -> Sequence[PartitionInfo]:
        return ()

    at_min_isr = reassigning = under_min_isr


class _LocalController:
    active_broker_count = 1
    preferred_replica_imbalance_count = 0
    topics_to_delete_count = replicas_to_delete_count = 0
    topics_ineligible_to_delete_count = replicas_ineligible_to_delete_count = 0
    unclean_elections_count = state_number = event_queue_size = 0

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def active_controller_count(self) -> int:
        sources = self._view.sources
        return int(sources.metadata.controller_id == sources.broker_id)

    @property
    def global_topic_count(self) -> int:
        return len(self._view.sources.metadata)

    @property
    def global_partition_count(self) -> int:
        return len(self._view.partitions)

    @property
    def offline_partitions_count(self) -> int:
        return sum(1 for _ in self._without_leader())

    def _without_leader(self) -> Iterator[PartitionInfo]:
        return (partition for partition in in_turns(self._view.partitions) if partition.leader_id == NO_LEADER)

    @property
    def event_times(self) -> Mapping[str, EventTimes]:
        return {}
