"""Holds the leader's knowledge of one follower: its log end, and when it was last caught up. No I/O, no clock.

A follower is caught up at a moment if it had all records that the leader had at this moment. The leader knows this in
two ways. A fetch at the leader's log end shows that the follower is caught up now. A fetch at the offset where the
leader's log ended at the time of the previous fetch shows that the follower was caught up at that time: it has fetched
all records of then, and only misses newer ones. So a follower that is always a little behind a busy leader still counts
as caught up.
"""

from headrace.replication.epoch_ends import UNKNOWN

#: A time so long ago that a follower which was last caught up then is not in sync.
NEVER_MS = -(2**62)


class RemoteReplica:
    """One follower of a partition, as its leader knows it."""

    __slots__ = ("_fetched_ms", "_leader_end_at_fetch", "caught_up_ms", "log_start_offset", "next_offset", "replica_id")

    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        #: The end of its log at its last fetch; -1 until it has fetched from this leader.
        self.next_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.caught_up_ms = NEVER_MS
        self._fetched_ms = NEVER_MS
        self._leader_end_at_fetch = UNKNOWN

    def begin_epoch(self, leader_next_offset: int, now_ms: int, *, is_in_sync: bool) -> None:
        """Begins a leader epoch. A follower in the ISR has the whole lag time for its first fetch."""
        self.caught_up_ms = self._fetched_ms = now_ms if is_in_sync else NEVER_MS
        self._leader_end_at_fetch = leader_next_offset

    def fetched(self, offset: int, log_start_offset: int, leader_next_offset: int, now_ms: int) -> None:
        """Notes a fetch of the follower."""
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
