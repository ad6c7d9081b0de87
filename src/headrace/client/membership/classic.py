"""Runs the membership of a consumer in a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

::

    UNJOINED ──prepare──▶ JOINING ──answer──▶ JOINED ──apply──▶ STABLE
        ▲                    │ (again, after an error that may pass) │
        └────────────────────┴──── the group rebalances, or has removed the member ◀┘

``prepare`` and ``apply`` run within the user's ``poll()``. The rest runs in the background, also between polls: the
requests of JOINING, and the heartbeats in JOINED, STABLE and, until the next poll, UNJOINED.

An eager member revokes all partitions in ``prepare``, and gets its new partitions in ``apply``. A cooperative member
(KIP-429) keeps its partitions in ``prepare``. In ``apply`` it revokes the partitions that other members will get, and
joins again so that they get them. A member is cooperative if all assignors of ``partition.assignment.strategy`` are. A
static member (``group.instance.id``, KIP-345) does not leave the group when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto
from logging import getLogger

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.errors import BrokerUnreachable, ErrorCode, HeadraceError, KafkaTimeout, error_for
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.membership.heartbeat import HeartbeatSchedule
from headrace.client.membership.interfaces import GroupSubscription, MemberIdentity
from headrace.client.membership.join_round import Joined, JoinRound
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import TopicInfo, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.consumer_protocol import NO_GENERATION

logger = getLogger(__name__)

_LEAVE_TIMEOUT_MS = 5_000
_MEMBER_ID_TIMEOUT_S = 1.0


class MembershipState(Enum):
    UNJOINED = auto()
    JOINING = auto()
    JOINED = auto()
    STABLE = auto()


#: Errors after which the member joins again as a new member.
_UNKNOWN_TO_GROUP = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation})
_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_PASSING = _MOVED | {ErrorCode.coordinator_load_in_progress, ErrorCode.request_timed_out}


class ClassicMembership:
    """The membership of one consumer in a classic group."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: GroupSubscription, metrics: GroupMetrics
    ) -> None:
        """
        :raises ValueError: if ``partition.assignment.strategy`` has an unknown assignor.
        """
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._subscription = subscription
        self._metrics = metrics
        self._join_round = JoinRound(cluster, config, subscription, metrics)
        self.is_cooperative = self._join_round.is_cooperative
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._schedule = HeartbeatSchedule.of(cluster.clock, config)
        self.state = MembershipState.UNJOINED
        self._has_member_id = asyncio.Event()
        self.member_id = ""
        self.generation = NO_GENERATION
        #: The last assignment and its generation. The assignor "sticky" sends them to the leader, because an eager
        #: member owns nothing when it joins.
        self._last_assignment: tuple[frozenset[TopicPartition], int] = frozenset(), NO_GENERATION
        self._joined: Joined | None = None
        self._counts: Mapping[str, int] | None = None
        self._topics: frozenset[str] | None = None
        self._seen_topics: Mapping[str, TopicInfo] | None = None
        self._is_lost = False
        self._error: BaseException | None = None
        self._joining: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._reason = "the consumer is new"

    @property
    def member_id(self) -> str:
        return self._member_id

    @member_id.setter
    def member_id(self, member_id: str) -> None:
        self._member_id = member_id
        if member_id:
            self._has_member_id.set()
        else:
            self._has_member_id.clear()

    # -- for commits

    def identity(self) -> MemberIdentity:
        if self.generation == NO_GENERATION:
            return MemberIdentity()
        return MemberIdentity(self.member_id, self.generation, self._config.group_instance_id)

    def commit_refused(self, code: ErrorCode) -> None:
        """See :class:`Membership`."""
        if self.generation != NO_GENERATION:
            self._rejoin(code)

    # -- for the consumer

    def subscription_changed(self) -> None:
        self._subscription.notify()

    @property
    def is_due(self) -> bool:
        return (
            self.state is not MembershipState.STABLE or self._is_lost or self._error is not None or self._must_rejoin()
        )

    def poll_ended(self) -> None:
        self._schedule.poll_ended()

    async def poll(self, deadline: Deadline) -> None:
        self._schedule.poll_began()
        while True:
            self._raise_error()
            if self._is_lost:
                self._is_lost = False
                await self._subscription.lose(self._subscription.assignment())
            if self.state is MembershipState.STABLE:
                if not self._must_rejoin():
                    return
                self._set_unjoined()
            if self.state is MembershipState.UNJOINED:
                await self._prepare()
            if self.state is MembershipState.JOINING:
                assert self._joining is not None
                await asyncio.wait([self._joining], timeout=deadline.left_ms() / 1000)
                if not self._joining.done():
                    return
                if self.state is MembershipState.JOINING:  # A bug in this client ended the task.
                    self.state = MembershipState.UNJOINED
                    self._joining.result()
            if self.state is MembershipState.JOINED:
                await self._apply()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _must_rejoin(self) -> bool:
        if self._topics != self._subscription.topics():
            self._reason = "the subscription changed"
            return True
        found = self._cluster.metadata.topics
        if self._counts is not None and found is not self._seen_topics:
            self._seen_topics = found  # Each Metadata response makes a new object.
            for topic, count in self._counts.items():
                info = found.get(topic)
                if info is not None and info.error is ErrorCode.none and len(info.partitions) != count:
                    self._reason = f"the topic {topic!r} has {len(info.partitions)} partitions now"
                    return True
        return False

    def _set_unjoined(self) -> None:
        self.state = MembershipState.UNJOINED
        self._subscription.notify()

    async def _prepare(self) -> None:
        """Revokes the partitions that must be revoked before joining, and starts to join."""
        self._metrics.rebalance_began()
        await self._subscription.before_rebalance()
        if not self.is_cooperative:
            await self._subscription.revoke(self._subscription.assignment())
        else:
            gone = {one for one in self._subscription.assignment() if one.topic not in self._subscription.topics()}
            if gone:
                await self._subscription.revoke(gone)
        if self.state is not MembershipState.UNJOINED:
            return
        await self._stop_heartbeats()
        self.state = MembershipState.JOINING
        self._topics = self._subscription.topics()
        self._joining = asyncio.create_task(self._join_until_done())

    async def _apply(self) -> None:
        """Revokes and assigns partitions, as the group has decided."""
        joined = self._joined
        assert joined is not None
        revoked = self._subscription.assignment() - joined.partitions
        if revoked:
            await self._subscription.revoke(revoked)
        if self.state is not MembershipState.JOINED:
            return  # While the callback ran, the group has removed this member.
        self.state, self._joined = MembershipState.STABLE, None
        self._last_assignment = joined.partitions, joined.generation
        self._counts, self._seen_topics = joined.counts, None
        try:
            await self._subscription.assign(set(joined.partitions))
        finally:
            self._metrics.rebalance_ended()
            if revoked:
                self._reason = "the consumer has revoked partitions that other members will get"
                self._set_unjoined()

    async def leave(self) -> None:
        joining, self._joining = self._joining, None
        if joining is not None:
            if not joining.done():
                # The group waits for a member that has just got its id. The id is needed to leave the group.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._has_member_id.wait(), _MEMBER_ID_TIMEOUT_S)
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
        await self._stop_heartbeats()
        try:
            await self._subscription.revoke(self._subscription.assignment())
        finally:
            if self._config.group_instance_id is None:
                await self._send_leave("the consumer is being closed, or has unsubscribed")
        self._forget()
        self.state = MembershipState.UNJOINED
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
            logger.warning(
                "leaving the group %r failed; the member will be removed after its session timeout: %s",
                self._group_id,
                error,
            )

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
                self.state = MembershipState.JOINED
                self._start_heartbeats()
                self._subscription.notify()
                return
            attempts += 1
            self._metrics.rebalance_failed()
            if code in _MOVED:
                self._cluster.forget_coordinator("group", self._group_id)
            if code in _UNKNOWN_TO_GROUP:
                self._forget(code)
            elif code not in _PASSING and code is not ErrorCode.rebalance_in_progress:
                self._failed(error_for(code, f"joining the group {self._group_id!r}{_HINTS.get(code, '')}"))
                return
            await asyncio.sleep(self._backoff.delay_ms(attempts) / 1000)

    async def _join_once(self) -> ErrorCode:
        topics = self._topics or frozenset()
        code, found = await self._join_round.join(self, topics, self._last_assignment, self._reason)
        if found is not None:
            self.generation, self._joined = found.generation, found
        return code

    def _failed(self, error: HeadraceError) -> None:
        self._error = error
        self.state = MembershipState.UNJOINED
        self._subscription.notify()

    # -- heartbeats

    def _start_heartbeats(self) -> None:
        self._schedule.sent()
        assert self._heartbeat_task is None
        self._heartbeat_task = asyncio.create_task(self._send_heartbeats())
        self._heartbeat_task.add_done_callback(self._heartbeats_ended)

    async def _stop_heartbeats(self) -> None:
        task, self._heartbeat_task = self._heartbeat_task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _heartbeats_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error  # A bug in this client: the next poll raises it.
            self._subscription.notify()

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._schedule.next_ms() / 1000)
            if self._schedule.is_poll_overdue():
                await self._leave_overdue()
                return
            if self.generation == NO_GENERATION:
                return  # A commit was refused first, and has handled this.
            if not self._schedule.is_due():
                continue
            self._schedule.sent()
            try:
                connection = await self._cluster.coordinator("group", self._group_id)
                with self._metrics.timed("heartbeat"):
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
            if not self._handle_heartbeat(ErrorCode(answer.error_code)):
                return

    async def _leave_overdue(self) -> None:
        self._schedule.warn_overdue(self._group_id)
        if self._config.group_instance_id is None:
            await self._send_leave("poll() was not called for max.poll.interval.ms")
        self._heartbeat_task = None
        self._rejoin(ErrorCode.unknown_member_id)

    def _handle_heartbeat(self, code: ErrorCode) -> bool:
        """Handles the answer to a heartbeat. Returns whether to send more heartbeats."""
        if code is ErrorCode.none:
            return True
        if code is ErrorCode.rebalance_in_progress:
            if self.state is MembershipState.STABLE:
                self._reason = "the group is rebalancing"
                self._set_unjoined()
            return True
        if code in _PASSING:
            if code in _MOVED:
                self._cluster.forget_coordinator("group", self._group_id)
            return True
        self._heartbeat_task = None
        if code in _UNKNOWN_TO_GROUP:
            self._rejoin(code)
        else:
            self._is_lost = True
            self._forget()
            self._failed(error_for(code, f"the group {self._group_id!r}{_HINTS.get(code, '')}"))
        return False

    def _rejoin(self, code: ErrorCode) -> None:
        """Joins again, because the group has removed this member: other members may read its partitions already."""
        if self.state is MembershipState.JOINING:
            return
        logger.warning("the group %r has removed this consumer (%s); it joins again", self._group_id, code.name)
        self._is_lost = True
        self._reason = f"the group has removed the consumer ({code.name})"
        self._forget(code)
        self._set_unjoined()

    def _forget(self, code: ErrorCode = ErrorCode.unknown_member_id) -> None:
        self.generation = NO_GENERATION
        # If only the generation is outdated, the group still has the member. As a new member, it would wait for its
        # old self.
        if code is not ErrorCode.illegal_generation:
            self.member_id = ""


_HINTS = {
    ErrorCode.fenced_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.inconsistent_group_protocol: "; the other members use no partition.assignment.strategy of this "
    "consumer, or the group uses another protocol",
    ErrorCode.invalid_session_timeout: "; session.timeout.ms is outside of the range that the broker allows",
    ErrorCode.group_max_size_reached: "; the group has as many members as the broker allows",
}
