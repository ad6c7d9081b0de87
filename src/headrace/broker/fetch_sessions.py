"""Fetch sessions (KIP-227): what a consumer fetches is remembered, so that its requests need only say what changed.

A client begins with a full request of epoch 0 and gets a session id. Its next requests carry that id and the epochs 1,
2, ...: they name only partitions that are new or have moved, and those to forget; the answers carry only partitions
that have something to say. Epoch -1 ends the session. A client that has lost count is told so (the two error codes
below) and begins anew.

Sessions cost memory, so there are at most ``max.incremental.fetch.session.cache.slots``. When none is free, the one
that was not used for longest goes, if that is longer ago than ``min.incremental.fetch.session.eviction.ms``; else the
smallest one that has lived that long and is smaller than the new one; else the new client does without a session.
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


class Wanted:
    """One partition that a client fetches, and what it was last told of it."""

    __slots__ = ("fetch_offset", "index", "last_fetched_epoch", "leader_epoch", "max_bytes", "told", "topic")

    def __init__(self, topic: str | UUID | None, asked: Any) -> None:
        self.topic = topic
        self.index: int = asked.partition
        #: High watermark and log start as last told; None before the first answer.
        self.told: tuple[int, int] | None = None
        self.ask(asked)

    def ask(self, asked: Any) -> None:
        self.fetch_offset: int = asked.fetch_offset
        self.max_bytes: int = asked.partition_max_bytes
        self.leader_epoch: int = getattr(asked, "current_leader_epoch", -1)
        self.last_fetched_epoch: int = getattr(asked, "last_fetched_epoch", -1)


class FetchSession:
    __slots__ = ("created_ms", "epoch", "partitions", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, partitions: dict[Key, Wanted], uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        #: Which epoch the next request must have.
        self.epoch = 1

    def next_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1


class Fetch:
    """What one request asks for, and the session that it belongs to."""

    __slots__ = ("is_incremental", "partitions", "session")

    def __init__(self, partitions: dict[Key, Wanted], session: FetchSession | None, is_incremental: bool) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id

    def must_tell(self, wanted: Wanted, high_watermark: int, log_start_offset: int, has_news: bool) -> bool:
        """Whether a partition belongs into the answer; remembers what is told."""
        if not self.is_incremental:
            if self.session is not None:
                wanted.told = (high_watermark, log_start_offset)
            return True
        if not has_news and wanted.told == (high_watermark, log_start_offset):
            return False
        wanted.told = (high_watermark, log_start_offset)
        return True

    def send_to_the_end(self, keys: list[Key]) -> None:
        """Partitions that were just served come last next time, so that a full answer does not starve the others."""
        if self.session is not None:
            for key in keys:
                self.partitions[key] = self.partitions.pop(key)


class FetchSessions:
    def __init__(self, clock: Clock, *, slots: Callable[[], int], eviction_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._slots = slots
        self._eviction_ms = eviction_ms
        #: By id, the one not used for longest first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(list(self._sessions.values()))

    def open(self, body: Any, *, by_topic_id: bool, named: dict[Key, Wanted] | None = None) -> Fetch:
        """
        :param named: the partitions that the body names, if the caller has read them already.
        :raises FetchSessionIdNotFound: or another code of this protocol, which answers the whole request.
        """
        session_id = getattr(body, "session_id", NO_SESSION)
        epoch = getattr(body, "session_epoch", _FINAL_EPOCH)
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            partitions = named
            if partitions is None:
                partitions = {key: Wanted(key[0], asked) for key, asked in asked_partitions(body, by_topic_id)}
            session = self._new_session(partitions, by_topic_id) if epoch == _INITIAL_EPOCH else None
            return Fetch(partitions, session, is_incremental=False)
        return self._continue(session_id, epoch, body, by_topic_id, named)

    def _continue(
        self, session_id: int, epoch: int, body: Any, by_topic_id: bool, named: dict[Key, Wanted] | None
    ) -> Fetch:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}")
        if by_topic_id is not session.uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} began with topic names or ids, and now changes")
        _update(session.partitions, body, by_topic_id, named)
        if not session.partitions:
            del self._sessions[session_id]
            return Fetch({}, None, is_incremental=False)
        session.next_epoch()
        session.used_ms = self._clock.monotonic_ms()
        self._sessions.move_to_end(session_id)
        return Fetch(session.partitions, session, is_incremental=True)

    def _new_session(self, partitions: dict[Key, Wanted], uses_topic_ids: bool) -> FetchSession | None:
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
            settled = [each for each in self._sessions.values() if now_ms - each.created_ms > eviction_ms]
            if not settled:
                return False
            victim = min(settled, key=lambda session: len(session.partitions))
            if len(victim.partitions) >= new_size:
                return False
        del self._sessions[victim.session_id]
        self.evicted += 1
        return True


def asked_partitions(body: Any, by_topic_id: bool) -> Iterator[tuple[Key, Any]]:
    for topic in body.topics:
        name = topic.topic_id if by_topic_id else topic.topic
        for asked in topic.partitions:
            yield (name, asked.partition), asked


def _update(partitions: dict[Key, Wanted], body: Any, by_topic_id: bool, named: dict[Key, Wanted] | None) -> None:
    if named is not None:
        partitions.update(named)
    else:
        for key, asked in asked_partitions(body, by_topic_id):
            wanted = partitions.get(key)
            if wanted is None:
                partitions[key] = Wanted(key[0], asked)
            else:
                wanted.ask(asked)
    for topic in body.forgotten_topics_data:
        name = topic.topic_id if by_topic_id else topic.topic
        for index in topic.partitions:
            partitions.pop((name, index), None)
