"""Serving followers: their fetch sessions, as a leader keeps them.

A follower asks for all partitions that it follows here, in one request after the other, with a fetch session (KIP-227):
a request names what has changed, and all the rest counts as asked for again. A consumer's session is looked through at
every request; a follower may have thousands of partitions of which few move, so here nothing is looked through. Each
partition that a session has knows its readers (:class:`Followed`), and tells them when it has grown or changed; what
there is to say waits in :attr:`FollowerSession.ready`, and wakes the request that waits, if one does.

What the other requests do for a partition that did not change is made up for when it matters. A follower that was at
the log's end was so at its session's last request: it is noted when the log grows (:meth:`Followed.grows`). One that is
not in sync yet is looked at with every request, so that it is let in as soon as it may be.

The high watermark is told with the next answer, whatever causes that; with ``replica.selector.class`` set, at once,
since consumers read from followers then. Fetch is spoken in v12 to v17 here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.network.prompt_future import PromptFuture
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.broker.replicas.follower_serving import Serving
from headrace.protocol.errors import (
    ErrorCode,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    KafkaError,
)
from headrace.protocol.wire.follower_fetch import refusal, topic_as_written
from headrace.replication.epoch_ends import UNKNOWN
from headrace.replication.leader import FollowerFetch
from headrace.replication.replicated_partition import ReplicatedPartition
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.network.connection import Connection
    from headrace.broker.replicas.replicas import ReplicaManager

NO_SESSION = 0
_FIRST_EPOCH, _LAST_EPOCH = 0, 2**31 - 1
_CLOSING_EPOCH = -1
_BY_TOPIC_ID = 13

_VERSIONS = range(12, 18)
#: As a topic's id: none.
_NO_ID = UUID(int=0)

#: A topic by name, or by id from v13 on; and a partition.
Key = tuple[str | UUID, int]


class Followed:
    """One partition of a session. It is one of the partition's readers while there is one."""

    __slots__ = ("fetch", "key", "max_bytes", "partition", "session", "told", "topic")

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self.session = session
        self.key = key
        #: As answers have it.
        self.topic = topic_as_written(key[0])
        self.partition: ReplicatedPartition | None = None
        #: High watermark and log start as last told.
        self.told = (UNKNOWN, UNKNOWN)

    def ask(self, asked: Any) -> None:
        """What it was told last may have met a follower that was just changing its role, and did not listen."""
        self.told = (UNKNOWN, UNKNOWN)
        self.max_bytes: int = asked.partition_max_bytes
        self.fetch = FollowerFetch(
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )

    def read_from(self, partition: ReplicatedPartition | None) -> None:
        if partition is not self.partition:
            if self.partition is not None:
                self.partition.readers.remove(self)
            if partition is not None:
                partition.readers.append(self)
            self.partition = partition

    @property
    def has_news(self) -> bool:
        """Whether its high watermark or log start are not what it was told."""
        partition = self.partition
        if partition is None:
            return False
        return self.told != (partition.log.high_watermark, partition.log.log_start_offset)

    # The partition's words

    def grows(self, end_offset: int) -> None:
        session = self.session
        if self.fetch.offset == end_offset:
            self.note_at_end(end_offset)
        session.ready[self] = None
        session.wake()

    def note_at_end(self, end_offset: int) -> None:
        """If it had all up to there, which is the log's end, it had so when its session last asked. In an epoch that is
        over that says nothing: the follower may have been taken out, and not come back."""
        session, partition = self.session, self.partition
        if partition is None or partition.leader is None:
            return
        if self.fetch.leader_epoch in (UNKNOWN, partition.leader_epoch):
            remote = partition.leader.remote(session.replica_id)
            if remote is not None and remote.next_offset == end_offset:
                remote.fetched(end_offset, self.fetch.log_start_offset, end_offset, session.fetched_ms)

    def changes(self) -> None:
        self.session.ready[self] = None
        self.session.wake()

    def news(self, *, at_once: bool) -> None:
        self.session.stale[self] = None
        if at_once:
            self.session.is_urgent = True
            self.session.wake()


