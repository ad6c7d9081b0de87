"""Moves a classic group from one generation to the next.

A rebalance begins when a member joins, leaves or changes (:meth:`ClassicRebalancer.members_changed`). The members learn
of the rebalance from their heartbeats and join again. The join phase ends when all members have joined, or when the
longest rebalance timeout of the members has passed. Members that have not joined by then are removed, except static
members, which stay until their sessions end. The remaining members are the new generation.

The leader receives the list of members and sends the assignment. A member that does not ask for its assignment within
the rebalance timeout is removed, and the next rebalance begins.

The first rebalance of an empty group waits ``group.initial.rebalance.delay.ms`` for more members. If members joined
during the delay, the coordinator waits for the same delay again, up to the rebalance timeout. Without the delay, a
group of a hundred members that start together would rebalance a hundred times.

A session (``sessions.py``) does not end while the member waits for a response of the coordinator, unless the member is
new.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from logging import getLogger

from headrace.groups.classic.members import ClassicMember
from headrace.groups.classic.metadata import CONSUMER_PROTOCOL_TYPE, ClassicGroupMetadata
from headrace.groups.classic.records import group_record
from headrace.groups.classic.sessions import MemberSessions
from headrace.groups.classic.states import NEXT, ClassicGroupState
from headrace.groups.context import GroupContext
from headrace.groups.group import SyncResponse
from headrace.peer_log import one_line
from headrace.protocol.errors import ErrorCode, KafkaError, NotCoordinator
from headrace.replication.journal import KeyValue
from headrace.runtime.timer import TimerTask

logger = getLogger(__name__)


class ClassicRebalancer:
    """The transitions and timers of one classic group."""

    def __init__(
        self, group: ClassicGroupMetadata, context: GroupContext, append: Callable[[Sequence[KeyValue]], None]
    ) -> None:
        """
        :param append: appends records to the group's partition of ``__consumer_offsets``.
        """
        self.sessions = MemberSessions(
            context.timer,
            group.members,
            on_expired=self._session_expired,
            on_pending_id_expired=self._pending_id_expired,
        )
        self._group = group
        self._context = context
        self._append = append
        #: Ends the join phase or the sync phase.
        self._phase_timeout: TimerTask | None = None
        self._is_initial_rebalance = False
        self._has_new_member = False
        #: Ids of the members that have not sent their SyncGroup in this generation.
        self._pending_sync_ids: set[str] = set()

    def stop(self) -> None:
        """Stops all timers of the group."""
        self._stop_phase_timeout()
        self.sessions.stop_all()

    def _transition_to(self, state: ClassicGroupState) -> None:
        self._group.transition_to(state, self._context.clock.wall_ms())

    def _start_phase_timeout(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._stop_phase_timeout()
        self._phase_timeout = self._context.timer.schedule(delay_ms, action)

    def _stop_phase_timeout(self) -> None:
        if self._phase_timeout is not None:
            self._phase_timeout.cancel()
            self._phase_timeout = None

    def write_group(self, assignments: Mapping[str, bytes]) -> None:
        """Appends the group's record.

        :raises NotCoordinator: if the record cannot be appended. The client then looks for another coordinator.
        """
        group = self._group
        try:
            self._append([group_record(group, assignments)])
        except KafkaError as error:
            logger.error("cannot append the record of the group %s: %s", one_line(group.group_id), error)
            raise NotCoordinator(str(error)) from error

    # -- members ----------------------------------------------------------------------------------------------------

    def members_changed(self) -> None:
        """Begins a rebalance after a member has joined, left or changed, or completes the join phase under way."""
        group = self._group
        if ClassicGroupState.PREPARING in NEXT[group.state]:
            self.prepare_rebalance()
        elif (
            group.state is ClassicGroupState.PREPARING
            and not self._is_initial_rebalance
            and group.members.have_all_joined
        ):
            self._complete_join_phase()

    def add_member(self, member: ClassicMember) -> None:
        self._group.members.add(member)
        self.sessions.restart(member)
        self._has_new_member = True
        self.members_changed()

    def remove_member(self, member: ClassicMember) -> None:
        """Removes a member and answers its waiting requests with an error. The caller calls :meth:`members_changed`."""
        self.sessions.stop(member)
        self._group.members.remove(member)
        self._pending_sync_ids.discard(member.member_id)
        member.answer_error(ErrorCode.unknown_member_id)

    def replace_member_id(self, member: ClassicMember, member_id: str) -> None:
        """Gives a static member that has restarted a new member id."""
        if member.member_id in self._pending_sync_ids:
            self._pending_sync_ids.remove(member.member_id)
            self._pending_sync_ids.add(member_id)
        self._group.members.replace_member_id(member, member_id)

    def _session_expired(self, member: ClassicMember) -> None:
        is_member = self._group.members.get(member.member_id) is member
        if not is_member or (member.is_waiting and not member.is_new):
            return
        logger.info(
            "the session of the member %s of the group %s has expired; the member is removed",
            one_line(member.member_id),
            one_line(self._group.group_id),
        )
        self.remove_member(member)
        self.members_changed()

    def _pending_id_expired(self) -> None:
        if self._group.state is ClassicGroupState.PREPARING:
            self.members_changed()

    # -- the join phase ---------------------------------------------------------------------------------------------

    def prepare_rebalance(self) -> None:
        """Begins a rebalance: from now on members join the next generation."""
        group, members = self._group, self._group.members
        self._is_initial_rebalance, self._has_new_member = group.state is ClassicGroupState.EMPTY, False
        self._transition_to(ClassicGroupState.PREPARING)
        self._stop_phase_timeout()
        self._pending_sync_ids.clear()
        for member in members:
            if member.awaiting_sync is not None:
                member.answer_sync(SyncResponse(error=ErrorCode.rebalance_in_progress))
                self.sessions.restart(member)
        if self._is_initial_rebalance:
            delay_ms = self._context.settings.int("group.initial.rebalance.delay.ms")
            self._wait_for_more_members(delay_ms, max(0, members.rebalance_timeout_ms - delay_ms))
        elif members.have_all_joined:
            self._complete_join_phase()
        else:
            self._start_phase_timeout(members.rebalance_timeout_ms, self._complete_join_phase)

    def _wait_for_more_members(self, delay_ms: int, remaining_ms: int) -> None:
        self._has_new_member = False
        self._start_phase_timeout(delay_ms, lambda: self._initial_delay_over(delay_ms, remaining_ms))

    def _initial_delay_over(self, delay_ms: int, remaining_ms: int) -> None:
        if self._has_new_member and remaining_ms > 0:
            most_ms = self._context.settings.int("group.initial.rebalance.delay.ms")
            self._wait_for_more_members(min(most_ms, remaining_ms), max(0, remaining_ms - delay_ms))
        else:
            self._complete_join_phase()

    def _complete_join_phase(self) -> None:
        group, members = self._group, self._group.members
        for member in members:
            if member.awaiting_join is None and member.instance_id is None:
                self.remove_member(member)
        if len(members) and not members.elect_joined_leader():
            # All members are static, and none has joined. Wait until one joins or all sessions have ended.
            self._start_phase_timeout(members.rebalance_timeout_ms, self._complete_join_phase)
            return
        self._stop_phase_timeout()
        group.generation_id += 1
        if len(members):
            self._begin_generation()
        else:
            self._become_empty()

    def _become_empty(self) -> None:
        group = self._group
        group.protocol_name = None
        group.subscribed_topics = frozenset() if group.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        self._transition_to(ClassicGroupState.EMPTY)
        # An error is logged. A coordinator that loads the log then finds the last generation, and its sessions expire.
        with suppress(NotCoordinator):
            self.write_group({})

    def _begin_generation(self) -> None:
        group, members = self._group, self._group.members
        group.protocol_name = members.elected_protocol()
        group.read_subscriptions()
        self._transition_to(ClassicGroupState.COMPLETING)
        self._pending_sync_ids = {member.member_id for member in members}
        generation_id = group.generation_id
        self._start_phase_timeout(members.rebalance_timeout_ms, lambda: self._sync_phase_timed_out(generation_id))
        for member in members:
            member.is_new = False
            member.assignment = b""
            self.sessions.restart(member)
            member.answer_join(group.join_response(member))

    # -- the sync phase ---------------------------------------------------------------------------------------------

    def member_synced(self, member: ClassicMember) -> None:
        """Notes that a member has sent its SyncGroup in this generation."""
        self._pending_sync_ids.discard(member.member_id)
        if not self._pending_sync_ids:
            self._stop_phase_timeout()

    def _sync_phase_timed_out(self, generation_id: int) -> None:
        group = self._group
        if generation_id != group.generation_id or group.state not in (
            ClassicGroupState.COMPLETING,
            ClassicGroupState.STABLE,
        ):
            return
        for member_id in sorted(self._pending_sync_ids):
            member = group.members.get(member_id)
            if member is not None:
                logger.info(
                    "the member %s of the group %s sent no SyncGroup within the rebalance timeout; it is removed",
                    one_line(member_id),
                    one_line(group.group_id),
                )
                self.remove_member(member)
        self.prepare_rebalance()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Takes the leader's assignment: writes the group's record, then answers the members that wait."""
        group = self._group
        try:
            self.write_group(assignments)
        except NotCoordinator as error:
            for member in group.members:
                member.answer_sync(SyncResponse(error=error.code))
                self.sessions.restart(member)
            self.prepare_rebalance()
            return
        self._transition_to(ClassicGroupState.STABLE)
        for member in group.members:
            member.assignment = assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                self.sessions.restart(member)
                member.answer_sync(group.sync_response(member))
