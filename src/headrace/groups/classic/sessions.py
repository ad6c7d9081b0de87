"""Runs the session timers of a classic group's members, and the timers of member ids that no client has used yet.

A member's session ends if the coordinator receives nothing from the member for its session timeout. A member that waits
for its first response has five minutes instead: it does not know its member id yet, so its client may have gone and
come back as another member.
"""

from collections.abc import Callable

from headrace.groups.classic.members import ClassicMember, ClassicMembers
from headrace.runtime.timer import Timer

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


class MemberSessions:
    """The timers of one group's members."""

    def __init__(
        self,
        timer: Timer,
        members: ClassicMembers,
        *,
        on_expired: Callable[[ClassicMember], None],
        on_pending_id_expired: Callable[[], None],
    ) -> None:
        """
        :param on_expired: called with a member whose session has ended.
        :param on_pending_id_expired: called after a pending member id was removed because no client joined with it.
        """
        self._timer = timer
        self._members = members
        self._on_expired = on_expired
        self._on_pending_id_expired = on_pending_id_expired

    def restart(self, member: ClassicMember) -> None:
        """Starts a full session for the member: the coordinator received a request from it, or sent it a response."""
        self.stop(member)
        timeout_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        member.session = self._timer.schedule(timeout_ms, lambda: self._expired(member))

    def _expired(self, member: ClassicMember) -> None:
        member.session = None
        self._on_expired(member)

    @staticmethod
    def stop(member: ClassicMember) -> None:
        if member.session is not None:
            member.session.cancel()
            member.session = None

    def add_pending_id(self, member_id: str, timeout_ms: int) -> None:
        """Remembers a member id that a client was given and has to join with (KIP-394)."""
        self._members.pending_ids[member_id] = self._timer.schedule(
            timeout_ms, lambda: self._pending_id_expired(member_id)
        )

    def remove_pending_id(self, member_id: str) -> bool:
        """Forgets a pending member id. Returns whether the id was pending."""
        timeout = self._members.pending_ids.pop(member_id, None)
        if timeout is not None:
            timeout.cancel()
        return timeout is not None

    def _pending_id_expired(self, member_id: str) -> None:
        if self.remove_pending_id(member_id):
            self._on_pending_id_expired()

    def stop_all(self) -> None:
        for member_id in list(self._members.pending_ids):
            self.remove_pending_id(member_id)
        for member in self._members:
            self.stop(member)
