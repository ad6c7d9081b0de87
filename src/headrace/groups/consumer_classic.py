"""Members of the classic protocol in a group of the consumer protocol, while a group moves from one to the other.

They join, sync and beat as ever; what they are told comes from the coordinator's assignment instead of a leader's, so
nobody leads. A generation is the member's epoch. A JoinGroup is its heartbeat: it says what the member reads and owns,
and takes its next step. Members do not wait for each other, so each answer comes at once. By REBALANCE_IN_PROGRESS a
member is asked to join again when there is a step for it to take (KIP-848, online migration). Who was asked has its
rebalance timeout to do so, and then to sync; else it is out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from headrace.groups.assignment import Assignment
from headrace.groups.consumer_core import ConsumerCore
from headrace.groups.consumer_member import JOINS, ClassicSide, ConsumerMember, MemberState
from headrace.groups.consumer_protocol import Subscription, Unreadable, read_subscription, version_of, write_assignment
from headrace.groups.context import TopicLookup
from headrace.groups.group import UNKNOWN_MEMBER, Joined, Joining, Leaving, Synced, Syncing
from headrace.protocol.errors import (
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)

CONSUMER = "consumer"


class ClassicSideOfConsumerGroup(ConsumerCore):
    # -- what ConsumerGroup has

    def check_alive(self) -> None:
        raise NotImplementedError

    def check_room(self, member_id: str) -> None:
        raise NotImplementedError

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        raise NotImplementedError

    # -- requests ---------------------------------------------------------------------------------------------------

    def join(self, joining: Joining, respond: Callable[[Joined], None]) -> None:
        """
        :raises KafkaError: if the member may not join.
        """
        self.check_alive()
        if not self.state.members:
            raise UnknownMemberId(f"no member {joining.member_id!r} in the group {self.group_id!r}")
        self.check_room(joining.member_id)
        subscription = self._subscription(joining)
        member_id = joining.member_id or f"{joining.instance_id or joining.client_id}-{uuid4()}"
        if joining.needs_member_id and joining.member_id == UNKNOWN_MEMBER and joining.instance_id is None:
            respond(Joined(member_id=member_id, error=ErrorCode.member_id_required))
            return
        member, replaces = self._classic_joining(member_id, joining)
        described = replace(
            member,
            instance_id=joining.instance_id,
            rack_id=subscription.rack_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            topic_names=subscription.topic_names,
            topic_regex=None,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            server_assignor=None,
            classic=ClassicSide(joining.session_timeout_ms, joining.protocols),
        )
        owned = by_ids(subscription.owned, self._context.topics)
        updated = self.advance(described, owned, replaces=replaces, is_urgent=True)
        self.expect(updated)
        self.expect_answer(updated)
        respond(
            Joined(
                member_id=member_id,
                generation_id=updated.epoch,
                protocol_type=CONSUMER,
                protocol_name=joining.protocols[0][0],
            )
        )

    def sync(self, syncing: Syncing, respond: Callable[[Synced], None]) -> None:
        """
        :raises KafkaError: if it is not where it says, or should join again.
        """
        member, classic = self._classic_known(syncing.member_id, syncing.generation_id, syncing.instance_id)
        name, metadata = classic.protocols[0]
        if syncing.protocol_type not in (None, CONSUMER) or syncing.protocol_name not in (None, name):
            raise InconsistentGroupProtocol(f"the member has {CONSUMER!r} and {name!r}")
        if member.epoch < self.state.epoch and member.state is not MemberState.UNREVOKED:
            raise RebalanceInProgress("the member should join again")
        self.stop_expecting_answer(member.member_id)
        self.expect(member)
        respond(
            Synced(
                protocol_type=CONSUMER,
                protocol_name=name,
                assignment=write_assignment(version_of(metadata), by_names(member.assigned, self._context.topics)),
            )
        )

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        """
        :raises RebalanceInProgress: if the member should join again. It lives on all the same.
        """
        member, _ = self._classic_known(member_id, generation_id, instance_id)
        self.expect(member)
        self._refresh_topics()
        if self._has_a_step_to_take(member):
            self.expect_answer(member, is_new=False)
            raise RebalanceInProgress("the member should join again")

    def leave(self, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        self.check_alive()
        codes, members = [], {}
        for each in leaving:
            try:
                member = self._classic_leaving(each)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.none)
                members[member.member_id] = member
        if members:
            self.remove(list(members.values()))
        return codes

    # -- checks -----------------------------------------------------------------------------------------------------

    def _subscription(self, joining: Joining) -> Subscription:
        """
        :raises InconsistentGroupProtocol: if it is no consumer, or has no strategy that all others of its kind have.
        """
        others = [
            {name for name, _ in member.classic.protocols}
            for member in self.state.members.values()
            if member.classic is not None and member.member_id != joining.member_id
        ]
        names = {name for name, _ in joining.protocols}
        if joining.protocol_type != CONSUMER or not names.intersection(*others):
            raise InconsistentGroupProtocol("the members have no protocol in common")
        try:
            return read_subscription(joining.protocols[0][1])
        except Unreadable:
            raise InconsistentGroupProtocol("what the member reads cannot be understood") from None

    def _classic_joining(self, member_id: str, joining: Joining) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Who joins, and whom it replaces."""
        former = None if joining.instance_id is None else self.state.of_instance(joining.instance_id)
        if former is None:
            return self.state.members.get(member_id) or ConsumerMember(member_id=member_id), None
        if joining.member_id == UNKNOWN_MEMBER:
            return replace(former, member_id=member_id, epoch=JOINS, previous_epoch=JOINS), former
        if former.member_id != member_id:
            raise FencedInstanceId(f"the instance {joining.instance_id!r} is now {former.member_id!r}")
        return former, None

    def _classic_known(
        self, member_id: str, generation_id: int, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicSide]:
        self.check_alive()
        member = self.known(member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"the member {member_id!r} does not speak the classic protocol")
        if generation_id != member.epoch:
            raise IllegalGeneration(f"the generation is {member.epoch}, not {generation_id}")
        return member, member.classic

    def _classic_leaving(self, leaving: Leaving) -> ConsumerMember:
        if leaving.member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
            member = self.state.of_instance(leaving.instance_id)  # an administrator takes it out
            if member is not None:
                return member
        member = self.known(leaving.member_id, leaving.instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"the member {leaving.member_id!r} does not speak the classic protocol")
        return member

    def _has_a_step_to_take(self, member: ConsumerMember) -> bool:
        if member.epoch < self.state.epoch or member.state is MemberState.UNREVOKED:
            return True
        return member.state is MemberState.UNRELEASED and self.can_get_more(member)


def by_ids(partitions: Mapping[str, frozenset[int]], topics: TopicLookup) -> Assignment:
    """Without topics that do not exist."""
    return {
        topic.topic_id: numbers for name, numbers in partitions.items() if numbers and (topic := topics.topic(name))
    }


def by_names(assignment: Assignment, topics: TopicLookup) -> dict[str, frozenset[int]]:
    """Without topics that do not exist any more."""
    return {topic.name: numbers for topic_id, numbers in assignment.items() if (topic := topics.topic_by_id(topic_id))}
