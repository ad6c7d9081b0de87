"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

::

    UNJOINED ──prepare──▶ JOINING ──answer──▶ JOINED ──apply──▶ STABLE
        ▲                    │ (again after what may pass)          │
        └────────────────────┴──── the group rebalances, or has gone on without us ◀┘

``prepare`` and ``apply`` are the user's side and run within ``poll()``; the rest runs in the background, and goes on
between polls: the round trips of JOINING, and heartbeats in JOINED, STABLE and, until poll comes, UNJOINED.

Eager: everything is given up in ``prepare``, and what comes is taken in ``apply``. Cooperative (KIP-429), if all
assignors of ``partition.assignment.strategy`` are: everything is kept; ``apply`` gives up what others shall have, and
joins again so that they get it. A static member (``group.instance.id``, KIP-345) does not leave when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto
from logging import getLogger

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.committed_offsets import Identity
from headrace.client.errors import BrokerUnreachable, ErrorCode, HeadraceError, KafkaTimeout, error_for
from headrace.client.membership.heartbeat import Heartbeat
from headrace.client.membership.interfaces import GroupHost
from headrace.client.membership.join_round import Joined, JoinRound
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import TopicInfo, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.consumer_protocol import NO_GENERATION

logger = getLogger(__name__)

_LEAVE_TIMEOUT_MS = 5_000
_NAMING_TIMEOUT_S = 1.0


class State(Enum):
    UNJOINED = auto()
    JOINING = auto()
    JOINED = auto()
    STABLE = auto()


#: Codes after which a member tries again as a new one.
_FORGOTTEN = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})
_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_PASSING = _MOVED | {ErrorCode.coordinator_load_in_progress, ErrorCode.request_timed_out}


