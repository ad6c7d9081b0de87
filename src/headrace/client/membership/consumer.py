"""A member of a group of the new protocol (KIP-848, ``group.protocol=consumer``): ConsumerGroupHeartbeat, nothing else.

A loop in the background tells the coordinator what changed here (subscription, partitions given up or taken) and hears
what changed there: the member's epoch, and which partitions it is to have. The coordinator computes that, and hands a
partition on only when its owner has said that it gave it up; so nobody ever stops altogether. The first request, epoch
0, tells everything; a later one only what is new. Epoch -1 leaves, -2 leaves for a while (static members).

What the user must know of happens within ``poll()``: it compares what the member has with what it is to have, gives up
the one, takes the other, and has the loop say so at once. A member that is fenced has lost everything; when ``poll()``
has told the user, it joins again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from logging import getLogger
from typing import Any
from uuid import UUID, uuid4

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.committed_offsets import Identity
from headrace.client.errors import (
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnsupportedByBroker,
    error_for,
)
from headrace.client.membership.heartbeat import Heartbeat
from headrace.client.membership.interfaces import GroupHost
from headrace.client.notifier import Notifier
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api

logger = getLogger(__name__)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2
_LEAVE_TIMEOUT_MS = 5_000
#: In which the client makes its own member id, and the broker resolves patterns.
_OWN_ID_VERSION = 1

_FENCED = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
_MOVED = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
_PASSING = _MOVED | {ErrorCode.coordinator_load_in_progress, ErrorCode.request_timed_out}
_HINTS = {
    ErrorCode.unreleased_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.fenced_instance_id: "; another consumer has the same group.instance.id",
    ErrorCode.unsupported_assignor: "; the broker has no such group.remote.assignor",
    ErrorCode.group_max_size_reached: "; it has as many members as the broker allows",
    ErrorCode.group_id_not_found: "; it is a group of another kind",
}

_Subscribed = tuple[frozenset[str], str | None]


class ConsumerMembership:
    def __init__(self, cluster: Cluster, config: ConsumerConfig, host: GroupHost) -> None:
        assert config.group_id is not None
        self._cluster = cluster
        self._config = config
        self._group_id = config.group_id
        self._host = host
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._heartbeat = Heartbeat(
            cluster.clock,
            interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
        )
        self.member_id = str(uuid4())
        self.epoch = JOINING_EPOCH
        #: What it is to have, by ids of topics; and by names, as far as those are known.
        self._target_ids: dict[UUID, frozenset[int]] = {}
        self._target: frozenset[TopicPartition] | None = None
        self._is_to_reconcile = False
        self._names: dict[UUID, str] = {}
        #: What the coordinator knows of us.
        self._told_subscribed: _Subscribed | None = None
        self._told_owned: frozenset[TopicPartition] | None = None
        self._is_lost = False
        self._error: HeadraceError | None = None
        self._loop: asyncio.Task[None] | None = None
        self._notifier = Notifier()
        self._is_due = False

    # -- for commits

    def identity(self) -> Identity:
        if self.epoch <= JOINING_EPOCH:
            return Identity()
        return Identity(self.member_id, self.epoch, self._config.group_instance_id, is_epoch=True)

    def refused(self, code: ErrorCode) -> None:
        if self.epoch > JOINING_EPOCH:
            self._fenced(code)

    # -- the user's side

    def subscription_changed(self) -> None:
        self._tell()

    @property
    def is_due(self) -> bool:
        return (
            self._loop is None
            or self._loop.done()
            or self._is_lost
            or self._error is not None
            or self._is_to_reconcile
            or self._told_subscribed != self._subscribed()
        )

    def polled(self) -> None:
        self._heartbeat.poll_ended()

    def poll_ended(self) -> None:
        self._heartbeat.poll_ended()

    async def poll(self, deadline: Deadline) -> None:  # noqa: ARG002  nothing here waits for the coordinator
        self._heartbeat.poll_began()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._is_lost:
            self._is_lost = False
            await self._host.lose(self._host.assignment())
        if self._loop is not None and self._loop.done():  # it ended by a mistake of ours
            loop, self._loop = self._loop, None
            loop.result()
        if self._loop is None:
            self._loop = asyncio.create_task(self._run())
        if self._told_subscribed != self._subscribed():
            self._tell()
        if self._is_to_reconcile:
            assert self._target is not None
            await self._reconcile(self._target)

    async def _reconcile(self, target: frozenset[TopicPartition]) -> None:
        revoked = self._host.assignment() - target
        if revoked:
            await self._host.before_rebalance()
            await self._host.revoke(revoked)
        if self._target is not target:
            return  # while callbacks ran, the member was fenced, or is to have something else
        self._is_to_reconcile = False
        await self._host.assign(set(target))
        self._tell()

    async def leave(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
        await self._host.revoke(self._host.assignment())
        is_static = self._config.group_instance_id is not None
        await self._send_leave(LEAVING_FOR_A_WHILE_EPOCH if is_static else LEAVING_EPOCH)
        self._start_anew()

    async def _send_leave(self, epoch: int) -> None:
        if self.epoch <= JOINING_EPOCH:
            return
        try:
            connection = await self._cluster.coordinator("group", self._group_id, timeout_ms=_LEAVE_TIMEOUT_MS)
            await connection.ask(
                Api.CONSUMER_GROUP_HEARTBEAT, timeout_ms=_LEAVE_TIMEOUT_MS, **self._fields(epoch, is_first=False)
            )
        except HeadraceError as error:
            logger.warning("leaving the group %r failed; it will notice by itself: %s", self._group_id, error)

    # -- heartbeats

    def _tell(self) -> None:
        """Sends a heartbeat now."""
        self._is_due = True
        self._notifier.notify()

    async def _run(self) -> None:
        failures = 0
        while True:
            wait_ms: float = self._backoff.delay_ms(failures) if failures else self._heartbeat.next_ms()
            if failures or not self._is_due:
                await self._notifier.wait(wait_ms)
            if self._heartbeat.is_away():
                await self._leave_for_being_away()
                return
            if not self._is_due and not failures and not self._heartbeat.is_due():
                continue
            try:
                code, message = await self._beat()
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
                self._told_owned = None
                continue
            if code in _FENCED:
                self._fenced(code)
            else:
                detail = f": {message}" if message else ""
                self._failed(error_for(code, f"joining the group {self._group_id!r}{detail}{_HINTS.get(code, '')}"))
            return

    async def _beat(self) -> tuple[ErrorCode, str]:
        connection = await self._cluster.coordinator("group", self._group_id)
        version = connection.version_of(Api.CONSUMER_GROUP_HEARTBEAT)
        is_first = self.epoch == JOINING_EPOCH
        if version < _OWN_ID_VERSION:
            if self._host.pattern() is not None:
                message = f"{connection.address} does not resolve patterns; subscribe with a compiled one instead"
                raise UnsupportedByBroker(message=message)
            if is_first:
                self.member_id = ""
        self._is_due = False
        self._heartbeat.sent()
        subscribed, owned = self._subscribed(), frozenset(self._host.assignment())
        answer = await connection.ask(
            Api.CONSUMER_GROUP_HEARTBEAT, version=version, **self._fields(self.epoch, is_first=is_first)
        )
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.none:
            self._told_subscribed, self._told_owned = subscribed, owned
            await self._heard(answer)
        return code, answer.error_message or ""

    def _fields(self, epoch: int, *, is_first: bool) -> dict[str, Any]:
        names, pattern = subscribed = self._subscribed()
        owned = frozenset(self._host.assignment())
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
        if is_first or subscribed != self._told_subscribed:
            fields["subscribed_topic_names"] = sorted(names)
            # An empty one takes an earlier one back.
            fields["subscribed_topic_regex"] = pattern if pattern is not None or is_first else ""
        if is_first or owned != self._told_owned:
            fields["topic_partitions"] = self._by_id(() if is_first else owned)
        return fields

    def _subscribed(self) -> _Subscribed:
        return self._host.topics(), self._host.pattern()

    def _by_id(self, partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        found: dict[UUID, list[int]] = {}
        for topic, partition in partitions:
            found.setdefault(ids[topic], []).append(partition)
        return [{"topic_id": topic_id, "partitions": sorted(indexes)} for topic_id, indexes in found.items()]

    async def _heard(self, answer: Any) -> None:
        if answer.member_id:
            self.member_id = answer.member_id
        self.epoch = int(answer.member_epoch)
        self._heartbeat.interval_ms = _milliseconds(answer.heartbeat_interval)
        if answer.assignment is not None:
            self._target_ids = {
                one.topic_id: frozenset(map(int, one.partitions)) for one in answer.assignment.topic_partitions
            }
            self._target = None
        if self._target is None:
            await self._resolve()

    async def _resolve(self) -> None:
        """Finds the names of the topics; those that are gone already are left out."""
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
            # One that was deleted and made again is another one of the same name.
            self._names = {one: name for one, name in self._names.items() if name not in found.values()} | found
            await self._cluster.refresh(found.values(), create=False)
        self._target = frozenset(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target_ids.items()
            if topic_id in self._names
            for partition in partitions
        )
        self._is_to_reconcile = self._target != self._host.assignment()
        if self._is_to_reconcile:
            self._host.notify()
        else:
            self._tell_if_not_told()

    def _tell_if_not_told(self) -> None:
        """The coordinator waits to hear that a member has what it gave it, even if nothing changes."""
        if self._target != self._told_owned:
            self._tell()

    # -- the end of a membership

    async def _leave_for_being_away(self) -> None:
        logger.warning(
            "poll() was not called for max.poll.interval.ms (%d): the consumer leaves the group %r. Poll more often, "
            "lower max.poll.records, or raise max.poll.interval.ms",
            self._config.max_poll_interval_ms,
            self._group_id,
        )
        is_static = self._config.group_instance_id is not None
        await self._send_leave(LEAVING_FOR_A_WHILE_EPOCH if is_static else LEAVING_EPOCH)
        self._fenced(ErrorCode.unknown_member_id)

    def _fenced(self, code: ErrorCode) -> None:
        logger.warning("the group %r has gone on without this consumer (%s); it joins again", self._group_id, code.name)
        self._is_lost = True
        self._start_anew()
        self._host.notify()

    def _failed(self, error: HeadraceError) -> None:
        self._error = error
        self._is_lost = True
        self._start_anew()
        self._host.notify()

    def _start_anew(self) -> None:
        """The next poll joins again."""
        loop, self._loop = self._loop, None
        if loop is not None and loop is not asyncio.current_task():
            loop.cancel()
        self.epoch = JOINING_EPOCH
        self._target, self._target_ids = None, {}
        self._is_to_reconcile = False
        self._told_subscribed = self._told_owned = None
        self._is_due = True


def _milliseconds(duration: Any) -> int:
    return int(duration.total_seconds() * 1000)
