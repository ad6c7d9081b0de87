"""A group of the consumer protocol: the coordinator assigns partitions, and members only say that they live (KIP-848).

Requests come in here and are checked against what the group knows; what follows is in ``consumer_core.py``. A request
that is refused raises, and has changed nothing.

A *static* member (one with an instance id) may leave for a while (epoch -2). Its partitions stay with it until its
session is over; whoever comes back under its instance id takes its place, with its partitions and without a new
assignment. While it has not left, nobody else may have its instance id.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headrace.coordination.znodes import encode_uuid, random_uuid
from headrace.groups.assignment import is_within
from headrace.groups.consumer_classic import ClassicSideOfConsumerGroup
from headrace.groups.consumer_heartbeat import Beat, Beaten
from headrace.groups.consumer_member import JOINS, LEAVES, NO_REBALANCE_TIMEOUT, ConsumerMember
from headrace.groups.consumer_records import without_group
from headrace.groups.context import GroupContext
from headrace.groups.offset_records import TopicCommit
from headrace.protocol.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    IllegalGeneration,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from headrace.replication.journal import KeyValue

DEAD = "Dead"


class ConsumerGroup(ClassicSideOfConsumerGroup):
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(
        self,
        group_id: str,
        context: GroupContext,
        write: Callable[[Sequence[KeyValue]], None],
        on_removal: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(group_id, context, write, on_removal)
        self._is_closed = False

    @property
    def state_name(self) -> str:
        return DEAD if self._is_closed else self.state.name

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    # -- heartbeats -------------------------------------------------------------------------------------------------

    def heartbeat_of(self, beat: Beat) -> Beaten:
        """A heartbeat that was checked for itself.

        :raises KafkaError: if the member is not, or not any more, what it says.
        """
        self.check_alive()
        if beat.leaves:
            return self._leave(beat)
        self.check_room(beat.member_id)
        if beat.epoch == JOINS:
            member, replaces = self._joining(beat)
        else:
            member, replaces = self._checked(beat), None
        updated = self.advance(_described(member, beat), beat.owned, replaces=replaces)
        self.expect(updated)
        is_told = beat.is_full or updated.assigned != member.assigned
        return Beaten(
            member_id=updated.member_id,
            epoch=updated.epoch,
            heartbeat_interval_ms=self._context.group_int(self.group_id, "consumer.heartbeat.interval.ms"),
            assignment=updated.assigned if is_told else None,
        )

    def _joining(self, beat: Beat) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Who joins, and whom it replaces."""
        member_id = beat.member_id or encode_uuid(random_uuid())
        former = None if beat.instance_id is None else self.state.of_instance(beat.instance_id)
        if former is not None and (former.is_away or former.classic is not None):
            return replace(former, member_id=member_id, epoch=JOINS, previous_epoch=JOINS), former
        if former is not None and former.member_id != member_id:
            raise UnreleasedInstanceId(f"the instance {beat.instance_id!r} is still {former.member_id!r}")
        return self.state.members.get(member_id) or ConsumerMember(member_id=member_id), None

    def _checked(self, beat: Beat) -> ConsumerMember:
        member = self.known(beat.member_id, beat.instance_id)
        if beat.epoch == member.epoch:
            return member
        # The answer that told it of its epoch may have been lost; then it has nothing that it should not have.
        missed_answer = (
            beat.epoch == member.previous_epoch < member.epoch
            and beat.owned is not None
            and is_within(beat.owned, member.assigned)
        )
        if not missed_answer:
            raise FencedMemberEpoch(f"the member's epoch is {member.epoch}, not {beat.epoch}")
        return member

    def _leave(self, beat: Beat) -> Beaten:
        member = self.known(beat.member_id, beat.instance_id)
        if beat.epoch == LEAVES:
            self.remove([member])
        else:
            self.put_aside(member, beat.epoch)
        return Beaten(member_id=beat.member_id, epoch=beat.epoch)

    # -- checks that requests share ---------------------------------------------------------------------------------

    def check_alive(self) -> None:
        if self._is_closed:
            raise CoordinatorNotAvailable(f"the group {self.group_id!r} is gone")

    def check_room(self, member_id: str) -> None:
        most = self._context.settings.int("group.consumer.max.size")
        if member_id not in self.state.members and len(self.state.members) >= most:
            raise GroupMaxSizeReached(f"the group {self.group_id!r} has {most} members already")

    def known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """
        :raises UnknownMemberId, FencedInstanceId: if there is no such member, or another has taken its place.
        """
        if instance_id is None:
            member = self.state.members.get(member_id)
        else:
            member = self.state.of_instance(instance_id)
            if member is not None and member.member_id != member_id:
                raise FencedInstanceId(f"the instance {instance_id!r} is now {member.member_id!r}")
        if member is None:
            raise UnknownMemberId(f"no member {member_id!r} in the group {self.group_id!r}")
        return member

    # -- offsets ----------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        generation_or_epoch: int,
        instance_id: str | None,  # noqa: ARG002  its member id says enough
        *,
        is_transactional: bool = False,  # noqa: ARG002
    ) -> None:
        self.check_alive()
        if generation_or_epoch < 0 and not self.state.members:
            return  # an administrator sets the offsets of a group that nobody uses
        self._check_epoch(self.known(member_id, None), generation_or_epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self.check_alive()
        if not member_id and member_epoch < 0:
            return  # an administrator
        self._check_epoch(self.known(member_id or "", None), member_epoch)

    def _check_epoch(self, member: ConsumerMember, epoch: int) -> None:
        if epoch == member.epoch:
            return
        if member.classic is not None:
            raise IllegalGeneration(f"the generation is {member.epoch}, not {epoch}")
        raise StaleMemberEpoch(f"the member's epoch is {member.epoch}, not {epoch}")

    def may_still_commit(self, member_id: str, epoch: int, commits: Iterable[TopicCommit]) -> bool:
        """Whether a commit of an older epoch is as good as one of the member's: it has had the partitions since then,
        without a break, and so nobody else can have read on (KIP-1251)."""
        member = self.state.members.get(member_id)
        if member is None or member.classic is not None or not 0 <= epoch < member.epoch:
            return False
        holds = member.holds
        return all(
            commit.topic_id is not None
            and partition in holds.get(commit.topic_id, ())
            and member.assigned_at(commit.topic_id, partition) <= epoch
            for commit in commits
            for partition, *_ in commit.partitions
        )

    def speaks_consumer_protocol(self, member_id: str) -> bool:
        member = self.state.members.get(member_id)
        return member is not None and member.classic is None

    def check_offset_delete(self) -> None:
        self.check_alive()

    def is_subscribed_to(self, topic: str) -> bool:
        return self.state.reads(topic)

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    # -- life -------------------------------------------------------------------------------------------------------

    def close(self, error: type[KafkaError]) -> None:  # noqa: ARG002  nobody waits
        self._is_closed = True
        # Not by the members: when a group changes its protocol, their tombstones have been applied before.
        for member_id in {*self._sessions, *self._revocations, *self._answers}:
            self._stop_timers(member_id)
        if self._assigning is not None:
            self._assigning.cancel()
            self._assigning = None

    def tombstones(self) -> list[KeyValue]:
        return without_group(self.group_id, self.state.members, self.state.regexes)


def _described(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member with what a heartbeat says of it; what it does not mention is as before."""
    return replace(
        member,
        instance_id=member.instance_id if beat.instance_id is None else beat.instance_id,
        rack_id=member.rack_id if beat.rack_id is None else beat.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if beat.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT
        else beat.rebalance_timeout_ms,
        server_assignor=member.server_assignor if beat.server_assignor is None else beat.server_assignor,
        topic_names=member.topic_names if beat.topic_names is None else beat.topic_names,
        topic_regex=member.topic_regex if beat.topic_regex is None else beat.topic_regex or None,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )
