"""Answers the requests of a group of the consumer protocol (KIP-848): the coordinator assigns partitions to members.

Each request is checked here against the group's metadata. What follows from the request is in ``rebalancer.py``. A
request that is rejected raises an error and has changed nothing.

A *static* member (one with an instance id) may leave for a while (epoch -2). It keeps its partitions until its session
ends. A member that joins with the same instance id takes over its place and its partitions, without a new assignment.
While a static member has not left, no other member may use its instance id.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headrace.coordination.znodes import encode_uuid, random_uuid
from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.consumer.assignment import is_within
from headrace.groups.consumer.classic_members import ClassicProtocolRequests
from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest, ConsumerHeartbeatResponse
from headrace.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, NO_REBALANCE_TIMEOUT, ConsumerMember
from headrace.groups.consumer.metadata import ConsumerGroupMetadata, ConsumerGroupState
from headrace.groups.consumer.rebalancer import ConsumerRebalancer
from headrace.groups.consumer.records import group_tombstones
from headrace.groups.context import GroupContext
from headrace.groups.group import JoinRequest, JoinResponse, LeavingMember, SyncRequest, SyncResponse
from headrace.protocol.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    StaleMemberEpoch,
    UnreleasedInstanceId,
)
from headrace.replication.journal import KeyValue


class ConsumerGroup:
    """One group of the consumer protocol."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(
        self,
        group_id: str,
        context: GroupContext,
        write: Callable[[Sequence[KeyValue]], None],
        on_removal: Callable[[str], object] = lambda _: None,
    ) -> None:
        """
        :param write: appends records and applies them to this group's metadata.
        :param on_removal: called with the group's id after members were removed.
        """
        self.group_id = group_id
        self.metadata = ConsumerGroupMetadata(group_id)
        self._context = context
        self._rebalancer = ConsumerRebalancer(self.metadata, context, write, on_removal)
        self._classic_requests = ClassicProtocolRequests(self.metadata, self._rebalancer, context.topics)
        self._is_unloaded = False

    @property
    def state_name(self) -> str:
        return (ConsumerGroupState.DEAD if self._is_unloaded else self.metadata.state).value

    @property
    def is_empty(self) -> bool:
        return not self.metadata.members

    @property
    def assignor_name(self) -> str:
        return self._rebalancer.assignor_name

    def _check_loaded(self) -> None:
        if self._is_unloaded:
            raise CoordinatorNotAvailable(f"this coordinator has unloaded the group {self.group_id!r}")

    # -- heartbeats of the consumer protocol ------------------------------------------------------------------------

    def consumer_heartbeat(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        """Answers a heartbeat whose fields have been checked.

        :raises KafkaError: if the member is unknown or fenced, or may not join.
        """
        self._check_loaded()
        if request.is_leaving:
            return self._leave(request)
        self._rebalancer.check_group_size(request.member_id)
        self._rebalancer.asked_by(request.may_describe)
        if request.epoch == JOIN_EPOCH:
            member, replaces = self._joining_member(request)
        else:
            member, replaces = self._member_of_epoch(request), None
        updated = self._rebalancer.update_member(_described(member, request), request.owned, replaces=replaces)
        self._rebalancer.restart_session(updated)
        sends_assignment = request.is_full or updated.assigned != member.assigned
        return ConsumerHeartbeatResponse(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._context.group_int(self.group_id, "consumer.heartbeat.interval.ms"),
            assignment=updated.assigned if sends_assignment else None,
        )

    def _joining_member(self, request: ConsumerHeartbeatRequest) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that joins, and the static member that it replaces."""
        member_id = request.member_id or encode_uuid(random_uuid())
        former = None if request.instance_id is None else self.metadata.by_instance_id(request.instance_id)
        if former is not None and (former.is_away or former.classic_metadata is not None):
            return replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH), former
        if former is not None and former.member_id != member_id:
            raise UnreleasedInstanceId(
                f"the instance id {request.instance_id!r} of the group {self.group_id!r} is in use by the member "
                f"{former.member_id!r}, which has not left"
            )
        return self.metadata.members.get(member_id) or ConsumerMember(member_id=member_id), None

    def _member_of_epoch(self, request: ConsumerHeartbeatRequest) -> ConsumerMember:
        member = self.metadata.member(request.member_id, request.instance_id)
        if request.epoch == member.epoch:
            return member
        # The response that raised the member's epoch may have been lost. Then the member owns nothing that it should
        # not.
        has_missed_response = (
            request.epoch == member.previous_epoch < member.epoch
            and request.owned is not None
            and is_within(request.owned, member.assigned)
        )
        if not has_missed_response:
            raise FencedMemberEpoch(
                f"the member {member.member_id!r} is in epoch {member.epoch}, not in {request.epoch}; join again"
            )
        return member

    def _leave(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        member = self.metadata.member(request.member_id, request.instance_id)
        if request.epoch == LEAVE_EPOCH:
            self._rebalancer.remove([member])
        else:
            self._rebalancer.leave_for_a_while(member, request.epoch)
        return ConsumerHeartbeatResponse(member_id=request.member_id, epoch=request.epoch)

    # -- requests of the classic protocol ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        self._check_loaded()
        self._classic_requests.join(request, respond)

    def sync(self, request: SyncRequest, respond: Callable[[SyncResponse], None]) -> None:
        self._check_loaded()
        self._classic_requests.sync(request, respond)

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        self._check_loaded()
        self._classic_requests.heartbeat(member_id, generation_id, instance_id)

    def leave(self, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        self._check_loaded()
        return self._classic_requests.leave(leaving)

    # -- offsets ----------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        generation_or_epoch: int,
        instance_id: str | None,  # noqa: ARG002  the member id is enough
        *,
        is_transactional: bool = False,  # noqa: ARG002
    ) -> None:
        self._check_loaded()
        if generation_or_epoch < 0 and not self.metadata.members:
            return  # an administrator sets the offsets of a group without members
        self._check_epoch(self.metadata.member(member_id, None), generation_or_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_loaded()
        if not member_id and member_epoch < 0:
            return  # an administrator
        self._check_epoch(self.metadata.member(member_id or "", None), member_epoch)

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch == member.epoch:
            return
        if member.classic_metadata is not None:
            raise IllegalGeneration(f"the member {member.member_id!r} is in generation {member.epoch}, not in {epoch}")
        raise StaleMemberEpoch(f"the member {member.member_id!r} is in epoch {member.epoch}, not in {epoch}")

    def may_commit_at_older_epoch(self, member_id: str, epoch: int, commits: Iterable[TopicCommit]) -> bool:
        """Tells whether a commit of an older epoch counts as one of the member's present epoch (KIP-1251).

        It does if the member has held the partitions since that epoch without a break: then no other member can have
        read them.
        """
        member = self.metadata.members.get(member_id)
        if member is None or member.classic_metadata is not None or not 0 <= epoch < member.epoch:
            return False
        holds = member.holds
        return all(
            commit.topic_id is not None
            and partition in holds.get(commit.topic_id, ())
            and member.assigned_at(commit.topic_id, partition) <= epoch
            for commit in commits
            for partition, *_ in commit.partitions
        )

    def uses_consumer_protocol(self, member_id: str) -> bool:
        """Tells whether the group has this member, and the member uses the consumer protocol."""
        member = self.metadata.members.get(member_id)
        return member is not None and member.classic_metadata is None

    def check_offset_delete(self) -> None:
        self._check_loaded()

    def is_subscribed_to(self, topic: str) -> bool:
        return self.metadata.is_subscribed_to(topic)

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    # -- loading and unloading --------------------------------------------------------------------------------------

    def on_loaded(self) -> None:
        self._rebalancer.on_loaded()

    def unload(self, error: type[KafkaError]) -> None:  # noqa: ARG002  no request waits
        self._is_unloaded = True
        self._rebalancer.stop()

    def tombstones(self) -> list[KeyValue]:
        return group_tombstones(self.group_id, self.metadata.members, self.metadata.regexes)


def _described(member: ConsumerMember, request: ConsumerHeartbeatRequest) -> ConsumerMember:
    """The member with the description in a heartbeat. Fields that the heartbeat leaves out stay as they were."""
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT
        else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex or None,
        client_id=request.client_id,
        client_host=request.client_host,
        classic_metadata=None,
    )
