"""Moves a group of the consumer protocol to its target assignment.

A change of the members or of their topics raises the *group epoch*. If the group epoch is higher than the epoch of the
target assignment, the coordinator computes a new target assignment. Then each member moves to its part of the target,
one step per heartbeat (``reconciliation.py``).

Each change is written as one batch of records that is complete by itself. After a crash between two batches, the next
request of any member continues from where the log ends.

Nothing in this module waits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import getLogger

from headrace.groups.consumer.assignment import Assignment, difference, pairs
from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber, configured_assignors
from headrace.groups.consumer.member import ConsumerMember, ConsumerMemberState
from headrace.groups.consumer.metadata import ConsumerGroupMetadata, subscribed_names
from headrace.groups.consumer.reconciliation import reconcile
from headrace.groups.consumer.records import (
    epoch_record,
    member_record,
    member_tombstones,
    progress_record,
    regex_record,
    regex_tombstone,
    target_member_record,
    target_record,
)
from headrace.groups.consumer.timeouts import MemberTimeouts
from headrace.groups.consumer.topics import SubscribedTopics
from headrace.groups.context import GroupContext
from headrace.peer_log import one_line
from headrace.protocol.errors import GroupMaxSizeReached, KafkaError
from headrace.replication.journal import KeyValue
from headrace.runtime.timer import TimerTask

logger = getLogger(__name__)

#: The delay before the coordinator tries again to remove a member, if the records could not be written.
_RETRY_MS = 1_000


class ConsumerRebalancer:
    """The changes of one group: its members, its target assignment, and the members' progress."""

    def __init__(
        self,
        metadata: ConsumerGroupMetadata,
        context: GroupContext,
        write: Callable[[Sequence[KeyValue]], None],
        on_removal: Callable[[str], object],
    ) -> None:
        """
        :param write: appends records and applies them to the metadata.
        :param on_removal: called with the group's id after members were removed.
        """
        self.timeouts = MemberTimeouts(context.timer, self._remove_expired)
        self._metadata = metadata
        self._group_id = metadata.group_id
        self._context = context
        self._topics = SubscribedTopics(context.topics)
        self._write = write
        self._on_removal = on_removal
        #: Computes the target assignment later, if the interval between two assignments has not passed yet.
        self._delayed_assignment: TimerTask | None = None
        #: The version of the topics for which the metadata hash was last computed.
        self._seen_topics_version: int | None = None

    def on_loaded(self) -> None:
        """Starts the timeouts of the members that were loaded."""
        for member in self._metadata.members.values():
            self.restart_session(member)
            self._start_revocation_timeout(member)

    def stop(self) -> None:
        """Stops all timers of the group."""
        self.timeouts.stop_all()
        self._cancel_delayed_assignment()

    # -- a member's request -----------------------------------------------------------------------------------------

    def check_group_size(self, member_id: str) -> None:
        """
        :raises GroupMaxSizeReached: if the group is full and does not have this member.
        """
        most, members = self._context.settings.int("group.consumer.max.size"), self._metadata.members
        if member_id not in members and len(members) >= most:
            raise GroupMaxSizeReached(f"the group {self._group_id!r} has group.consumer.max.size = {most} members")

    def asked_by(self, may_describe: Callable[[str], bool]) -> None:
        """Takes over which topics the member sees whose request comes next."""
        self._topics.may_describe = may_describe

    def update_member(
        self,
        member: ConsumerMember,
        owned: Assignment | None,
        *,
        replaces: ConsumerMember | None = None,
        is_urgent: bool = False,
    ) -> ConsumerMember:
        """Stores a member's description, and moves the member and the group as far as they can go. Returns the member.

        :param owned: the partitions that the member says it owns; None if they are the same as before.
        :param replaces: the static member whose place this member takes over.
        :param is_urgent: the member cannot wait for a new assignment.
        :raises InvalidRegularExpression: if RE2 does not accept the member's expression.
        """
        former = replaces or self._metadata.members.get(member.member_id)
        has_changed_topics = former is not None and not former.has_subscription_of(member)
        self._write_description(member, former, replaces)
        self.refresh_topics()
        if self._metadata.epoch > self._metadata.target_epoch:
            self._assign_when_due(is_urgent=is_urgent or has_changed_topics)
        return self._reconcile(member.member_id, owned)

    def _write_description(
        self, member: ConsumerMember, former: ConsumerMember | None, replaces: ConsumerMember | None
    ) -> None:
        group_id, metadata = self._group_id, self._metadata
        records: list[KeyValue] = []
        if replaces is not None:
            self.timeouts.stop(replaces.member_id)
            records += [
                *member_tombstones(group_id, replaces.member_id),
                member_record(group_id, member),
                target_member_record(group_id, member.member_id, metadata.target_of(replaces.member_id)),
                progress_record(group_id, member),
            ]
        elif former is None or not former.has_description_of(member):
            records.append(member_record(group_id, member))
        if former is None or not former.has_subscription_of(member):
            members = {**metadata.members, member.member_id: member}
            if replaces is not None and replaces.member_id != member.member_id:
                del members[replaces.member_id]
            records += self._subscription_records(members)
        if records:
            self._write(records)

    def _subscription_records(self, members: Mapping[str, ConsumerMember]) -> list[KeyValue]:
        """The records of the regular expressions and of the next group epoch, when these become the members."""
        group_id, known = self._group_id, self._metadata.regexes
        used = {member.topic_regex for member in members.values() if member.topic_regex}
        regexes = {regex: known.get(regex) or self._topics.matching(regex) for regex in used}
        metadata_hash = self._topics.hash_of(subscribed_names(members.values(), regexes))
        return [
            *self._changed_regex_records(regexes),
            *(regex_tombstone(group_id, regex) for regex in sorted(known.keys() - used)),
            epoch_record(group_id, self._metadata.epoch + 1, metadata_hash),
        ]

    def _changed_regex_records(self, regexes: Mapping[str, frozenset[str]]) -> list[KeyValue]:
        version, now_ms = self._topics.version, self._context.clock.wall_ms()
        return [
            regex_record(self._group_id, regex, topics, version, now_ms)
            for regex, topics in sorted(regexes.items())
            if self._metadata.regexes.get(regex) != topics
        ]

    def refresh_topics(self) -> None:
        """Resolves the subscriptions again if topics have changed since the last time. Raises the epoch if needed."""
        version, metadata = self._topics.version, self._metadata
        if version == self._seen_topics_version:
            return
        regexes = {regex: self._topics.matching(regex, known) for regex, known in metadata.regexes.items()}
        records = self._changed_regex_records(regexes)
        metadata_hash = self._topics.hash_of(subscribed_names(metadata.members.values(), regexes))
        if metadata_hash != metadata.metadata_hash:
            records.append(epoch_record(self._group_id, metadata.epoch + 1, metadata_hash))
        if records:
            self._write(records)
        if self._topics.may_describe is not None or not regexes:
            self._seen_topics_version = version

    # -- the target assignment --------------------------------------------------------------------------------------

    @property
    def assignor_name(self) -> str:
        """The assignor that most members ask for, or the broker's default."""
        names = configured_assignors(self._context.settings)
        return self._metadata.preferred_assignor(names) or names[0]

    def _assign_when_due(self, *, is_urgent: bool) -> None:
        """Computes the target assignment, at most once per interval: members that join together cause one assignment.

        A member that changes its topics does not wait for the interval, and neither does the only member of a group.
        """
        metadata = self._metadata
        interval_ms = self._context.group_int(self._group_id, "consumer.assignment.interval.ms")
        wait_ms = metadata.target_made_at_ms + interval_ms - self._context.clock.wall_ms()
        if is_urgent or len(metadata.members) == 1 or not 0 < wait_ms <= interval_ms:
            self._assign()
        elif self._delayed_assignment is None:
            self._delayed_assignment = self._context.timer.schedule(wait_ms, self._assign)

    def _cancel_delayed_assignment(self) -> None:
        if self._delayed_assignment is not None:
            self._delayed_assignment.cancel()
            self._delayed_assignment = None

    def _assign(self) -> None:
        self._cancel_delayed_assignment()
        metadata = self._metadata
        if not metadata.members or metadata.epoch <= metadata.target_epoch:
            return
        topics = self._topics.existing(subscribed_names(metadata.members.values(), metadata.regexes))
        target = ASSIGNORS[self.assignor_name](
            {
                member.member_id: Subscriber(
                    frozenset(topics[name].topic_id for name in metadata.topics_of(member) if name in topics),
                    metadata.target_of(member.member_id),
                    member.instance_id,
                )
                for member in metadata.members.values()
            },
            {topic.topic_id: topic.partition_count for topic in topics.values()},
        )
        changed = [
            target_member_record(self._group_id, member_id, assignment)
            for member_id, assignment in target.items()
            if member_id not in metadata.target or metadata.target[member_id] != assignment
        ]
        self._write([*changed, target_record(self._group_id, metadata.epoch, self._context.clock.wall_ms())])

    def _reconcile(self, member_id: str, owned: Assignment | None) -> ConsumerMember:
        metadata = self._metadata
        member = metadata.members[member_id]
        updated = reconcile(
            member,
            metadata.target_of(member_id),
            metadata.target_epoch,
            owned=owned,
            is_free=lambda topic_id, partition: metadata.is_free_for(member_id, topic_id, partition),
        )
        if updated is not member:
            if updated != member:
                self._write([progress_record(self._group_id, updated)])
            self._start_revocation_timeout(updated)
        return metadata.members[member_id]

    def has_free_partition(self, member: ConsumerMember) -> bool:
        """Tells whether a partition that the member waits for is free now."""
        missing = difference(self._metadata.target_of(member.member_id), member.assigned)
        return any(self._metadata.is_free_for(member.member_id, *pair) for pair in pairs(missing))

    # -- members that leave -----------------------------------------------------------------------------------------

    def remove(self, leaving: Sequence[ConsumerMember]) -> None:
        """Removes members from the group."""
        removed_ids = {member.member_id for member in leaving}
        for member_id in removed_ids:
            self.timeouts.stop(member_id)
        staying = {
            member_id: member for member_id, member in self._metadata.members.items() if member_id not in removed_ids
        }
        tombstones = [record for member in leaving for record in member_tombstones(self._group_id, member.member_id)]
        self._write([*tombstones, *self._subscription_records(staying)])
        self._on_removal(self._group_id)

    def leave_for_a_while(self, member: ConsumerMember, epoch: int) -> None:
        """A static member leaves and may come back: it keeps its partitions until its session ends."""
        self.timeouts.revocations.stop(member.member_id)
        self._write([progress_record(self._group_id, replace(member, epoch=epoch, pending_revocation={}))])

    def _remove_expired(self, member_id: str) -> None:
        """Removes a member after one of its timeouts. If the records cannot be written, tries again later."""
        try:
            self.remove([self._metadata.members[member_id]])
        except (KafkaError, OSError) as error:
            logger.warning(
                "cannot remove the member %s of the group %s after its timeout, next try in %d ms: %s",
                one_line(member_id),
                one_line(self._group_id),
                _RETRY_MS,
                error,
            )
            if member_id in self._metadata.members:
                self.timeouts.sessions.start(member_id, _RETRY_MS)

    # -- timeouts ---------------------------------------------------------------------------------------------------

    def restart_session(self, member: ConsumerMember) -> None:
        """Starts a full session for a member that has sent a request."""
        timeout_ms = (
            self._context.group_int(self._group_id, "consumer.session.timeout.ms")
            if member.classic_metadata is None
            else member.classic_metadata.session_timeout_ms
        )
        self.timeouts.sessions.start(member.member_id, timeout_ms)

    def _start_revocation_timeout(self, member: ConsumerMember) -> None:
        """Gives a member its rebalance timeout to give up partitions, because other members wait for them."""
        self.timeouts.revocations.stop(member.member_id)
        if member.state is ConsumerMemberState.UNREVOKED:
            self.timeouts.revocations.start(member.member_id, member.rebalance_timeout_ms)
