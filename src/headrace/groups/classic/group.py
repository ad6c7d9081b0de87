"""Answers the requests of a classic group's members.

Each request is checked here. What follows from the request (a rebalance, a new generation) is in ``rebalancer.py``. A
request that may have to wait brings a callback, which is called exactly once. A request that is rejected raises an
error and has changed nothing, except where ``group.max.size`` removes a member.

A *static* member (KIP-345) has an instance id besides its member id. When its client restarts, the client joins without
a member id and takes over the place of the member with the same instance id. The earlier member id is fenced. The group
does not rebalance, unless the vote on the protocol has another result now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from headrace.groups.classic.members import ClassicMember, ClassicMembers
from headrace.groups.classic.metadata import CONSUMER_PROTOCOL_TYPE, ClassicGroupMetadata
from headrace.groups.classic.rebalancer import ClassicRebalancer
from headrace.groups.classic.records import metadata_from_record, tombstone
from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.context import GroupContext
from headrace.groups.group import UNKNOWN_MEMBER, JoinRequest, JoinResponse, LeavingMember, SyncRequest, SyncResponse
from headrace.protocol.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from headrace.replication.journal import KeyValue

__all__ = ["ClassicGroup"]


class ClassicGroup:
    """One group of the classic protocol."""

    kind = "classic"

    def __init__(
        self, metadata: ClassicGroupMetadata, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]
    ) -> None:
        """
        :param append: appends records to the group's partition of ``__consumer_offsets``.
        """
        self.metadata = metadata
        self._context = context
        self._rebalancer = ClassicRebalancer(metadata, context, append)
        self._sessions = self._rebalancer.sessions

    @classmethod
    def new(cls, group_id: str, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]) -> ClassicGroup:
        """A group without members."""
        return cls(ClassicGroupMetadata(group_id, context.clock.wall_ms()), context, append)

    @classmethod
    def from_record(
        cls, group_id: str, value: Any, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]
    ) -> ClassicGroup:
        """The group that a record's value describes."""
        return cls(metadata_from_record(group_id, value), context, append)

    # -- what the group is ------------------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        return self.metadata.group_id

    @property
    def state(self) -> ClassicGroupState:
        return self.metadata.state

    @property
    def state_name(self) -> str:
        return self.metadata.state.value

    @property
    def generation_id(self) -> int:
        return self.metadata.generation_id

    @property
    def protocol_type(self) -> str | None:
        return self.metadata.protocol_type

    @property
    def protocol_name(self) -> str | None:
        return self.metadata.protocol_name

    @property
    def members(self) -> ClassicMembers:
        return self.metadata.members

    @property
    def is_empty(self) -> bool:
        return self.metadata.state is ClassicGroupState.EMPTY

    # -- loading and unloading --------------------------------------------------------------------------------------

    def on_loaded(self) -> None:
        for member in self.members:
            self._sessions.restart(member)
        if len(self.members) > self._context.settings.int("group.max.size"):
            self._rebalancer.prepare_rebalance()

    def rebalance(self) -> None:
        """Begins a rebalance, or completes the one under way if all members have joined."""
        self._rebalancer.members_changed()

    def unload(self, error: type[KafkaError]) -> None:
        if self.state is ClassicGroupState.DEAD:
            return
        self.metadata.transition_to(ClassicGroupState.DEAD, self._context.clock.wall_ms())
        self._rebalancer.stop()
        for member in self.members:
            member.answer_error(error.code)

    def tombstones(self) -> list[KeyValue]:
        return [tombstone(self.group_id)]

    # -- checks that several requests share -------------------------------------------------------------------------

    def _check_loaded(self) -> None:
        if self.state is ClassicGroupState.DEAD:
            raise CoordinatorNotAvailable(f"this coordinator has unloaded the group {self.group_id!r}")

    def _member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """
        :raises UnknownMemberId: if the group has no such member.
        :raises FencedInstanceId: if another member has taken over the instance id.
        """
        if instance_id is not None:
            current = self.members.by_instance_id(instance_id)
            if current is not None and current.member_id != member_id:
                raise FencedInstanceId(
                    f"the instance id {instance_id!r} of the group {self.group_id!r} belongs to the member "
                    f"{current.member_id!r} now, not to {member_id!r}"
                )
            if current is None:
                raise UnknownMemberId(f"the group {self.group_id!r} has no member with the instance id {instance_id!r}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"the group {self.group_id!r} has no member {member_id!r}")
        return member

    def _member_of_generation(self, member_id: str, generation_id: int, instance_id: str | None) -> ClassicMember:
        self._check_loaded()
        member = self._member(member_id, instance_id)
        if generation_id != self.generation_id:
            raise IllegalGeneration(
                f"the group {self.group_id!r} is in generation {self.generation_id}, not in {generation_id}"
            )
        return member

    # -- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        self._check_loaded()
        self._check_group_size(request.member_id)
        self._check_protocols(request)
        if request.member_id == UNKNOWN_MEMBER:
            self._join_without_member_id(request, respond)
        elif request.member_id in self.members.pending_ids:
            self._add_member(request, respond)
        else:
            self._join_again(self._member(request.member_id, request.instance_id), request, respond)

    def _check_group_size(self, member_id: str) -> None:
        most = self._context.settings.int("group.max.size")
        if self.state is ClassicGroupState.EMPTY or len(self.members) < most:
            return
        member = self.members.get(member_id)
        if self.state is not ClassicGroupState.PREPARING:
            has_room = member is not None
        else:  # the first members that join the new generation have a place in it
            has_room = (member is not None and member.awaiting_join is not None) or self.members.joining_count < most
        if has_room:
            return
        if member is not None:
            self._rebalancer.remove_member(member)
            self._rebalancer.members_changed()
        raise GroupMaxSizeReached(f"the group {self.group_id!r} has group.max.size = {most} members already")

    def _check_protocols(self, request: JoinRequest) -> None:
        if not len(self.members):
            is_possible = bool(request.protocol_type and request.protocols)
        else:
            is_possible = request.protocol_type == self.protocol_type and self.members.support_any_of(request.protocols)
        if not is_possible:
            raise InconsistentGroupProtocol(
                f"the members of the group {self.group_id!r} do not all support one of the protocols "
                f"{[name for name, _ in request.protocols]} of the type {request.protocol_type!r}"
            )

    def _join_without_member_id(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        request = replace(request, member_id=f"{request.instance_id or request.client_id}-{uuid4()}")
        former = None if request.instance_id is None else self.members.by_instance_id(request.instance_id)
        if former is not None:
            self._take_over_instance(former, request, respond)
        elif request.needs_member_id and request.instance_id is None:
            self._sessions.add_pending_id(request.member_id, request.session_timeout_ms)
            respond(JoinResponse(member_id=request.member_id, error=ErrorCode.member_id_required))
        else:
            self._add_member(request, respond)

    def _add_member(self, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        self._sessions.remove_pending_id(request.member_id)
        if not len(self.members):
            self.metadata.protocol_type = request.protocol_type
        self._rebalancer.add_member(
            ClassicMember(
                member_id=request.member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocols=request.protocols,
                is_new=True,
                awaiting_join=respond,
            )
        )

    def _join_again(self, member: ClassicMember, request: JoinRequest, respond: Callable[[JoinResponse], None]) -> None:
        state = self.state
        is_same = member.protocols == request.protocols
        is_leader = member.member_id == self.members.leader_id
        # Nothing has changed: the earlier response was lost, or the member joins for no reason that concerns the group.
        # But a leader that joins while the group is stable asks for a rebalance.
        if (state is ClassicGroupState.COMPLETING and is_same) or (
            state is ClassicGroupState.STABLE and is_same and not is_leader
        ):
            respond(self.metadata.join_response(member))
            return
        member.answer_error(ErrorCode.rebalance_in_progress)  # an earlier request of the same member
        self.members.update(member, request)
        member.awaiting_join = respond
        self._rebalancer.members_changed()

    def _take_over_instance(
        self, member: ClassicMember, request: JoinRequest, respond: Callable[[JoinResponse], None]
    ) -> None:
        former_leader_id = self.members.leader_id or ""
        member.answer_error(ErrorCode.fenced_instance_id)
        self._rebalancer.replace_member_id(member, request.member_id)
        self.members.update(member, request)
        member.client_id, member.client_host = request.client_id, request.client_host
        self._sessions.restart(member)
        is_stable = self.state is ClassicGroupState.STABLE
        if not is_stable or self.members.elected_protocol() != self.protocol_name:
            member.awaiting_join = respond
            self._rebalancer.members_changed()
            return
        self._rebalancer.write_group({each.member_id: each.assignment for each in self.members})
        response = self.metadata.join_response(member)
        if request.may_skip_assignment:
            respond(replace(response, skip_assignment=response.leader_id == member.member_id))
        else:  # an older client that learns that it leads would compute a new assignment
            respond(replace(response, leader_id=former_leader_id, members=()))

    # -- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------------------------------------------

    def sync(self, request: SyncRequest, respond: Callable[[SyncResponse], None]) -> None:
        """
        :raises KafkaError: if the member is not part of this generation, or the next generation has begun.
        """
        member = self._member_of_generation(request.member_id, request.generation_id, request.instance_id)
        for given, expected in (
            (request.protocol_type, self.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if given is not None and expected is not None and given != expected:
                raise InconsistentGroupProtocol(
                    f"the group {self.group_id!r} uses the protocol {expected!r}, not {given!r}"
                )
        if self.state is ClassicGroupState.PREPARING:
            raise RebalanceInProgress(f"the group {self.group_id!r} rebalances; join again")
        self._rebalancer.member_synced(member)
        if self.state is ClassicGroupState.STABLE:
            self._sessions.restart(member)
            respond(self.metadata.sync_response(member))
            return
        member.answer_sync(SyncResponse(error=ErrorCode.rebalance_in_progress))  # an earlier request of the same member
        member.awaiting_sync = respond
        if member.member_id == self.members.leader_id:
            self._rebalancer.assign(request.assignments)

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        """
        :raises RebalanceInProgress: if the member should join again. The member's session is restarted all the same.
        """
        self._sessions.restart(self._member_of_generation(member_id, generation_id, instance_id))
        if self.state is ClassicGroupState.PREPARING:
            raise RebalanceInProgress(f"the group {self.group_id!r} rebalances; join again")

    def leave(self, leaving: Sequence[LeavingMember]) -> list[ErrorCode]:
        """Removes members. Returns an error code for each; all removals together cause one rebalance."""
        self._check_loaded()
        codes = []
        for each in leaving:
            try:
                self._remove_leaving(each)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
        if ErrorCode.none in codes and self.state is not ClassicGroupState.EMPTY:
            self._rebalancer.members_changed()
        return codes

    def _remove_leaving(self, leaving: LeavingMember) -> None:
        if leaving.member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
            member = self.members.by_instance_id(leaving.instance_id)  # an administrator removes a static member
            if member is None:
                raise UnknownMemberId(
                    f"the group {self.group_id!r} has no member with the instance id {leaving.instance_id!r}"
                )
            self._rebalancer.remove_member(member)
        elif not self._sessions.remove_pending_id(leaving.member_id):
            self._rebalancer.remove_member(self._member(leaving.member_id, leaving.instance_id))

    # -- offsets ----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, generation_or_epoch: int, instance_id: str | None, *, is_transactional: bool = False
    ) -> None:
        self._check_loaded()
        if generation_or_epoch < 0 and self.state is ClassicGroupState.EMPTY:
            return  # a client that assigns partitions to itself, and uses the group only for its offsets
        if generation_or_epoch >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
            member = self._member_of_generation(member_id, generation_or_epoch, instance_id)
            if self.state in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING):
                self._sessions.restart(member)
        elif not is_transactional:  # old clients do not name their member id in a transaction
            raise UnknownMemberId(
                f"the group {self.group_id!r} has members, so only a member may commit; the commit names no member id"
            )
        if self.state is ClassicGroupState.COMPLETING and not is_transactional:
            raise RebalanceInProgress(
                f"the group {self.group_id!r} waits for its new assignment; commit after the sync"
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002  any client may fetch
        self._check_loaded()

    def check_offset_delete(self) -> None:
        self._check_loaded()
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup(
                f"the group {self.group_id!r} has members of the protocol type {self.protocol_type!r}, so the topics "
                "that they read are not known"
            )

    def is_subscribed_to(self, topic: str) -> bool:
        topics = self.metadata.subscribed_topics
        if topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE and not self.is_empty
        return topic in topics

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            since_ms = self.metadata.state_since_ms
            return since_ms if since_ms >= 0 else commit_timestamp_ms
        if self.state is ClassicGroupState.STABLE and self.metadata.subscribed_topics is not None:
            return commit_timestamp_ms
        return None
