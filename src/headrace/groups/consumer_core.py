"""What makes a group of the consumer protocol move: epochs, the target assignment, members on their way to it.

A change of who is there or of what they read raises the *group epoch*. A group epoch past that of the target means that
partitions are to be assigned anew; then each member is led to its new target, a step with each of its requests. What
changes is written in batches that are whole in themselves: a crash between two of them leaves a group that the next
request of any member carries on from.

Nothing of this waits. Timers are not recorded: after a start everybody gets a full session anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from logging import getLogger

from headrace.groups.assignment import Assignment, each, without
from headrace.groups.assignors import ASSIGNORS, Subscriber, assignors_of
from headrace.groups.consumer_member import ConsumerMember, MemberState
from headrace.groups.consumer_records import (
    current_record,
    epoch_record,
    hash_of_topics,
    member_record,
    regex_record,
    target_member_record,
    target_record,
    without_member,
    without_regex,
)
from headrace.groups.consumer_state import ConsumerState, names_read
from headrace.groups.context import GroupContext, KnownTopic
from headrace.groups.reconciliation import reconcile
from headrace.patterns import compiled_pattern
from headrace.protocol.errors import KafkaError
from headrace.replication.journal import KeyValue
from headrace.runtime.timer import TimerTask

logger = getLogger(__name__)

#: After how long it is tried again to write what could not be written.
_RETRY_MS = 1_000


class ConsumerCore:
    def __init__(
        self,
        group_id: str,
        context: GroupContext,
        write: Callable[[Sequence[KeyValue]], None],
        on_removal: Callable[[str], object] = lambda _: None,
    ) -> None:
        """
        :param write: appends records and applies them to this group.
        :param on_removal: told the group's id after members have gone.
        """
        self.group_id = group_id
        self.state = ConsumerState()
        self._context = context
        self._write = write
        self._on_removal = on_removal
        self._sessions: dict[str, TimerTask] = {}
        self._revocations: dict[str, TimerTask] = {}
        #: Until when a member of the classic protocol must have joined again, or synced.
        self._answers: dict[str, TimerTask] = {}
        self._assigning: TimerTask | None = None
        #: The topics that the metadata hash was last compared with.
        self._seen_topics_version: int | None = None

    # -- a member's request -----------------------------------------------------------------------------------------

    def advance(
        self,
        member: ConsumerMember,
        owned: Assignment | None,
        *,
        replaces: ConsumerMember | None = None,
        is_urgent: bool = False,
    ) -> ConsumerMember:
        """The member says this of itself, and owns that (None: as before): it and the group go on as far as they can.

        :param replaces: the static member whose place it takes.
        :param is_urgent: it cannot wait for a new assignment.
        :raises KafkaError: if its expression is none.
        """
        former = replaces or self.state.members.get(member.member_id)
        has_changed_topics = former is not None and not former.has_subscription_of(member)
        self._describe(member, former, replaces)
        self._refresh_topics()
        if self.state.epoch > self.state.target_epoch:
            self._assign_when_due(is_urgent=is_urgent or has_changed_topics)
        return self._reconcile(member.member_id, owned)

    def _describe(self, member: ConsumerMember, former: ConsumerMember | None, replaces: ConsumerMember | None) -> None:
        records: list[KeyValue] = []
        if replaces is not None:
            self._stop_timers(replaces.member_id)
            records += [
                *without_member(self.group_id, replaces.member_id),
                member_record(self.group_id, member),
                target_member_record(self.group_id, member.member_id, self.state.target_of(replaces.member_id)),
                current_record(self.group_id, member),
            ]
        elif former is None or not former.says_the_same(member):
            records.append(member_record(self.group_id, member))
        if former is None or not former.has_subscription_of(member):
            members = {**self.state.members, member.member_id: member}
            if replaces is not None and replaces.member_id != member.member_id:
                del members[replaces.member_id]
            records += self._change_of(members)
        if records:
            self._write(records)

    def _change_of(self, members: Mapping[str, ConsumerMember]) -> list[KeyValue]:
        """What is written, besides themselves, when these become the members: expressions and the next epoch."""
        used = {member.topic_regex for member in members.values() if member.topic_regex}
        regexes = {regex: self.state.regexes.get(regex) or self._matched_by(regex) for regex in used}
        return [
            *self._changed_regexes(regexes),
            *(without_regex(self.group_id, regex) for regex in sorted(self.state.regexes.keys() - used)),
            epoch_record(self.group_id, self.state.epoch + 1, self._hash_of(names_read(members.values(), regexes))),
        ]

    def _changed_regexes(self, regexes: Mapping[str, frozenset[str]]) -> list[KeyValue]:
        version, now_ms = self._context.topics.version, self._context.clock.wall_ms()
        return [
            regex_record(self.group_id, regex, topics, version, now_ms)
            for regex, topics in sorted(regexes.items())
            if self.state.regexes.get(regex) != topics
        ]

    # -- topics -----------------------------------------------------------------------------------------------------

    def _refresh_topics(self) -> None:
        """If topics have changed since we last looked, so may have what expressions match and what there is to read."""
        version = self._context.topics.version
        if version == self._seen_topics_version:
            return
        regexes = {regex: self._matched_by(regex) for regex in self.state.regexes}
        records = self._changed_regexes(regexes)
        metadata_hash = self._hash_of(names_read(self.state.members.values(), regexes))
        if metadata_hash != self.state.metadata_hash:
            records.append(epoch_record(self.group_id, self.state.epoch + 1, metadata_hash))
        if records:
            self._write(records)
        self._seen_topics_version = version

    def _matched_by(self, regex: str) -> frozenset[str]:
        return compiled_pattern(regex).among(topic.name for topic in self._context.topics.all_topics())

    def _hash_of(self, names: frozenset[str]) -> int:
        return hash_of_topics(self._existing(names).values())

    def _existing(self, names: frozenset[str]) -> dict[str, KnownTopic]:
        topics = self._context.topics
        return {name: found for name in names if (found := topics.topic(name)) is not None}

    # -- the target -------------------------------------------------------------------------------------------------

    @property
    def assignor_name(self) -> str:
        names = assignors_of(self._context.settings)
        return self.state.preferred_assignor(names) or names[0]

    def _assign_when_due(self, *, is_urgent: bool) -> None:
        """Many members that come together cost one assignment, not one each.

        Who changes its topics does not wait, nor does who is alone.
        """
        interval_ms = self._context.group_int(self.group_id, "consumer.assignment.interval.ms")
        wait_ms = self.state.target_made_at_ms + interval_ms - self._context.clock.wall_ms()
        if is_urgent or len(self.state.members) == 1 or not 0 < wait_ms <= interval_ms:
            self._assign()
        elif self._assigning is None:
            self._assigning = self._context.timer.schedule(wait_ms, self._assign)

    def _assign(self) -> None:
        if self._assigning is not None:
            self._assigning.cancel()
            self._assigning = None
        state = self.state
        if not state.members or state.epoch <= state.target_epoch:
            return
        topics = self._existing(names_read(state.members.values(), state.regexes))
        plan = ASSIGNORS[self.assignor_name](
            {
                member.member_id: Subscriber(
                    frozenset(topics[name].topic_id for name in state.topics_of(member) if name in topics),
                    state.target_of(member.member_id),
                    member.instance_id,
                )
                for member in state.members.values()
            },
            {topic.topic_id: topic.partition_count for topic in topics.values()},
        )
        changed = [
            target_member_record(self.group_id, member_id, assignment)
            for member_id, assignment in plan.items()
            if member_id not in state.target or state.target[member_id] != assignment
        ]
        self._write([*changed, target_record(self.group_id, state.epoch, self._context.clock.wall_ms())])

    def _reconcile(self, member_id: str, owned: Assignment | None) -> ConsumerMember:
        state = self.state
        member = state.members[member_id]
        updated = reconcile(
            member,
            state.target_of(member_id),
            state.target_epoch,
            owned=owned,
            is_free=lambda topic_id, partition: state.is_free_for(member_id, topic_id, partition),
        )
        if updated is not member:
            if updated != member:
                self._write([current_record(self.group_id, updated)])
            self._expect_revocation(updated)
        return state.members[member_id]

    def can_get_more(self, member: ConsumerMember) -> bool:
        """Whether a partition that the member waits for is free now."""
        wanted = without(self.state.target_of(member.member_id), member.assigned)
        return any(self.state.is_free_for(member.member_id, *pair) for pair in each(wanted))

    # -- members that go --------------------------------------------------------------------------------------------

    def remove(self, leaving: Sequence[ConsumerMember]) -> None:
        gone = {member.member_id for member in leaving}
        for member_id in gone:
            self._stop_timers(member_id)
        staying = {member_id: member for member_id, member in self.state.members.items() if member_id not in gone}
        records = [record for member in leaving for record in without_member(self.group_id, member.member_id)]
        self._write([*records, *self._change_of(staying)])
        self._on_removal(self.group_id)

    def put_aside(self, member: ConsumerMember, epoch: int) -> None:
        """A static member goes for a while: what it is assigned is kept for it, within its session."""
        self._stop_revocation(member.member_id)
        self._write([current_record(self.group_id, replace(member, epoch=epoch, pending_revocation={}))])

    # -- time -------------------------------------------------------------------------------------------------------

    def expect(self, member: ConsumerMember) -> None:
        """The member lives. It has another session's time to show so again."""
        session = self._sessions.get(member.member_id)
        if session is not None:
            session.cancel()
        timeout_ms = (
            self._context.group_int(self.group_id, "consumer.session.timeout.ms")
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self._sessions[member.member_id] = self._context.timer.schedule(
            timeout_ms, lambda: self._session_over(member.member_id)
        )

    def _session_over(self, member_id: str) -> None:
        del self._sessions[member_id]
        self._remove_overdue(member_id)

    def _remove_overdue(self, member_id: str) -> None:
        """Its time is up, whatever for. If that cannot be written now, it is tried again unless it shows up."""
        try:
            self.remove([self.state.members[member_id]])
        except (KafkaError, OSError) as error:
            logger.warning("%s of the group %s cannot be removed yet: %s", member_id, self.group_id, error)
            if member_id in self.state.members:
                self._sessions[member_id] = self._context.timer.schedule(
                    _RETRY_MS, lambda: self._session_over(member_id)
                )

    def _expect_revocation(self, member: ConsumerMember) -> None:
        """A member that does not let go of partitions within its own rebalance timeout is out: others wait for them."""
        self._stop_revocation(member.member_id)
        if member.state is MemberState.UNREVOKED:
            self._revocations[member.member_id] = self._context.timer.schedule(
                member.rebalance_timeout_ms, lambda: self._revocation_over(member.member_id)
            )

    def _revocation_over(self, member_id: str) -> None:
        del self._revocations[member_id]
        self._remove_overdue(member_id)

    def _stop_revocation(self, member_id: str) -> None:
        revocation = self._revocations.pop(member_id, None)
        if revocation is not None:
            revocation.cancel()

    def expect_answer(self, member: ConsumerMember, *, is_new: bool = True) -> None:
        """A member of the classic protocol has its rebalance timeout for the next of JoinGroup and SyncGroup."""
        if is_new:
            self.stop_expecting_answer(member.member_id)
        if member.member_id not in self._answers:
            self._answers[member.member_id] = self._context.timer.schedule(
                member.rebalance_timeout_ms, lambda: self._answer_over(member.member_id)
            )

    def stop_expecting_answer(self, member_id: str) -> None:
        answer = self._answers.pop(member_id, None)
        if answer is not None:
            answer.cancel()

    def _answer_over(self, member_id: str) -> None:
        del self._answers[member_id]
        self._remove_overdue(member_id)

    def _stop_timers(self, member_id: str) -> None:
        self._stop_revocation(member_id)
        self.stop_expecting_answer(member_id)
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.cancel()

    def loaded(self) -> None:
        for member in self.state.members.values():
            self.expect(member)
            self._expect_revocation(member)