class ClassicMembership:
    def __init__(self, cluster: Cluster, config: ConsumerConfig, host: GroupHost) -> None:
        """
        :raises ValueError: if the config names assignors that there are not, or that do not go together.
        """
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._host = host
        self._join_round = JoinRound(cluster, config, host)
        self.is_cooperative = self._join_round.is_cooperative
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._heartbeat = Heartbeat(
            cluster.clock,
            interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
        )
        self.state = State.UNJOINED
        self._named = asyncio.Event()
        self.member_id = ""
        self.generation = NO_GENERATION
        #: What "sticky" tells the leader: an eager member owns nothing when it joins.
        self._remembered: tuple[frozenset[TopicPartition], int] = frozenset(), NO_GENERATION
        self._joined: Joined | None = None
        self._counts: Mapping[str, int] | None = None
        self._topics: frozenset[str] | None = None
        self._seen_topics: Mapping[str, TopicInfo] | None = None
        self._is_lost = False
        self._error: BaseException | None = None
        self._joining: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._reason = "the consumer is new"

    @property
    def member_id(self) -> str:
        return self._member_id

    @member_id.setter
    def member_id(self, member_id: str) -> None:
        self._member_id = member_id
        if member_id:
            self._named.set()
        else:
            self._named.clear()

    # -- for commits

    def identity(self) -> Identity:
        if self.generation == NO_GENERATION:
            return Identity()
        return Identity(self.member_id, self.generation, self._config.group_instance_id)

    def refused(self, code: ErrorCode) -> None:
        """A commit was refused because the group has gone on."""
        if self.generation != NO_GENERATION:
            self._gone(code)

    # -- the user's side

    def subscription_changed(self) -> None:
        self._host.notify()

    @property
    def is_due(self) -> bool:
        return self.state is not State.STABLE or self._is_lost or self._error is not None or self._must_rejoin()

    def polled(self) -> None:
        self._heartbeat.poll_ended()

    def poll_ended(self) -> None:
        self._heartbeat.poll_ended()

    async def poll(self, deadline: Deadline) -> None:
        self._heartbeat.poll_began()
        while True:
            self._raise_error()
            if self._is_lost:
                self._is_lost = False
                await self._host.lose(self._host.assignment())
            if self.state is State.STABLE:
                if not self._must_rejoin():
                    return
                self._unjoin()
            if self.state is State.UNJOINED:
                await self._prepare()
            if self.state is State.JOINING:
                assert self._joining is not None
                await asyncio.wait([self._joining], timeout=deadline.left_ms() / 1000)
                if not self._joining.done():
                    return
                if self.state is State.JOINING:  # it ended by a mistake of ours
                    self.state = State.UNJOINED
                    self._joining.result()
            if self.state is State.JOINED:
                await self._apply()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _must_rejoin(self) -> bool:
        if self._topics != self._host.topics():
            self._reason = "the subscription changed"
            return True
        found = self._cluster.metadata.topics
        if self._counts is not None and found is not self._seen_topics:
            self._seen_topics = found  # every answer makes a new one
            for topic, count in self._counts.items():
                info = found.get(topic)
                if info is not None and info.error is ErrorCode.none and len(info.partitions) != count:
                    self._reason = f"the topic {topic!r} has {len(info.partitions)} partitions now"
                    return True
        return False

    def _unjoin(self) -> None:
        self.state = State.UNJOINED
        self._host.notify()

    async def _prepare(self) -> None:
        """Gives up what must be given up, and joins."""
        await self._host.before_rebalance()
        if not self.is_cooperative:
            await self._host.revoke(self._host.assignment())
        else:
            gone = {one for one in self._host.assignment() if one.topic not in self._host.topics()}
            if gone:
                await self._host.revoke(gone)
        if self.state is not State.UNJOINED:
            return
        await self._stop_beating()
        self.state = State.JOINING
        self._topics = self._host.topics()
        self._joining = asyncio.create_task(self._join_until_done())

    async def _apply(self) -> None:
        """Takes what the group gave us."""
        joined = self._joined
        assert joined is not None
        revoked = self._host.assignment() - joined.partitions
        if revoked:
            await self._host.revoke(revoked)
        if self.state is not State.JOINED:
            return  # while the callback ran, the group has gone on without us
        self.state, self._joined = State.STABLE, None
        self._remembered = joined.partitions, joined.generation
        self._counts, self._seen_topics = joined.counts, None
        try:
            await self._host.assign(set(joined.partitions))
        finally:
            if revoked:
                self._reason = "it gave up partitions that others shall have"
                self._unjoin()

    async def leave(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            if not joining.done():
                # The group waits for whom it has just given an id. So it must be known, to be given back.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._named.wait(), _NAMING_TIMEOUT_S)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        await self._stop_beating()
        try:
            await self._host.revoke(self._host.assignment())
        finally:
            if self._config.group_instance_id is None:
                await self._send_leave("the consumer is being closed, or has unsubscribed")
        self._forget()
        self.state = State.UNJOINED
        self._topics = self._counts = None

    async def _send_leave(self, reason: str) -> None:
        if not self.member_id:
            return
        member = {"member_id": self.member_id, "group_instance_id": None, "reason": reason}
        try:
            connection = await self._cluster.coordinator("group", self._group_id, timeout_ms=_LEAVE_TIMEOUT_MS)
            await connection.ask(
                Api.LEAVE_GROUP,
                timeout_ms=_LEAVE_TIMEOUT_MS,
                group_id=self._group_id,
                member_id=self.member_id,
                members=[member],
            )
        except HeadraceError as error:
            logger.warning("leaving the group %r failed; it will notice by itself: %s", self._group_id, error)

    # -- joining

    async def _join_until_done(self) -> None:
        attempts = 0
        while True:
            try:
                code = await self._join_once()
            except (BrokerUnreachable, KafkaTimeout) as error:
                logger.info("joining the group %r: %s", self._group_id, error)
                self._cluster.forget_coordinator("group", self._group_id)
                code = ErrorCode.coordinator_not_available
            except HeadraceError as error:
                self._failed(error)
                return
            if code is ErrorCode.none:
                self.state = State.JOINED
                self._start_beating()
                self._host.notify()
                return
            attempts += 1
            if code in _MOVED:
                self._cluster.forget_coordinator("group", self._group_id)
            if code in _FORGOTTEN:
                self._forget(code)
            elif code not in _PASSING and code is not ErrorCode.rebalance_in_progress:
                self._failed(error_for(code, f"joining the group {self._group_id!r}{_HINTS.get(code, '')}"))
                return
            await asyncio.sleep(self._backoff.delay_ms(attempts) / 1000)

    async def _join_once(self) -> ErrorCode:
        topics = self._topics or frozenset()
        code, found = await self._join_round.join(self, topics, self._remembered, self._reason)
        if found is not None:
            self.generation, self._joined = found.generation, found
        return code

    def _failed(self, error: HeadraceError) -> None:
        self._error = error
        self.state = State.UNJOINED
        self._host.notify()

    # -- heartbeats

    def _start_beating(self) -> None:
        self._heartbeat.sent()
        assert self._beating is None
        self._beating = asyncio.create_task(self._beat())
        self._beating.add_done_callback(self._beating_ended)

    async def _stop_beating(self) -> None:
        beating, self._beating = self._beating, None
        if beating is not None:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    def _beating_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (mistake := task.exception()) is not None:
            self._error = mistake
            self._host.notify()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat.next_ms() / 1000)
            if self._heartbeat.is_away():
                await self._leave_for_being_away()
                return
            if self.generation == NO_GENERATION:
                return  # a commit was told first that we are out
            if not self._heartbeat.is_due():
                continue
            self._heartbeat.sent()
            try:
                connection = await self._cluster.coordinator("group", self._group_id)
                answer = await connection.ask(
                    Api.HEARTBEAT,
                    timeout_ms=self._config.session_timeout_ms,
                    group_id=self._group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    group_instance_id=self._config.group_instance_id,
                )
            except HeadraceError as error:
                logger.info("a heartbeat of the group %r failed: %s", self._group_id, error)
                self._cluster.forget_coordinator("group", self._group_id)
                continue
            if not self._heard(ErrorCode(answer.error_code)):
                return

    async def _leave_for_being_away(self) -> None:
        logger.warning(
            "poll() was not called for max.poll.interval.ms (%d): the consumer leaves the group %r. Poll more often, "
            "lower max.poll.records, or raise max.poll.interval.ms",
            self._config.max_poll_interval_ms,
            self._group_id,
        )
        if self._config.group_instance_id is None:
            await self._send_leave("poll() was not called for max.poll.interval.ms")
        self._beating = None
        self._gone(ErrorCode.unknown_member_id)

    def _heard(self, code: ErrorCode) -> bool:
        """Whether to go on with heartbeats."""
        if code is ErrorCode.none:
            return True
        if code is ErrorCode.rebalance_in_progress:
            if self.state is State.STABLE:
                self._reason = "the group is rebalancing"
                self._unjoin()
            return True
        if code in _PASSING:
            if code in _MOVED:
                self._cluster.forget_coordinator("group", self._group_id)
            return True
        self._beating = None
        if code in _FORGOTTEN:
            self._gone(code)
        else:
            self._is_lost = True
            self._forget()
            self._failed(error_for(code, f"the group {self._group_id!r}{_HINTS.get(code, '')}"))
        return False

    def _gone(self, code: ErrorCode) -> None:
        """The group has gone on without us: others may read what we still believe to own."""
        if self.state is State.JOINING:
            return
        logger.warning("the group %r has gone on without this consumer (%s); it joins again", self._group_id, code.name)
        self._is_lost = True
        self._reason = f"the group has gone on without it ({code.name})"
        self._forget(code)
        self._unjoin()

    def _forget(self, code: ErrorCode = ErrorCode.unknown_member_id) -> None:
        self.generation = NO_GENERATION
        # Of a generation that has passed the group still has the member: as a new one it would wait for itself.
        if code is not ErrorCode.illegal_generation:
            self.member_id = ""


_HINTS = {
    ErrorCode.fenced_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.inconsistent_group_protocol: "; its members share no partition.assignment.strategy with this consumer, "
    "or it is a group of another kind",
    ErrorCode.invalid_session_timeout: "; the broker does not allow such a session.timeout.ms",
    ErrorCode.group_max_size_reached: "; it has as many members as the broker allows",
}
