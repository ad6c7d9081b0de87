"""The follower's side of a fetch session (KIP-227): what the leader remembers, and what the next request must name.

A request names the partitions whose fetch has changed since the last request, and those to forget. So a session keeps
those two lists, and no copy of all partitions. After a lost answer the follower does not know what the leader
remembers, and the next request names all partitions.
"""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.follower_fetch import FetchLimits, FollowerAnswer, topic_as_written, write_request
from headrace.replication.follower import PartitionFollower
from headrace.replication.leader import FollowerFetch
from headrace.replication.replicated_partition import ReplicatedPartition

_LAST_EPOCH = 2**31 - 1


class FetchedPartition:
    """A partition that a fetcher fetches."""

    __slots__ = ("asked", "follower", "has_failed", "lag", "partition", "rejections", "topic")

    def __init__(self, partition: ReplicatedPartition, follower: PartitionFollower) -> None:
        self.partition = partition
        self.follower = follower
        #: The topic as it is encoded in requests and answers.
        self.topic = topic_as_written(partition.topic_id or partition.log.topic)
        #: The fetch that the leader remembers; None if the partition is not in the leader's session.
        self.asked: FollowerFetch | None = None
        #: How often the leader has rejected it, one after the other.
        self.rejections = 0
        #: The log has failed, and the partition is not fetched again.
        self.has_failed = False
        #: How many records the log is behind the leader's high watermark.
        self.lag = 0

    def next_request(self) -> FollowerFetch:
        """The next fetch. The partition must be in the state FETCHING."""
        ask = self.follower.next_request()
        assert isinstance(ask, FollowerFetch), f"{self.partition} asks {ask}"
        return ask

    @property
    def answer_key(self) -> tuple[bytes, int]:
        return self.topic, self.partition.log.partition


class FetchSession:
    """The session of one fetcher with its leader."""

    def __init__(self) -> None:
        #: The partitions whose fetch differs from what the leader remembers, with the new fetch.
        self.changed: dict[FetchedPartition, FollowerFetch] = {}
        #: The partitions that the leader remembers.
        self.remembered: dict[tuple[bytes, int], FetchedPartition] = {}
        self._forgotten: list[FetchedPartition] = []
        self._session_id = self._epoch = 0

    def __bool__(self) -> bool:
        """Whether there is something to fetch."""
        return bool(self.changed or self.remembered)

    def put(self, fetched: FetchedPartition) -> None:
        """Adds a partition, or notes that its fetch may have changed."""
        ask = fetched.next_request()
        if ask != fetched.asked:
            self.changed[fetched] = ask

    def take_out(self, fetched: FetchedPartition) -> None:
        """Removes a partition from the session."""
        self.changed.pop(fetched, None)
        if fetched.asked is not None:
            fetched.asked = None
            self.remembered.pop(fetched.answer_key, None)
            self._forgotten.append(fetched)

    def answered(self, answer: FollowerAnswer) -> bool:
        """Notes an answer. Returns whether the answer is valid."""
        if answer.error is not ErrorCode.none:
            self.lost()
            return False
        if answer.session_id == 0:
            self._epoch = 0  # the leader has no session for us: every request is a full one
        else:
            self._session_id = answer.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """It is not known what the leader remembers: the next request names all partitions."""
        self._epoch = 0
        for fetched in self.remembered.values():
            fetched.asked = None
            self.changed[fetched] = fetched.next_request()
        self.remembered.clear()
        self._forgotten.clear()

    def next_request(self, limits: FetchLimits) -> bytearray:
        """Writes the next request. The session assumes that the leader receives it."""
        if self._epoch == 0:
            self._forgotten.clear()
            self.changed.update((fetched, fetched.next_request()) for fetched in self.remembered.values())
        asked: list[tuple[bytes, int, FollowerFetch]] = []
        for fetched, ask in self.changed.items():
            fetched.asked = ask
            topic, index = key = fetched.answer_key
            self.remembered[key] = fetched
            asked.append((topic, index, ask))
        self.changed.clear()
        # A partition that this request asks for again must not be forgotten.
        forgotten = [key for fetched in self._forgotten if (key := fetched.answer_key) not in self.remembered]
        self._forgotten.clear()
        return write_request(limits, self._session_id, self._epoch, asked, forgotten)
