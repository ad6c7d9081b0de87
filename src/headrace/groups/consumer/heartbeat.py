"""The ConsumerGroupHeartbeat request and its response. A member joins, stays and leaves by heartbeats (KIP-848).

A member sends all fields when it joins and after an error. Otherwise it sends only the fields that have changed; None
(or -1 for the timeout) means no change. A member sends the partitions that it owns when they have changed.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from headrace.groups.consumer.assignment import Assignment
from headrace.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, NO_REBALANCE_TIMEOUT, STATIC_LEAVE_EPOCH
from headrace.protocol.errors import InvalidRequest, UnsupportedAssignor


def _everything(_topic: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatRequest:
    """The fields of a heartbeat that the coordinator uses."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_REBALANCE_TIMEOUT
    topic_names: frozenset[str] | None = None
    #: An empty expression removes the earlier one.
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    #: Decides which topics the member may see. Its expression matches no other topics.
    may_describe: Callable[[str], bool] = field(default=_everything, compare=False)

    @property
    def is_leaving(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)

    @property
    def is_full(self) -> bool:
        """Tells whether the member has sent all fields. Then the response has its whole assignment."""
        return self.epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )

    def check(self, assignors: Container[str], *, needs_member_id: bool) -> None:
        """Checks the fields by themselves, without looking at the group.

        :param needs_member_id: whether a member generates its id itself in this version, so that an id must be given.
        :raises InvalidRequest: if a field is missing or has an impossible value.
        :raises UnsupportedAssignor: if the broker does not have the assignor.
        """
        if not self.member_id and (needs_member_id or self.epoch != JOIN_EPOCH):
            raise InvalidRequest("MemberId is empty")
        if self.epoch < STATIC_LEAVE_EPOCH:
            raise InvalidRequest(f"MemberEpoch is {self.epoch}, below -2")
        if self.instance_id == "" or self.rack_id == "":
            raise InvalidRequest("InstanceId or RackId is empty; leave it null instead")
        if self.epoch == STATIC_LEAVE_EPOCH and self.instance_id is None:
            raise InvalidRequest("InstanceId is null, but only a static member may leave for a while (MemberEpoch -2)")
        if self.epoch == JOIN_EPOCH:
            self._check_joining()
        if self.server_assignor is not None and self.server_assignor not in assignors:
            raise UnsupportedAssignor(
                f"the assignor {self.server_assignor!r} is not one of group.consumer.assignors of this broker"
            )

    def _check_joining(self) -> None:
        if self.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
            raise InvalidRequest("RebalanceTimeoutMs is missing, but a member that joins (MemberEpoch 0) must give it")
        if self.owned is None or self.owned:
            raise InvalidRequest("TopicPartitions is not empty, but a member that joins (MemberEpoch 0) owns none")
        if self.topic_names is None and self.topic_regex is None:
            raise InvalidRequest("SubscribedTopicNames and SubscribedTopicRegex are null; a joining member needs one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatResponse:
    """The response to a heartbeat."""

    member_id: str | None
    epoch: int
    heartbeat_interval_ms: int = 0
    #: None if the assignment is the one that the member received before.
    assignment: Assignment | None = None
