"""A follower's side of a fetch session (KIP-227): what its leader remembers of its partitions, and what to tell it.

A request names the partitions whose fetch has changed since the leader was last told, and those to forget; so what is
kept here is those two, and not a copy of all. After a lost answer nobody knows what the leader remembers, and the next
request names all.
"""

from __future__ import annotations

from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.follower_fetch import FetchLimits, FollowerAnswer, topic_as_written, write_request
from headrace.replication.follower import PartitionFollower
from headrace.replication.leader import FollowerFetch
from headrace.replication.replicated_partition import ReplicatedPartition

_LAST_EPOCH = 2**31 - 1


class Follow:
    """A partition that a fetcher has."""

    __slots__ = ("asked", "follower", "has_failed", "lag", "partition", "refusals", "topic")

    def __init__(self, partition: ReplicatedPartition, follower: PartitionFollower) -> None:
        self.partition = partition
        self.follower = follower
        #: As requests have it, and answers.
        self.topic = topic_as_written(partition.topic_id or partition.log.topic)
        #: What the leader remembers that we asked; None if it does not have it in the session.
        self.asked: FollowerFetch | None = None
        self.refusals = 0
        #: Its log would not do what it was to do, and it is not tried again.
        self.has_failed = False
        #: Records behind the leader's high watermark.
        self.lag = 0

    def next_ask(self) -> FollowerFetch:
        """Of one that fetches."""
        ask = self.follower.next_ask()
        assert isinstance(ask, FollowerFetch), f"{self.partition} asks {ask}"
        return ask

    @property
    def answer_key(self) -> tuple[bytes, int]:
        return self.topic, self.partition.log.partition


class FetchSession:
    def __init__(self) -> None:
        #: Those whose fetch is not what the leader remembers, and what it is now.
        self.changed: dict[Follow, FollowerFetch] = {}
        #: Those that the leader has.
        self.remembered: dict[tuple[bytes, int], Follow] = {}
        self._forgotten: list[Follow] = []
        self._session_id = self._epoch = 0

    def __bool__(self) -> bool:
        """Whether there is something to fetch."""
        return bool(self.changed or self.remembered)

    def put(self, follow: Follow) -> None:
        """It fetches, and its fetch may have changed."""
        ask = follow.next_ask()
        if ask != follow.asked:
            self.changed[follow] = ask

    def take_out(self, follow: Follow) -> None:
        """It does not fetch."""
        self.changed.pop(follow, None)
        if follow.asked is not None:
            follow.asked = None
            self.remembered.pop(follow.answer_key, None)
            self._forgotten.append(follow)

    def answered(self, answer: FollowerAnswer) -> bool:
        """Whether the answer counts."""
        if answer.error is not ErrorCode.none:
            self.lost()
            return False
        if answer.session_id == 0:
            self._epoch = 0  # none was to be had: every request is full
        else:
            self._session_id = answer.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Nobody knows what the leader remembers: the next request is full."""
        self._epoch = 0
        for follow in self.remembered.values():
            follow.asked = None
            self.changed[follow] = follow.next_ask()
        self.remembered.clear()
        self._forgotten.clear()

    def next_request(self, limits: FetchLimits) -> bytearray:
        """What changed counts as told from now on."""
        if self._epoch == 0:
            self._forgotten.clear()
            self.changed.update((follow, follow.next_ask()) for follow in self.remembered.values())
        asked: list[tuple[bytes, int, FollowerFetch]] = []
        for follow, ask in self.changed.items():
            follow.asked = ask
            topic, index = key = follow.answer_key
            self.remembered[key] = follow
            asked.append((topic, index, ask))
        self.changed.clear()
        # One that is asked for again in this very request is not to be forgotten.
        forgotten = [key for follow in self._forgotten if (key := follow.answer_key) not in self.remembered]
        self._forgotten.clear()
        return write_request(limits, self._session_id, self._epoch, asked, forgotten)
