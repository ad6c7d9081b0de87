"""Answers the requests of members that use the classic protocol in a group of the consumer protocol.

A group has members of both protocols while it migrates from one to the other (KIP-848, online migration). Members of
the classic protocol send JoinGroup, SyncGroup, Heartbeat and LeaveGroup as always. But they receive the coordinator's
assignment instead of a leader's, so no member leads. The generation of such a member is its member epoch.

A JoinGroup has the effect of a heartbeat: it says which topics the member reads and which partitions it owns, and the
member takes its next step. Members do not wait for each other, so each request is answered at once. If there is a step
for a member to take, its Heartbeat is answered with REBALANCE_IN_PROGRESS. Then the member has its rebalance timeout to
send JoinGroup, and again to send SyncGroup; otherwise it is removed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

from headrace.groups.consumer.assignment import from_names, to_names
from headrace.groups.consumer.member import JOIN_EPOCH, ClassicMemberMetadata, ConsumerMember, ConsumerMemberState
from headrace.groups.consumer.metadata import ConsumerGroupMetadata
from headrace.groups.consumer.rebalancer import ConsumerRebalancer
from headrace.groups.context import TopicLookup
from headrace.groups.embedded_protocol import Subscription, Unreadable, read_subscription, version_of, write_assignment
from headrace.groups.group import UNKNOWN_MEMBER, JoinRequest, JoinResponse, LeavingMember, SyncRequest, SyncResponse
from headrace.protocol.errors import (
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)

_PROTOCOL_TYPE = "consumer"


class ClassicProtocolRequests:
    """The classic protocol's requests to one group of the consumer protocol."""

    def __init__(self, metadata: ConsumerGroupMetadata, rebalancer: ConsumerRebalancer, topics: TopicLookup) -> None:
        self._metadata = metadata
        self._group_id = metadata.group_id
        self._rebalancer = rebalancer
        self._rejoins = rebalancer.timeouts.rejoins
        self._topics = topics

    # -- requests ---------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        """
        :raises KafkaError: if the member may not join.
        """
        if not self._metadata.members:
            raise UnknownMemberId(f"the group {self._group_id!r} has no member {request.member_id!r}")
        self._rebalancer.check_group_size(request.member_id)
        subscription = self._subscription(request)
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{uuid4()}"
        if request.needs_member_id and request.member_id == UNKNOWN_MEMBER and request.instance_id is None:
            respond(JoinResponse(member_id=member_id, error=ErrorCode.member_id_required))
            return
        member, replaces = self._joining_member(member_id, request)
        described = replace(
            member,
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=subscription.topic_names,
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            server_assignor=None,
            classic_metadata=ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
        )
        owned = from_names(subscription.owned, self._topics)
        updated = self._rebalancer.update_member(described, owned, replaces=replaces, is_urgent=True)
        self._rebalancer.restart_session(updated)
        self._rejoins.start(updated.member_id, updated.rebalance_timeout_ms)
        respond(
            JoinResponse(
                member_id=member_id,
                generation_id=updated.epoch,
                protocol_type=_PROTOCOL_TYPE,
                protocol_name=request.protocols[0][0],
            )
        )

    def sync(self, request: SyncRequest, respond: Callable[[SyncResponse], None]) -> None:
        """
        :raises KafkaError: if the member is not in this generation, or should join again.
        """
        member, classic = self._member(request.member_id, request.generation_id, request.instance_id)
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, _PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise InconsistentGroupProtocol(
                f"the member {member.member_id!r} joined with the protocol {name!r} of the type {_PROTOCOL_TYPE!r}, "
                f"not with {request.protocol_name!r} of the type {request.protocol_type!r}"
            )
        if member.epoch < self._metadata.epoch and member.state is not ConsumerMemberState.UNREVOKED:
            raise self._must_join_again()
        self._rejoins.stop(member.member_id)
        self._rebalancer.restart_session(member)
        assignment = write_assignment(version_of(metadata), to_names(member.assigned, self._topics))
        respond(SyncResponse(protocol_type=_PROTOCOL_TYPE, protocol_name=name, assignment=assignment))

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        """
        :raises RebalanceInProgress: if the member should join again. The member's session is restarted all the same.
        """
        member, _ = self._member(member_id, generation_id, instance_id)
        self._rebalancer.restart_session(member)
        self._rebalancer.refresh_topics()
        if self._has_step_to_take(member):
            if not self._rejoins.is_running(member.member_id):
                self._rejoins.start(member.member_id, member.rebalance_timeout_ms)
            raise self._must_join_again()

    def leave(self, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Removes members. Returns an error code for each."""
        codes, members = [], {}
        for each in leaving:
            try:
                member = self._leaving_member(each)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
                members[member.member_id] = member
        if members:
            self._rebalancer.remove(list(members.values()))
        return codes

    # -- checks -----------------------------------------------------------------------------------------------------

    def _must_join_again(self) -> RebalanceInProgress:
        return RebalanceInProgress(f"the group {self._group_id!r} has a new assignment for this member; join again")

    def _subscription(self, request: JoinRequest) -> Subscription:
        """
        :raises InconsistentGroupProtocol: if the member is not a consumer, or supports no strategy of all other members
            of the classic protocol.
        """
        others = [
            {name for name, _ in member.classic_metadata.protocols}
            for member in self._metadata.members.values()
            if member.classic_metadata is not None and member.member_id != request.member_id
        ]
        names = {name for name, _ in request.protocols}
        if request.protocol_type != _PROTOCOL_TYPE or not names.intersection(*others):
            raise InconsistentGroupProtocol(
                f"the members of the group {self._group_id!r} do not all support one of the protocols "
                f"{sorted(names)} of the type {request.protocol_type!r}"
            )
        try:
            return read_subscription(request.protocols[0][1])
        except Unreadable as error:
            raise InconsistentGroupProtocol(
                f"the subscription of the member for the group {self._group_id!r} cannot be read: {error}"
            ) from None

    def _joining_member(self, member_id: str, request: JoinRequest) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that joins, and the static member that it replaces."""
        instance_id = request.instance_id
        former = None if instance_id is None else self._metadata.by_instance_id(instance_id)
        if former is None:
            return self._metadata.members.get(member_id) or ConsumerMember(member_id=member_id), None
        if request.member_id == UNKNOWN_MEMBER:
            return replace(former, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH), former
        if former.member_id != member_id:
            raise FencedInstanceId(
                f"the instance id {instance_id!r} of the group {self._group_id!r} belongs to the member "
                f"{former.member_id!r} now, not to {member_id!r}"
            )
        return former, None

    def _member(
        self, member_id: str, generation_id: int, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        member = self._metadata.member(member_id, instance_id)
        classic = self._classic_metadata(member)
        if generation_id != member.epoch:
            raise IllegalGeneration(f"the member {member_id!r} is in generation {member.epoch}, not in {generation_id}")
        return member, classic

    def _classic_metadata(self, member: ConsumerMember) -> ClassicMemberMetadata:
        if member.classic_metadata is None:
            raise UnknownMemberId(f"the member {member.member_id!r} uses the consumer protocol, not the classic one")
        return member.classic_metadata

    def _leaving_member(self, leaving: LeavingMember) -> ConsumerMember:
        if leaving.member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
            member = self._metadata.by_instance_id(leaving.instance_id)  # an administrator removes a static member
            if member is not None:
                return member
        member = self._metadata.member(leaving.member_id, leaving.instance_id)
        self._classic_metadata(member)
        return member

    def _has_step_to_take(self, member: ConsumerMember) -> bool:
        if member.epoch < self._metadata.epoch or member.state is ConsumerMemberState.UNREVOKED:
            return True
        return member.state is ConsumerMemberState.UNRELEASED and self._rebalancer.has_free_partition(member)
