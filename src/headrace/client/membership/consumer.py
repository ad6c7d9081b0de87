"""A member of a group of the consumer protocol (KIP-848, ``group.protocol=consumer``). It sends only heartbeats.

A task in the background sends ConsumerGroupHeartbeat requests. A request contains what changed on this side: the
subscription, and the partitions that were revoked or assigned. The answer contains what changed at the coordinator: the
member's epoch, and its target assignment. The coordinator computes the assignment. It gives a partition to another
member only after the owner has confirmed that it revoked the partition. So no member ever has to stop altogether. The
first request has epoch 0 and contains everything. Epoch -1 leaves the group, -2 leaves it for a restart (static
members).

All that the user sees happens within ``poll()``. It compares the current with the target assignment, revokes and
assigns partitions, and makes the task send a heartbeat at once. A fenced member has lost all its partitions. It joins
again after ``poll()`` has called the user's callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from logging import getLogger
from typing import Any
from uuid import UUID, uuid4

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.errors import (
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnsupportedByBroker,
    error_for,
)
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.membership.heartbeat import HeartbeatSchedule
from headrace.client.membership.interfaces import GroupSubscription, MemberIdentity
from headrace.client.notifier import Notifier
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api

logger = getLogger(__name__)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_STATIC_EPOCH = -2
_LEAVE_TIMEOUT_MS = 5_000
#: From this version on, the client makes its own member id, and the broker resolves patterns.
_CLIENT_MEMBER_ID_VERSION = 1

_FENCED = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_PASSING = _MOVED | {ErrorCode.coordinator_load_in_progress, ErrorCode.request_timed_out}
_HINTS = {
    ErrorCode.unreleased_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.fenced_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.unsupported_assignor: "; the broker does not know the group.remote.assignor",
    ErrorCode.group_max_size_reached: "; the group has as many members as the broker allows",
    ErrorCode.group_id_not_found: "; the group uses another protocol",
}

_TopicsAndPattern = tuple[frozenset[str], str | None]


class ConsumerMembership:
    """The membership of one consumer in a group of the consumer protocol."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: GroupSubscription, metrics: GroupMetrics
    ) -> None:
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._subscription = subscription
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metrics = metrics
        self._schedule = HeartbeatSchedule.of(cluster.clock, config)
        self.member_id = str(uuid4())
        self.epoch = JOINING_EPOCH
        #: The target assignment by topic ids, and by topic names if all names are resolved.
        self._target_ids: dict[UUID, frozenset[int]] = {}
        self._target: frozenset[TopicPartition] | None = None
        self._must_reconcile = False
        self._names: dict[UUID, str] = {}
        #: The subscription and the partitions that the coordinator has got from this member.
        self._sent_subscription: _TopicsAndPattern | None = None
        self._sent_owned: frozenset[TopicPartition] | None = None
        self._is_lost = False
        self._error: HeadraceError | None = None
        self._task: asyncio.Task[None] | None = None
        self._notifier = Notifier()
        self._must_send = False

    # -- for commits

    def identity(self) -> MemberIdentity:
        if self.epoch <= JOINING_EPOCH:
            return MemberIdentity()
        return MemberIdentity(self.member_id, self.epoch, self._config.group_instance_id, is_epoch=True)

    def commit_refused(self, code: ErrorCode) -> None:
        if self.epoch > JOINING_EPOCH:
            self._fenced(code)

    # -- for the consumer

    def subscription_changed(self) -> None:
        self._send_soon()

    @property
    def is_due(self) -> bool:
        return (
            self._task is None
            or self._task.done()
            or self._is_lost
            or self._error is not None
            or self._must_reconcile
            or self._sent_subscription != self._current_subscription()
        )

    def poll_ended(self) -> None:
        self._schedule.poll_ended()

    async def poll(self, deadline: Deadline) -> None:  # noqa: ARG002  this protocol never waits
        self._schedule.poll_began()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._is_lost:
            self._is_lost = False
            await self._subscription.lose(self._subscription.assignment())
        if self._task is not None and self._task.done():  # A bug in this client ended the task.
            task, self._task = self._task, None
            task.result()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._sent_subscription != self._current_subscription():
            self._send_soon()
        if self._must_reconcile:
            assert self._target is not None
            await self._reconcile(self._target)

    async def _reconcile(self, target: frozenset[TopicPartition]) -> None:
        revoked = self._subscription.assignment() - target
        if revoked:
            await self._subscription.before_rebalance()
            await self._subscription.revoke(revoked)
        if self._target is not target:
            return  # While callbacks ran, the member was fenced, or the target assignment has changed.
        self._must_reconcile = False
        await self._subscription.assign(set(target))
        self._metrics.rebalance_ended()
        self._send_soon()

    async def leave(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._subscription.revoke(self._subscription.assignment())
        is_static = self._config.group_instance_id is not None
        await self._send_leave(LEAVING_STATIC_EPOCH if is_static else LEAVING_EPOCH)
        self._reset()

    async def _send_leave(self, epoch: int) -> None:
        if self.epoch <= JOINING_EPOCH:
            return
        try:
            connection = await self._cluster.coordinator("group", self._group_id, timeout_ms=_LEAVE_TIMEOUT_MS)
            await connection.ask(
                Api.CONSUMER_GROUP_HEARTBEAT, timeout_ms=_LEAVE_TIMEOUT_MS, **self._fields(epoch, is_first=False)
            )
        except HeadraceError as error:
            logger.warning(
                "leaving the group %r failed; the member will be removed after its session timeout: %s",
                self._group_id,
                error,
            )

    # -- heartbeats

    def _send_soon(self) -> None:
        """Makes the background task send a heartbeat at once."""
        self._must_send = True
        self._notifier.notify()

    async def _run(self) -> None:
        failures = 0
        while True:
            wait_ms: float = self._backoff.delay_ms(failures) if failures else self._schedule.next_ms()
            if failures or not self._must_send:
                await self._notifier.wait(wait_ms)
            if self._schedule.is_poll_overdue():
                await self._leave_overdue()
                return
            if not self._must_send and not failures and not self._schedule.is_due():
                continue
            try:
                code, message = await self._send_heartbeat()
            except (BrokerUnreachable, KafkaTimeout) as error:
                logger.info("a heartbeat of the group %r failed: %s", self._group_id, error)
                code, message = ErrorCode.not_coordinator, ""
            except HeadraceError as error:
                self._failed(error)
                return
            if code is ErrorCode.none:
                failures = 0
                continue
            if code in _MOVED:
                self._cluster.forget_coordinator("group", self._group_id)
            if code in _PASSING:
                failures += 1
                self._sent_owned = None
                continue
            if code in _FENCED:
                self._fenced(code)
            else:
                detail = f": {message}" if message else ""
                self._failed(error_for(code, f"joining the group {self._group_id!r}{detail}{_HINTS.get(code, '')}"))
            return

    async def _send_heartbeat(self) -> tuple[ErrorCode, str]:
        connection = await self._cluster.coordinator("group", self._group_id)
        version = connection.version_of(Api.CONSUMER_GROUP_HEARTBEAT)
        is_first = self.epoch == JOINING_EPOCH
        if version < _CLIENT_MEMBER_ID_VERSION:
            if self._subscription.pattern() is not None:
                message = f"{connection.address} does not resolve patterns; subscribe with a compiled pattern"
                raise UnsupportedByBroker(message=message)
            if is_first:
                self.member_id = ""
        self._must_send = False
        self._schedule.sent()
        current, owned = self._current_subscription(), frozenset(self._subscription.assignment())
        with self._metrics.timed("heartbeat"):
            answer = await connection.ask(
                Api.CONSUMER_GROUP_HEARTBEAT, version=version, **self._fields(self.epoch, is_first=is_first)
            )
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.none:
            self._sent_subscription, self._sent_owned = current, owned
            await self._handle_answer(answer)
        return code, answer.error_message or ""

    def _fields(self, epoch: int, *, is_first: bool) -> dict[str, Any]:
        names, pattern = current = self._current_subscription()
        owned = frozenset(self._subscription.assignment())
        fields: dict[str, Any] = {
            "group_id": self._group_id,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._config.group_instance_id,
            "rebalance_timeout": -1,
        }
        if epoch < JOINING_EPOCH:
            return fields
        if is_first:
            fields["rebalance_timeout"] = self._config.max_poll_interval_ms
            fields["rack_id"] = self._config.client_rack or None
            fields["server_assignor"] = self._config.group_remote_assignor
        if is_first or current != self._sent_subscription:
            fields["subscribed_topic_names"] = sorted(names)
            # An empty pattern removes an earlier one.
            fields["subscribed_topic_regex"] = pattern if pattern is not None or is_first else ""
        if is_first or owned != self._sent_owned:
            fields["topic_partitions"] = self._by_id(() if is_first else owned)
        return fields

    def _current_subscription(self) -> _TopicsAndPattern:
        return self._subscription.topics(), self._subscription.pattern()

    def _by_id(self, partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        found: dict[UUID, list[int]] = {}
        for topic, partition in partitions:
            found.setdefault(ids[topic], []).append(partition)
        return [{"topic_id": topic_id, "partitions": sorted(indexes)} for topic_id, indexes in found.items()]

    async def _handle_answer(self, answer: Any) -> None:
        if answer.member_id:
            self.member_id = answer.member_id
        self.epoch = int(answer.member_epoch)
        self._schedule.interval_ms = _milliseconds(answer.heartbeat_interval)
        if answer.assignment is not None:
            self._target_ids = {
                one.topic_id: frozenset(map(int, one.partitions)) for one in answer.assignment.topic_partitions
            }
            self._target = None
        if self._target is None:
            await self._resolve()

    async def _resolve(self) -> None:
        """Looks up the names of the topics in the target assignment. Deleted topics are left out."""
        unknown = [topic_id for topic_id in self._target_ids if topic_id not in self._names]
        if unknown:
            answer = await self._cluster.ask_any(
                Api.METADATA,
                topics=[{"topic_id": topic_id, "name": None} for topic_id in unknown],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
            found = {topic.topic_id: topic.name for topic in answer.topics if topic.name is not None}
            # A topic that was deleted and created again has another id and the same name.
            self._names = {one: name for one, name in self._names.items() if name not in found.values()} | found
            await self._cluster.refresh(found.values(), create=False)
        self._target = frozenset(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target_ids.items()
            if topic_id in self._names
            for partition in partitions
        )
        self._must_reconcile = self._target != self._subscription.assignment()
        if self._must_reconcile:
            self._metrics.rebalance_began()
            self._subscription.notify()
        else:
            self._confirm_assignment()

    def _confirm_assignment(self) -> None:
        """Confirms the assignment to the coordinator, which waits for that even if nothing has changed."""
        if self._target != self._sent_owned:
            self._send_soon()

    # -- errors

    async def _leave_overdue(self) -> None:
        self._schedule.warn_overdue(self._group_id)
        is_static = self._config.group_instance_id is not None
        await self._send_leave(LEAVING_STATIC_EPOCH if is_static else LEAVING_EPOCH)
        self._fenced(ErrorCode.unknown_member_id)

    def _fenced(self, code: ErrorCode) -> None:
        logger.warning("the group %r has removed this consumer (%s); it joins again", self._group_id, code.name)
        self._is_lost = True
        self._reset()
        self._subscription.notify()

    def _failed(self, error: HeadraceError) -> None:
        self._metrics.rebalance_failed()
        self._error = error
        self._is_lost = True
        self._reset()
        self._subscription.notify()

    def _reset(self) -> None:
        """Forgets the state of the membership. The next poll joins again."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self.epoch = JOINING_EPOCH
        self._target, self._target_ids = None, {}
        self._must_reconcile = False
        self._sent_subscription = self._sent_owned = None
        self._must_send = True


def _milliseconds(duration: Any) -> int:
    return int(duration.total_seconds() * 1000)
