"""A group of the classic protocol: its members assign partitions among themselves, the coordinator only gathers them.

Requests come in here, and are checked; what follows of them is in ``rebalance.py``. Who waits for an answer gave a
callback, which is called exactly once. An error that a request gets at once is raised, and has changed nothing.

A *static* member (KIP-345) has an instance id beside its member id. When it is started anew it comes without a member
id: it takes the place of its former self, which is fenced; nobody else is troubled unless the vote on the protocol
comes out differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from headrace.groups.classic_records import restored_member, tombstone
from headrace.groups.context import GroupContext
from headrace.groups.group import UNKNOWN_MEMBER, Joined, Joining, Leaving, Synced, Syncing
from headrace.groups.members import Member
from headrace.groups.rebalance import CONSUMER, Rebalancing
from headrace.groups.states import State
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


class ClassicGroup(Rebalancing):
    kind = "classic"

    @classmethod
    def restored(
        cls, group_id: str, value: Any, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]
    ) -> ClassicGroup:
        """A group out of its record's value: Stable if it has members, else Empty."""
        group = cls(group_id, context, append)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        for recorded in value.members:
            group.members.add(restored_member(recorded, value.protocol))
        group.members.leader_id = value.leader if len(group.members) else None
        group.state = State.STABLE if len(group.members) else State.EMPTY
        group.state_since_ms = value.current_state_timestamp
        group.subscribed_topics = group._subscribed_topics()
        return group

    def loaded(self) -> None:
        for member in self.members:
            self.expect(member)
        if len(self.members) > self._context.settings.int("group.max.size"):
            self.prepare()

    def close(self, error: type[KafkaError]) -> None:
        if self.state is State.DEAD:
            return
        self._move(State.DEAD)
        self._stop_phase()
        for member_id in list(self.members.promised):
            self.take_promise(member_id)
        for member in self.members:
            member.stop_session()
            member.refuse(error.code)

    def tombstones(self) -> list[KeyValue]:
        return [tombstone(self.group_id)]

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    # -- checks that requests share ---------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"the group {self.group_id!r} is gone")

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        """
        :raises UnknownMemberId, FencedInstanceId: if there is no such member, or another has taken its place.
        """
        if instance_id is not None:
            current = self.members.of_instance(instance_id)
            if current is not None and current.member_id != member_id:
                raise FencedInstanceId(f"the instance {instance_id!r} is now {current.member_id!r}")
            if current is None:
                raise UnknownMemberId(f"no instance {instance_id!r} in the group {self.group_id!r}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"no member {member_id!r} in the group {self.group_id!r}")
        return member

    def _known_now(self, member_id: str, generation_id: int, instance_id: str | None) -> Member:
        self._check_alive()
        member = self._known(member_id, instance_id)
        if generation_id != self.generation_id:
            raise IllegalGeneration(f"the generation is {self.generation_id}, not {generation_id}")
        return member

    # -- JoinGroup --------------------------------------------------------------------------------------------------

    def join(self, joining: Joining, respond: Callable[[Joined], None]) -> None:
        self._check_alive()
        self._check_room(joining.member_id)
        self._check_protocols(joining)
        if joining.member_id == UNKNOWN_MEMBER:
            self._join_new(joining, respond)
        elif joining.member_id in self.members.promised:
            self._add(joining, respond)
        else:
            self._join_again(self._known(joining.member_id, joining.instance_id), joining, respond)

    def _check_room(self, member_id: str) -> None:
        most = self._context.settings.int("group.max.size")
        if self.state is State.EMPTY or len(self.members) < most:
            return
        member = self.members.get(member_id)
        if self.state is not State.PREPARING:
            has_room = member is not None
        else:  # whoever comes first to the new generation has a place in it
            has_room = (member is not None and member.awaiting_join is not None) or self.members.joining_count < most
        if has_room:
            return
        if member is not None:
            self._drop(member)
            self.changed()
        raise GroupMaxSizeReached(f"the group {self.group_id!r} has {most} members already")

    def _check_protocols(self, joining: Joining) -> None:
        if not len(self.members):
            is_possible = bool(joining.protocol_type and joining.protocols)
        else:
            is_possible = joining.protocol_type == self.protocol_type and self.members.support_any_of(joining.protocols)
        if not is_possible:
            raise InconsistentGroupProtocol("the members have no protocol in common")

    def _join_new(self, joining: Joining, respond: Callable[[Joined], None]) -> None:
        joining = replace(joining, member_id=f"{joining.instance_id or joining.client_id}-{uuid4()}")
        former = None if joining.instance_id is None else self.members.of_instance(joining.instance_id)
        if former is not None:
            self._take_place_of(former, joining, respond)
        elif joining.needs_member_id and joining.instance_id is None:
            self.promise(joining.member_id, joining.session_timeout_ms)
            respond(Joined(member_id=joining.member_id, error=ErrorCode.member_id_required))
        else:
            self._add(joining, respond)

    def _add(self, joining: Joining, respond: Callable[[Joined], None]) -> None:
        self.take_promise(joining.member_id)
        member = Member(
            member_id=joining.member_id,
            instance_id=joining.instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            session_timeout_ms=joining.session_timeout_ms,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            protocols=joining.protocols,
            is_new=True,
            awaiting_join=respond,
        )
        if not len(self.members):
            self.protocol_type = joining.protocol_type
        self.members.add(member)
        self.expect(member)
        self._have_more_come = True
        self.changed()

    def _join_again(self, member: Member, joining: Joining, respond: Callable[[Joined], None]) -> None:
        is_same = member.protocols == joining.protocols
        is_leader = member.member_id == self.members.leader_id
        # In these two its answer was lost, or it joins for no reason of ours. A leader that joins has one of its own.
        if (self.state is State.COMPLETING and is_same) or (self.state is State.STABLE and is_same and not is_leader):
            respond(self.joined(member))
            return
        member.refuse(ErrorCode.rebalance_in_progress)  # an earlier request of the same member
        self.members.update(member, joining)
        member.awaiting_join = respond
        self.changed()

    def _take_place_of(self, member: Member, joining: Joining, respond: Callable[[Joined], None]) -> None:
        former_leader_id = self.members.leader_id or ""
        member.refuse(ErrorCode.fenced_instance_id)
        if member.member_id in self._unsynced:
            self._unsynced ^= {member.member_id, joining.member_id}
        self.members.rename(member, joining.member_id)
        self.members.update(member, joining)
        member.client_id, member.client_host = joining.client_id, joining.client_host
        self.expect(member)
        if self.state is not State.STABLE or self.members.elected_protocol() != self.protocol_name:
            member.awaiting_join = respond
            self.changed()
            return
        self._append_group({each.member_id: each.assignment for each in self.members})
        joined = self.joined(member)
        if joining.may_skip_assignment:
            respond(replace(joined, skip_assignment=joined.leader_id == member.member_id))
        else:  # it would assign anew if it knew that it leads
            respond(replace(joined, leader_id=former_leader_id, members=()))

    # -- SyncGroup, Heartbeat, LeaveGroup ---------------------------------------------------------------------------

    def sync(self, syncing: Syncing, respond: Callable[[Synced], None]) -> None:
        """
        :raises KafkaError: if the member has no part in this generation, or the next one has begun.
        """
        member = self._known_now(syncing.member_id, syncing.generation_id, syncing.instance_id)
        for said, is_so in (
            (syncing.protocol_type, self.protocol_type),
            (syncing.protocol_name, self.protocol_name),
        ):
            if said is not None and is_so is not None and said != is_so:
                raise InconsistentGroupProtocol(f"the group has {is_so!r}, not {said!r}")
        if self.state is State.PREPARING:
            raise RebalanceInProgress("the next generation is being prepared")
        self._has_synced(member)
        if self.state is State.STABLE:
            self.expect(member)
            respond(self.synced(member))
            return
        member.answer_sync(Synced(error=ErrorCode.rebalance_in_progress))  # an earlier request of the same member
        member.awaiting_sync = respond
        if member.member_id == self.members.leader_id:
            self._assign(syncing.assignments)

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        """
        :raises RebalanceInProgress: if the member should join again. It lives on all the same.
        """
        member = self._known_now(member_id, generation_id, instance_id)
        self.expect(member)
        if self.state is State.PREPARING:
            raise RebalanceInProgress("the next generation is being prepared")

    def leave(self, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """Members go, each with its own outcome; one rebalance for all of them."""
        self._check_alive()
        codes = []
        for each in leaving:
            try:
                self._leave(each)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
        if ErrorCode.none in codes and self.state is not State.EMPTY:
            self.changed()
        return codes

    def _leave(self, leaving: Leaving) -> None:
        if leaving.member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
            member = self.members.of_instance(leaving.instance_id)  # an administrator takes it out
            if member is None:
                raise UnknownMemberId(f"no instance {leaving.instance_id!r} in the group {self.group_id!r}")
            self._drop(member)
        elif not self.take_promise(leaving.member_id):
            self._drop(self._known(leaving.member_id, leaving.instance_id))

    # -- offsets ----------------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, generation_or_epoch: int, instance_id: str | None, *, is_transactional: bool = False
    ) -> None:
        self._check_alive()
        if generation_or_epoch < 0 and self.state is State.EMPTY:
            return  # somebody who assigns partitions to himself, and only keeps his offsets here
        if generation_or_epoch >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
            member = self._known_now(member_id, generation_or_epoch, instance_id)
            if self.state in (State.STABLE, State.PREPARING):
                self.expect(member)
        elif not is_transactional:  # transactions of old clients do not say who they are
            raise UnknownMemberId(f"the group {self.group_id!r} has members, and this is none of them")
        if self.state is State.COMPLETING and not is_transactional:
            raise RebalanceInProgress("partitions are being assigned anew")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:  # noqa: ARG002  anybody may
        self._check_alive()

    def check_offset_delete(self) -> None:
        self._check_alive()
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise NonEmptyGroup(f"the group {self.group_id!r} has members, and nobody knows what they read")

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER and not self.is_empty
        return topic in self.subscribed_topics

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return self.state_since_ms if self.state_since_ms >= 0 else commit_timestamp_ms
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None