class FollowerSession:
    def __init__(self, replica_id: int, connection: Connection, sessions: FollowerSessions) -> None:
        self.session_id = NO_SESSION
        self.replica_id = replica_id
        self.connection = connection
        #: Which epoch the next request must have.
        self.epoch = 1
        self.partitions: dict[Key, Followed] = {}
        #: Those that may have something to read, or an error, the longest waiting first.
        self.ready: dict[Followed, None] = {}
        #: Those whose high watermark or log start has moved.
        self.stale: dict[Followed, None] = {}
        #: Whether that is to be told at once.
        self.is_urgent = False
        #: Those that are not in sync.
        self.outside: set[Followed] = set()
        self.fetched_ms = 0
        self.waiter: PromptFuture[None] | None = None
        #: Whether the request that waits is to be answered, whatever there is.
        self.is_over = False
        self._sessions = sessions
        self._deadline_ms = 0
        #: One for many requests: when it fires, and the request of that time is answered, it is set for the next one.
        self._timeout: TimerTask | None = None

    # The request that waits

    def begin_wait(self, wait_ms: int) -> None:
        self.is_over = wait_ms <= 0
        self._deadline_ms = deadline_ms = self.fetched_ms + wait_ms
        if self._timeout is not None and self._timeout.expiration_ms > deadline_ms:
            self._cancel_timeout()
        if self._timeout is None and not self.is_over:
            self._timeout = self._sessions.timer.schedule(wait_ms, self._time_passed)

    def wait(self) -> PromptFuture[None]:
        """Until somebody wakes it."""
        self.waiter = waiter = PromptFuture[None](loop=self._sessions.loop)
        return waiter

    def end_wait(self) -> None:
        self.is_over = True
        self.wake()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _time_passed(self) -> None:
        self._timeout = None
        if self.waiter is None:
            return
        left_ms = self._deadline_ms - self._sessions.clock.monotonic_ms()
        if left_ms > 0:
            self._timeout = self._sessions.timer.schedule(left_ms, self._time_passed)
        else:
            self.end_wait()

    def wake(self) -> None:
        """The request that waits, if one does, looks again soon."""
        if self.waiter is not None:
            self._sessions.wake(self)

    # Its partitions

    def update(self, body: Any, *, by_topic_id: bool) -> list[Followed]:
        """Those that a request names."""
        named: list[Followed] = []
        for topic in body.topics:
            name = (topic.topic_id or _NO_ID) if by_topic_id else topic.topic
            for asked in topic.partitions:
                key = name, asked.partition
                followed = self.partitions.get(key)
                if followed is None:
                    followed = self.partitions[key] = Followed(self, key)
                followed.ask(asked)
                named.append(followed)
        for topic in body.forgotten_topics_data:
            name = (topic.topic_id or _NO_ID) if by_topic_id else topic.topic
            for index in topic.partitions:
                self._forget((name, index))
        return named

    def _forget(self, key: Key) -> None:
        followed = self.partitions.pop(key, None)
        if followed is not None:
            if followed.partition is not None:
                followed.note_at_end(followed.partition.log.next_offset)
            followed.read_from(None)
            self.ready.pop(followed, None)
            self.stale.pop(followed, None)
            self.outside.discard(followed)

    def close(self) -> None:
        for key in list(self.partitions):
            self._forget(key)
        self._cancel_timeout()
        self.end_wait()


class FollowerSessions:
    def __init__(self, broker: Broker, replicas: ReplicaManager) -> None:
        self.loop = broker.loop
        self.timer = broker.timer
        self.clock = broker.clock
        self._replicas = replicas
        self._sessions: dict[int, FollowerSession] = {}
        self._woken: dict[FollowerSession, None] = {}

    def __iter__(self) -> Iterator[FollowerSession]:
        return iter(self._sessions.values())

    def wake(self, session: FollowerSession) -> None:
        if not self._woken:
            self.loop.call_soon(self.serve_woken)
        self._woken[session] = None

    def serve_woken(self) -> None:
        """Answers what waits for what was appended. A loop's next turn does it; who has appended all that he has, and
        is about to wait for followers himself, does it now."""
        woken, self._woken = self._woken, {}
        for session in woken:
            waiter = session.waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def fetch(self, request: Request, replica_id: int) -> Reply:
        body = request.body
        if request.version not in _VERSIONS:
            return {"error_code": ErrorCode.unsupported_version, "session_id": NO_SESSION, "responses": ()}
        try:
            session = self._open(body, replica_id, request.connection)
        except KafkaError as error:
            return refusal(error.code)
        session.fetched_ms = self.clock.monotonic_ms()
        named = session.update(body, by_topic_id=request.version >= _BY_TOPIC_ID)
        serving = Serving(self._replicas, session, body)
        for followed in (*named, *session.outside.difference(named)):
            serving.note(followed)
        serving.read()
        connection = request.connection
        try:
            if not serving.is_enough:
                session.begin_wait(milliseconds(body.max_wait))
                # A follower that sends something behind its fetch has news of its own, and wants the fetch ended.
                connection.on_impatience = session.end_wait
            while not (serving.is_enough or session.is_over or session.is_urgent or connection.has_more):
                await session.wait()
                serving.read()
            return serving.reply(is_full=body.session_epoch in (_FIRST_EPOCH, _CLOSING_EPOCH), named=named)
        finally:
            connection.on_impatience = None
            session.waiter = None
            if session.session_id == NO_SESSION:
                session.close()

    def _open(self, body: Any, replica_id: int, connection: Connection) -> FollowerSession:
        """
        :raises KafkaError: that answers the whole request.
        """
        session_id, epoch = body.session_id, body.session_epoch
        if epoch not in (_FIRST_EPOCH, _CLOSING_EPOCH):
            return self._continue(session_id, epoch)
        self._close(session_id)
        self.close_abandoned()
        session = FollowerSession(replica_id, connection, self)
        if epoch == _FIRST_EPOCH:
            while session.session_id == NO_SESSION or session.session_id in self._sessions:
                session.session_id = int.from_bytes(os.urandom(4)) & _LAST_EPOCH
            self._sessions[session.session_id] = session
        return session

    def _continue(self, session_id: int, epoch: int) -> FollowerSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no follower's fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"the session's epoch is {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def close_abandoned(self) -> None:
        for session in list(self._sessions.values()):
            if session.connection.is_closed:
                self._close(session.session_id)

    def close(self) -> None:
        for session_id in list(self._sessions):
            self._close(session_id)
