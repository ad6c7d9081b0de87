"""Fetch sessions (KIP-227): the broker remembers what a consumer fetches, so a request names only what has changed.

A client begins with a full request of epoch 0 and gets a session id. Its next requests carry this id and the epochs 1,
2, and so on. They name only partitions that are new or whose fetch has changed, and partitions to forget. The answers
carry only partitions with records, errors or changed offsets. Epoch -1 ends the session. A client with a wrong session
id or epoch gets one of two error codes (see :meth:`FetchSessions.open`) and begins a new session.

Sessions cost memory, so there are at most ``max.incremental.fetch.session.cache.slots``. When none is free, a new
session replaces the least recently used one, if that was not used for
``min.incremental.fetch.session.eviction.ms``. Otherwise it replaces the smallest session that is older than that and
smaller than the new one. If there is none, the client gets no session.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from headrace.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from headrace.runtime.clock import Clock

NO_SESSION = 0
_INITIAL_EPOCH, _FINAL_EPOCH = 0, -1
_LAST_EPOCH = 2**31 - 1

#: A topic by name, or by id from v13 on; and a partition.
Key = tuple[str | UUID | None, int]


class FetchPartition:
    """One partition that a client fetches, with the offsets of its last answer."""

    __slots__ = ("answered", "fetch_offset", "index", "last_fetched_epoch", "leader_epoch", "max_bytes", "topic")

    def __init__(self, topic: str | UUID | None, asked: Any) -> None:
        self.topic = topic
        self.index: int = asked.partition
        #: The high watermark and the log start of the last answer; None before the first answer.
        self.answered: tuple[int, int] | None = None
        self.update(asked)

    def update(self, asked: Any) -> None:
        self.fetch_offset: int = asked.fetch_offset
        self.max_bytes: int = asked.partition_max_bytes
        self.leader_epoch: int = getattr(asked, "current_leader_epoch", -1)
        self.last_fetched_epoch: int = getattr(asked, "last_fetched_epoch", -1)


class FetchSession:
    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(
        self, session_id: int, partitions: dict[Key, FetchPartition], uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        #: The epoch that the next request must have.
        self.epoch = 1

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1


class FetchContext:
    """The partitions that one request asks for, with its session."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(
        self, partitions: dict[Key, FetchPartition], session: FetchSession | None, is_incremental: bool
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id

    def must_include(
        self, partition: FetchPartition, high_watermark: int, log_start_offset: int, has_news: bool
    ) -> bool:
        """Whether the answer must include a partition. If so, remembers its offsets.

        :param has_news: whether there are records, an error or anything else beside the offsets.
        """
        if not self.is_incremental:
            if self.session is not None:
                partition.answered = (high_watermark, log_start_offset)
            return True
        if not has_news and partition.answered == (high_watermark, log_start_offset):
            return False
        partition.answered = (high_watermark, log_start_offset)
        return True

    def move_to_end(self, keys: list[Key]) -> None:
        """The next request serves these partitions last, so that partitions with many records do not starve others."""
        if self.session is not None:
            for key in keys:
                self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    def __init__(self, clock: Clock, *, slots: Callable[[], int], eviction_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._slots = slots
        self._eviction_ms = eviction_ms
        #: The sessions by id. The least recently used one is first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(list(self._sessions.values()))

    def open(self, body: Any, *, by_topic_id: bool, named: dict[Key, FetchPartition] | None = None) -> FetchContext:
        """
        :param named: the partitions that the body names, if the caller has read them already.
        :raises FetchSessionIdNotFound: if there is no such session. The code answers the whole request.
        :raises InvalidFetchSessionEpoch: if the session expects another epoch. The code answers the whole request.
        :raises FetchSessionTopicIdError: if the session began with topic names and goes on with ids, or vice versa.
        """
        session_id = getattr(body, "session_id", NO_SESSION)
        epoch = getattr(body, "session_epoch", _FINAL_EPOCH)
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            partitions = named
            if partitions is None:
                partitions = {key: FetchPartition(key[0], asked) for key, asked in asked_partitions(body, by_topic_id)}
            session = self._new_session(partitions, by_topic_id) if epoch == _INITIAL_EPOCH else None
            return FetchContext(partitions, session, is_incremental=False)
        return self._continue(session_id, epoch, body, by_topic_id, named)

    def discard_new(self, fetch: FetchContext) -> None:
        """Forgets the session that a full request has begun. The request is throttled and has an empty answer, so the
        client will send it again (KIP-219). An earlier session stays as it is."""
        if fetch.session is not None and not fetch.is_incremental:
            self._sessions.pop(fetch.session_id, None)
            fetch.session = None

    def _continue(
        self, session_id: int, epoch: int, body: Any, by_topic_id: bool, named: dict[Key, FetchPartition] | None
    ) -> FetchContext:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}")
        if by_topic_id is not session.uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} mixes requests with topic names and topic ids")
        _update(session.partitions, body, by_topic_id, named)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext({}, None, is_incremental=False)
        session.next_epoch()
        session.used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session_id)
        return FetchContext(session.partitions, session, is_incremental=True)

    def _new_session(self, partitions: dict[Key, FetchPartition], uses_topic_ids: bool) -> FetchSession | None:
        now_ms = self._clock.monotonic_ms()
        if len(self._sessions) >= self._slots() and not self._evict_one(len(partitions), now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = int.from_bytes(os.urandom(4)) & _LAST_EPOCH
        session = self._sessions[session_id] = FetchSession(session_id, partitions, uses_topic_ids, now_ms)
        return session

    def _evict_one(self, new_size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        eviction_ms = self._eviction_ms()
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.used_ms <= eviction_ms:
            old_enough = [each for each in self._sessions.values() if now_ms - each.created_ms > eviction_ms]
            if not old_enough:
                return False
            victim = min(old_enough, key=lambda session: len(session.partitions))
            if len(victim.partitions) >= new_size:
                return False
        del self._sessions[victim.session_id]
        self.evicted += 1
        return True


def asked_partitions(body: Any, by_topic_id: bool) -> Iterator[tuple[Key, Any]]:
    """The partitions that a request names, as kio reads them."""
    for topic in body.topics:
        name = topic.topic_id if by_topic_id else topic.topic
        for asked in topic.partitions:
            yield (name, asked.partition), asked


def _update(
    partitions: dict[Key, FetchPartition], body: Any, by_topic_id: bool, named: dict[Key, FetchPartition] | None
) -> None:
    if named is not None:
        partitions.update(named)
    else:
        for key, asked in asked_partitions(body, by_topic_id):
            partition = partitions.get(key)
            if partition is None:
                partitions[key] = FetchPartition(key[0], asked)
            else:
                partition.update(asked)
    for topic in body.forgotten_topics_data:
        name = topic.topic_id if by_topic_id else topic.topic
        for index in topic.partitions:
            partitions.pop((name, index), None)
