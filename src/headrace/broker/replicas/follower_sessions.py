"""The leader's side of followers' fetch sessions.

A follower asks for all partitions that it follows here, with a fetch session (KIP-227): a request names the partitions
whose fetch has changed, and counts as asking again for all others. The session of a consumer is scanned at every
request. A follower may have thousands of partitions, and few of them change, so the session of a follower is never
scanned. Instead each partition has a list of its readers (:class:`SessionPartition`), and calls them when records are
appended or its state changes. A reader adds itself to :attr:`FollowerSession.ready` and wakes the waiting request, if
there is one.

A request does nothing for partitions that it does not name. Their state is updated later, when it matters. A follower
that was at the log's end had all records at its session's last request: this is noted when the log grows
(:meth:`SessionPartition.grows`). A follower that is not in sync is checked with every request, so that it joins the ISR
as soon as possible.

An answer carries the high watermarks that have moved. A moved high watermark alone does not cause an answer, unless
``replica.selector.class`` is set: then consumers read from followers. This module serves Fetch v12 to v17.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.network.prompt_future import PromptFuture
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.broker.replicas.follower_answer import FollowerAnswerBuilder
from headrace.broker.replicas.followers import Followers
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
    from headrace.broker.network.connection import Connection
    from headrace.broker.replicas.replicas import ReplicaManager
    from headrace.broker.runtime import BrokerRuntime

NO_SESSION = 0
_FIRST_EPOCH, _LAST_EPOCH = 0, 2**31 - 1
_CLOSING_EPOCH = -1
_BY_TOPIC_ID = 13

_VERSIONS = range(12, 18)
#: The id of a topic that has none.
_NO_ID = UUID(int=0)

#: A topic by name, or by id from v13 on; and a partition.
Key = tuple[str | UUID, int]


class SessionPartition:
    """One partition of a session. It is a reader of the partition while this broker has the partition."""

    __slots__ = ("answered", "fetch", "key", "max_bytes", "partition", "session", "topic")

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self.session = session
        self.key = key
        #: The topic as it is encoded in answers.
        self.topic = topic_as_written(key[0])
        self.partition: ReplicatedPartition | None = None
        #: The high watermark and the log start of the last answer.
        self.answered = (UNKNOWN, UNKNOWN)

    def ask(self, asked: Any) -> None:
        """Notes what the follower asks for. The follower may have ignored the last answer, because it was just changing
        its role; so the next answer repeats the high watermark."""
        self.answered = (UNKNOWN, UNKNOWN)
        self.max_bytes: int = asked.partition_max_bytes
        self.fetch = FollowerFetch(
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )

    def read_from(self, partition: ReplicatedPartition | None) -> None:
        """Becomes a reader of the partition, and of no other one."""
        if partition is not self.partition:
            if self.partition is not None:
                self.partition.follower_readers.remove(self)
            if partition is not None:
                partition.follower_readers.append(self)
            self.partition = partition

    @property
    def has_news(self) -> bool:
        """Whether the high watermark or the log start differ from those of the last answer."""
        partition = self.partition
        if partition is None:
            return False
        return self.answered != (partition.log.high_watermark, partition.log.log_start_offset)

    # Calls of the partition

    def log_grew(self, end_offset: int) -> None:
        session = self.session
        if self.fetch.offset == end_offset:
            self.note_at_end(end_offset)
        session.ready[self] = None
        session.wake()

    def note_at_end(self, end_offset: int) -> None:
        """If the follower has all records up to the log's end, it had them when its session last asked. A fetch of an
        earlier epoch proves nothing: the follower may have been removed since then."""
        session, partition = self.session, self.partition
        if partition is None or partition.leader is None:
            return
        if self.fetch.leader_epoch in (UNKNOWN, partition.leader_epoch):
            remote = partition.leader.remote(session.replica_id)
            if remote is not None and remote.next_offset == end_offset:
                remote.fetched(end_offset, self.fetch.log_start_offset, end_offset, session.fetched_ms)

    def leadership_changed(self) -> None:
        self.session.ready[self] = None
        self.session.wake()

    def offsets_changed(self, *, at_once: bool) -> None:
        self.session.stale[self] = None
        if at_once:
            self.session.is_urgent = True
            self.session.wake()


class FollowerSession:
    """The fetch session of one fetcher of one follower. At most one of its requests waits at a time."""

    def __init__(self, replica_id: int, connection: Connection, sessions: FollowerSessions) -> None:
        self.session_id = NO_SESSION
        self.replica_id = replica_id
        self.connection = connection
        #: The epoch that the next request must have.
        self.epoch = 1
        self.partitions: dict[Key, SessionPartition] = {}
        #: The partitions that may have records to read, or an error; the one that has waited longest is first.
        self.ready: dict[SessionPartition, None] = {}
        #: The partitions whose high watermark or log start has moved.
        self.stale: dict[SessionPartition, None] = {}
        #: Whether the follower has to learn of it at once.
        self.is_urgent = False
        #: The partitions that are not in sync.
        self.outside: set[SessionPartition] = set()
        self.fetched_ms = 0
        self.waiter: PromptFuture[None] | None = None
        #: Whether the waiting request must be answered now.
        self.is_over = False
        self._sessions = sessions
        self._deadline_ms = 0
        #: One timer serves many requests: if it fires after its request was answered, it is set for the next request.
        self._timeout: TimerTask | None = None

    # The waiting request

    def begin_wait(self, wait_ms: int) -> None:
        self.is_over = wait_ms <= 0
        self._deadline_ms = deadline_ms = self.fetched_ms + wait_ms
        if self._timeout is not None and self._timeout.expiration_ms > deadline_ms:
            self._cancel_timeout()
        if self._timeout is None and not self.is_over:
            self._timeout = self._sessions.timer.schedule(wait_ms, self._time_passed)

    def wait(self) -> PromptFuture[None]:
        """A future that :meth:`wake` completes."""
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
        """The waiting request, if there is one, checks soon whether it can be answered."""
        if self.waiter is not None:
            self._sessions.wake(self)

    # Its partitions

    def update(self, body: Any, *, by_topic_id: bool) -> list[SessionPartition]:
        """Applies a request. Returns the partitions that it names."""
        named: list[SessionPartition] = []
        for topic in body.topics:
            name = (topic.topic_id or _NO_ID) if by_topic_id else topic.topic
            for asked in topic.partitions:
                key = name, asked.partition
                followed = self.partitions.get(key)
                if followed is None:
                    followed = self.partitions[key] = SessionPartition(self, key)
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


class FollowerSessions(Followers):
    """The sessions of all followers of this broker."""

    def __init__(self, runtime: BrokerRuntime, replicas: ReplicaManager, *, has_replica_selector: bool) -> None:
        self.loop = runtime.loop
        self.timer = runtime.timer
        self.clock = runtime.clock
        self.has_replica_selector = has_replica_selector
        self._replicas = replicas
        self._sessions: dict[int, FollowerSession] = {}
        self._woken: dict[FollowerSession, None] = {}

    def __iter__(self) -> Iterator[FollowerSession]:
        return iter(self._sessions.values())

    def includes(self, replica_id: int) -> bool:
        return replica_id >= 0

    def wake(self, session: FollowerSession) -> None:
        if not self._woken:
            self.loop.call_soon(self.serve_woken)
        self._woken[session] = None

    def serve_woken(self) -> None:
        """Normally the event loop calls this in its next turn. A Produce request that has appended everything, and is
        about to wait for the followers, calls it at once."""
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
        answer = FollowerAnswerBuilder(self._replicas, session, body)
        for followed in (*named, *session.outside.difference(named)):
            answer.note(followed)
        answer.read()
        connection = request.connection
        try:
            if not answer.is_enough:
                session.begin_wait(milliseconds(body.max_wait))
                # A follower that sends another request behind its fetch wants the fetch to end.
                connection.on_next_request_arrived = session.end_wait
            while not (answer.is_enough or session.is_over or session.is_urgent or connection.has_more):
                await session.wait()
                answer.read()
            return answer.reply(is_full=body.session_epoch in (_FIRST_EPOCH, _CLOSING_EPOCH), named=named)
        finally:
            connection.on_next_request_arrived = None
            session.waiter = None
            if session.session_id == NO_SESSION:
                session.close()

    def _open(self, body: Any, replica_id: int, connection: Connection) -> FollowerSession:
        """
        :raises KafkaError: whose code answers the whole request.
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
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id} of a follower")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def close_abandoned(self) -> None:
        """Closes the sessions whose connections are closed."""
        for session in list(self._sessions.values()):
            if session.connection.is_closed:
                self._close(session.session_id)

    def close(self) -> None:
        for session_id in list(self._sessions):
            self._close(session_id)
