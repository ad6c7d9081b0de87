"""How a classic group goes from one generation to the next.

A rebalance begins when somebody comes, goes or changes (:meth:`Rebalancing.prepare`). Members learn of it from their
heartbeats and join again. When all have, or when the slowest one's rebalance timeout has passed, those that have not
are out (but for static members, who have until their session ends), and the rest is a new generation. The leader is
given the members and answers with the assignment; who does not ask for his part within the rebalance timeout is out,
and the next rebalance begins.

The first rebalance of an empty group waits ``group.initial.rebalance.delay.ms`` for more members, and as long again
whenever some came, up to the rebalance timeout: else a group of a hundred would rebalance a hundred times.

Every member has a session, which ends if nothing is heard of it for its session timeout. It cannot end while the member
waits for an answer of ours. Only a member that waits for its first answer is given up after five minutes: it has no id
yet, so its client may have gone and come back as another.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from logging import getLogger

from headrace.groups.classic_records import group_record
from headrace.groups.context import GroupContext
from headrace.groups.group import Joined, Synced
from headrace.groups.members import Member, Members
from headrace.groups.states import NEXT, State
from headrace.groups.subscription import subscribed_topics
from headrace.protocol.errors import ErrorCode, KafkaError, NotCoordinator
from headrace.replication.journal import KeyValue
from headrace.runtime.timer import TimerTask

logger = getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
CONSUMER = "consumer"


class Rebalancing:
    """The state of a classic group, and the ways in which it changes by itself."""

    def __init__(self, group_id: str, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        #: Wall time. -1 if the record that the group was loaded from does not say.
        self.state_since_ms = context.clock.wall_ms()
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        #: None where nobody can tell: no consumers, or no generation yet.
        self.subscribed_topics: frozenset[str] | None = None
        self._context = context
        self._append = append
        self._phase: TimerTask | None = None
        self._is_initial = False
        self._have_more_come = False
        self._unsynced: set[str] = set()

    def _move(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.state = state
        self.state_since_ms = self._context.clock.wall_ms()

    def _schedule_phase(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._stop_phase()
        self._phase = self._context.timer.schedule(delay_ms, action)

    def _stop_phase(self) -> None:
        if self._phase is not None:
            self._phase.cancel()
            self._phase = None

    def _append_group(self, assignments: Mapping[str, bytes]) -> None:
        """
        :raises NotCoordinator: if the record cannot be written; the client then looks for who can.
        """
        try:
            self._append([group_record(self, assignments)])
        except KafkaError as error:
            logger.error("the group %s cannot be written: %s", self.group_id, error)
            raise NotCoordinator(str(error)) from error

    # -- joining ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """A rebalance begins."""
        self._is_initial, self._have_more_come = self.state is State.EMPTY, False
        self._move(State.PREPARING)
        self._stop_phase()
        self._unsynced.clear()
        for member in self.members:
            if member.awaiting_sync is not None:
                member.answer_sync(Synced(error=ErrorCode.rebalance_in_progress))
                self.expect(member)
        if self._is_initial:
            delay_ms = self._context.settings.int("group.initial.rebalance.delay.ms")
            self._wait_for_more(delay_ms, max(0, self.members.rebalance_timeout_ms - delay_ms))
        elif self.members.have_all_joined:
            self._complete_join()
        else:
            self._schedule_phase(self.members.rebalance_timeout_ms, self._complete_join)

    def _wait_for_more(self, delay_ms: int, left_ms: int) -> None:
        self._have_more_come = False
        self._schedule_phase(delay_ms, lambda: self._waited_for_more(delay_ms, left_ms))

    def _waited_for_more(self, delay_ms: int, left_ms: int) -> None:
        if self._have_more_come and left_ms > 0:
            most_ms = self._context.settings.int("group.initial.rebalance.delay.ms")
            self._wait_for_more(min(most_ms, left_ms), max(0, left_ms - delay_ms))
        else:
            self._complete_join()

    def changed(self) -> None:
        """Somebody came, went or changed: a rebalance begins, or the one under way may be complete."""
        if State.PREPARING in NEXT[self.state]:
            self.prepare()
        elif self.state is State.PREPARING and not self._is_initial and self.members.have_all_joined:
            self._complete_join()

    def _complete_join(self) -> None:
        for member in self.members:
            if member.awaiting_join is None and member.instance_id is None:
                self._drop(member)
        if len(self.members) and not self.members.elect_joined_leader():
            # Static members alone, and none has joined: their sessions end, or they come.
            self._schedule_phase(self.members.rebalance_timeout_ms, self._complete_join)
            return
        self._stop_phase()
        self.generation_id += 1
        if len(self.members):
            self._begin_generation()
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        self.protocol_name = None
        self.subscribed_topics = frozenset() if self.protocol_type == CONSUMER else None
        self._move(State.EMPTY)
        with suppress(NotCoordinator):  # logged; whoever loads finds the last generation, and nobody who speaks for it
            self._append_group({})

    def _begin_generation(self) -> None:
        self.protocol_name = self.members.elected_protocol()
        self.subscribed_topics = self._subscribed_topics()
        self._move(State.COMPLETING)
        self._unsynced = {member.member_id for member in self.members}
        generation_id = self.generation_id
        self._schedule_phase(self.members.rebalance_timeout_ms, lambda: self._sync_timed_out(generation_id))
        for member in self.members:
            member.is_new = False
            member.assignment = b""
            self.expect(member)
            member.answer_join(self.joined(member))

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members)

    def joined(self, member: Member) -> Joined:
        """The answer that makes a member part of this generation."""
        is_leader = member.member_id == self.members.leader_id
        return Joined(
            member_id=member.member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.members.leader_id or "",
            members=self.all_metadata() if is_leader else (),
        )

    def all_metadata(self) -> tuple[tuple[str, str | None, bytes], ...]:
        name = self.protocol_name
        return tuple((each.member_id, each.instance_id, each.metadata(name)) for each in self.members)

    # -- syncing ----------------------------------------------------------------------------------------------------

    def _has_synced(self, member: Member) -> None:
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._stop_phase()

    def _sync_timed_out(self, generation_id: int) -> None:
        if generation_id != self.generation_id or self.state not in (State.COMPLETING, State.STABLE):
            return
        for member_id in sorted(self._unsynced):
            member = self.members.get(member_id)
            if member is not None:
                logger.info("%s of the group %s did not sync in time", member_id, self.group_id)
                self._drop(member)
        self.prepare()

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        """The leader has spoken: written first, then told to all who wait."""
        try:
            self._append_group(assignments)
        except NotCoordinator as error:
            for member in self.members:
                member.answer_sync(Synced(error=error.code))
                self.expect(member)
            self.prepare()
            return
        self._move(State.STABLE)
        for member in self.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                self.expect(member)
                member.answer_sync(self.synced(member))

    def synced(self, member: Member) -> Synced:
        return Synced(protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment)

    # -- sessions ---------------------------------------------------------------------------------------------------

    def expect(self, member: Member) -> None:
        """The member was heard of, or was answered: its session begins anew."""
        member.stop_session()
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session = self._context.timer.schedule(timeout_ms, lambda: self._session_ended(member))

    def _session_ended(self, member: Member) -> None:
        member.session = None
        if self.members.get(member.member_id) is not member or (member.is_waiting and not member.is_new):
            return
        logger.info("%s of the group %s has not been heard of for its session timeout", member.member_id, self.group_id)
        self._drop(member)
        self.changed()

    def promise(self, member_id: str, timeout_ms: int) -> None:
        """Somebody was given this id, and is to join with it."""
        self.members.promised[member_id] = self._context.timer.schedule(
            timeout_ms, lambda: self._promise_ended(member_id)
        )

    def take_promise(self, member_id: str) -> bool:
        task = self.members.promised.pop(member_id, None)
        if task is not None:
            task.cancel()
        return task is not None

    def _promise_ended(self, member_id: str) -> None:
        if self.take_promise(member_id) and self.state is State.PREPARING:
            self.changed()

    def _drop(self, member: Member) -> None:
        member.stop_session()
        self.members.remove(member)
        self._unsynced.discard(member.member_id)
        member.refuse(ErrorCode.unknown_member_id)
