"""Runs the timeouts of a consumer group's members. No timeout is recorded: after a load they start from the beginning.

=============  =====================================================================================================
sessions       the coordinator receives nothing from the member for the session timeout
revocations    the member does not give up partitions within its rebalance timeout, and other members wait for them
rejoins        a member of the classic protocol does not send its next JoinGroup or SyncGroup in the rebalance timeout
=============  =====================================================================================================
"""

from collections.abc import Callable

from headrace.runtime.timer import Timer, TimerTask


class Timeouts:
    """One timeout per member."""

    def __init__(self, timer: Timer, on_expired: Callable[[str], None]) -> None:
        """``on_expired`` is called with the id of a member whose timeout has passed."""
        self._timer = timer
        self._on_expired = on_expired
        self._tasks: dict[str, TimerTask] = {}

    def start(self, member_id: str, timeout_ms: int) -> None:
        """Starts the member's timeout, or starts it again from the beginning."""
        self.stop(member_id)
        self._tasks[member_id] = self._timer.schedule(timeout_ms, lambda: self._expired(member_id))

    def stop(self, member_id: str) -> None:
        task = self._tasks.pop(member_id, None)
        if task is not None:
            task.cancel()

    def stop_all(self) -> None:
        for member_id in list(self._tasks):
            self.stop(member_id)

    def is_running(self, member_id: str) -> bool:
        return member_id in self._tasks

    def _expired(self, member_id: str) -> None:
        del self._tasks[member_id]
        self._on_expired(member_id)


class MemberTimeouts:
    """All timeouts of one group's members. Whichever of them passes, the member is removed."""

    def __init__(self, timer: Timer, on_expired: Callable[[str], None]) -> None:
        self.sessions = Timeouts(timer, on_expired)
        self.revocations = Timeouts(timer, on_expired)
        self.rejoins = Timeouts(timer, on_expired)

    def stop(self, member_id: str) -> None:
        for timeouts in (self.sessions, self.revocations, self.rejoins):
            timeouts.stop(member_id)

    def stop_all(self) -> None:
        for timeouts in (self.sessions, self.revocations, self.rejoins):
            timeouts.stop_all()
