"""A follower as its leader knows it: how far it has come, and when it was last caught up. No I/O, no clock.

A follower is caught up at a moment if it had all that the leader had then. That is known in two ways. A fetch at the
leader's end says so for now. A fetch at where the leader's end was at the fetch before says so for then: the follower
has taken all that there was, and only what came meanwhile is missing. So that a follower which is always a little
behind a busy leader still counts.
"""

from headrace.replication.epoch_ends import UNKNOWN

#: So long ago that nobody who was caught up then is.
NEVER_MS = -(2**62)


class RemoteReplica:
    __slots__ = ("_fetched_ms", "_leader_end_at_fetch", "caught_up_ms", "log_start_offset", "next_offset", "replica_id")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        #: Its log's end as of its last fetch; -1 until it has fetched from this leader.
        self.next_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = NEVER_MS
        self._fetched_ms = NEVER_MS
        self._leader_end_at_fetch = UNKNOWN

    def begin_epoch(self, leader_next_offset: int, now_ms: int, *, is_in_sync: bool) -> None:
        """Whoever is in the ISR has the whole lag time to be heard of."""
        self.caught_up_ms = self._fetched_ms = now_ms if is_in_sync else NEVER_MS
        self._leader_end_at_fetch = leader_next_offset

    def fetched(self, offset: int, log_start_offset: int, leader_next_offset: int, now_ms: int) -> None:
        if offset >= leader_next_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_ms)
        self.next_offset = offset
        self.log_start_offset = log_start_offset
        self._fetched_ms = now_ms
        self._leader_end_at_fetch = leader_next_offset

    def is_caught_up(self, leader_next_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.next_offset == leader_next_offset or now_ms - self.caught_up_ms <= lag_time_max_ms
