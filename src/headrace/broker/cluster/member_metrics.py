"""The metrics of a broker that is a member of a cluster.

The active controller has the counts of the whole cluster. The other brokers answer 0, so that the sum over all brokers
is right, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.metrics.role_metrics import RoleMetrics

if TYPE_CHECKING:
    from headrace.broker.cluster.cluster_member import ClusterMember
    from headrace.broker.metrics.cluster_counts import QueueMeter
    from headrace.broker.metrics.role_metrics import ControllerCounts, ReplicaCounts, TreeSession
    from headrace.broker.metrics.values import View
    from headrace.broker.replicas.fetchers import Fetchers
    from headrace.coordination.request_times import RequestTimes


class MemberMetrics(RoleMetrics):
    def __init__(self, member: ClusterMember) -> None:
        self._member = member

    def replicas(self, view: View) -> ReplicaCounts:  # noqa: ARG002  as in RoleMetrics
        return self._member.replicas

    def controller(self, view: View) -> ControllerCounts:  # noqa: ARG002  as in RoleMetrics
        return self._member.controller.metrics

    def fetchers(self) -> Sequence[Fetchers]:
        return (self._member.replicas.fetchers,)

    def unanswered_requests(self) -> int:
        return self._member.channel.size

    def queue_meters(self) -> Mapping[int, QueueMeter]:
        return self._member.channel.meters

    def sessions(self) -> Sequence[TreeSession]:
        return (self._member.session,)

    def zookeeper_times(self) -> RequestTimes | None:
        return self._member.coordination.request_times
