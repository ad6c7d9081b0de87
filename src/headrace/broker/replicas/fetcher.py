"""Fetches the partitions that this broker follows from one leader.

A fetcher is a task with its own connection. It sends one request after the other. First it asks where epochs ended, for
partitions whose log may have to be truncated (``replication/follower.py`` has the theory). Then it asks where the
leader's logs begin and end, for partitions whose offset was out of range. Then it sends a Fetch, which the leader holds
until there are records. The leader remembers the partitions in a fetch session (KIP-227), so a request names only
partitions that have changed, and an idle partition costs nothing.

A partition that is added while the leader holds a Fetch does not wait for the answer. The fetcher sends a second
request, and the leader then answers the held Fetch (``Connection.on_next_request_arrived``).

A partition whose request is rejected pauses for 20 ms at first, doubling up to ``replica.fetch.backoff.ms``. Most
rejections come from a leader that has not received its LeaderAndIsr yet. A lost connection is retried in the same way.
A follower that is fenced sends nothing until the controller changes its role.
"""

from __future__ import annotations

import asyncio
from logging import DEBUG, INFO, getLogger
from typing import TYPE_CHECKING, Any

from headrace.broker.metrics.counters import MinuteRate
from headrace.broker.replicas.fetch_session import FetchedPartition, FetchSession
from headrace.client.connection import Connection
from headrace.client.errors import HeadraceError
from headrace.log.partition_log import PartitionLog
from headrace.protocol.api import Api
from headrace.protocol.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    OffsetOutOfRange,
    StorageError,
    UnknownServerError,
)
from headrace.protocol.wire.follower_fetch import TOPIC_IDS_FROM, FetchLimits, PartitionAnswer, read_answer
from headrace.replication.epoch_ends import EpochEnd
from headrace.replication.follower import (
    EpochEndRequest,
    FetchResult,
    FollowerRequest,
    FollowerState,
    LogAction,
    LogRangeRequest,
)
from headrace.replication.replicated_partition import ReplicatedPartition, end_offset_of

if TYPE_CHECKING:
    from headrace.broker.replicas.context import ReplicaContext
    from headrace.broker.replicas.replicas import ReplicaManager

logger = getLogger(__name__)

_EPOCHS_VERSION, _OFFSETS_VERSION = 4, 7
_EARLIEST, _LATEST = -2, -1
#: Rejections are logged from this many in a row on.
_LOGGED_REJECTIONS = 5
_FIRST_PAUSE_MS = 20
#: How long a throttled partition pauses before the throttle is checked again.
_THROTTLED_PAUSE_MS = 100

_ERRORS: dict[int, type[KafkaError]] = {error.code.value: error for error in (FencedLeaderEpoch, OffsetOutOfRange)}


class Fetcher:
    """Replicates the partitions of one leader. Several fetchers may share the partitions of a leader."""

    def __init__(
        self, context: ReplicaContext, replicas: ReplicaManager, leader_id: int, purpose: str, *, has_topic_ids: bool
    ) -> None:
        """
        :param has_topic_ids: whether the topics of its partitions have ids; either all have one, or none.
        """
        config = context.config
        self.leader_id = leader_id
        self.partitions: dict[tuple[str, int], FetchedPartition] = {}
        self._broker_id = context.broker_id
        self._config = config
        self._runtime = context.runtime
        self._links = context.links
        self._replicas = replicas
        self._purpose = purpose
        self._fetch_version = TOPIC_IDS_FROM if has_topic_ids else TOPIC_IDS_FROM - 1
        self._limits = FetchLimits(
            context.broker_id,
            config.int("replica.fetch.wait.max.ms"),
            config.int("replica.fetch.min.bytes"),
            config.int("replica.fetch.response.max.bytes"),
            config.int("replica.fetch.max.bytes"),
        )
        self._timeout_ms = config.int("replica.socket.timeout.ms")
        #: The partitions that have to ask something else than records.
        self._asking: dict[FetchedPartition, None] = {}
        self._session = FetchSession()
        self._failures = 0
        #: The number of fetches that were answered.
        self._fetches = 0
        self._rate = MinuteRate(context.runtime.clock.monotonic_ms())
        self._sleeper: asyncio.Future[None] | None = None
        #: The connection with a Fetch that is not answered yet.
        self._fetching_on: Connection | None = None
        self._task = context.runtime.loop.create_task(self._run(), name=purpose)

    # Partitions are added and removed

    def add(self, partition: ReplicatedPartition) -> None:
        assert partition.follower is not None
        self.remove(partition.key)
        fetched = FetchedPartition(partition, partition.follower)
        self.partitions[partition.key] = fetched
        try:
            partition.apply(fetched.follower.first_action())
        except KafkaError as error:
            logger.error("%r cannot begin to follow its leader: %s", partition, error)
            fetched.has_failed = True
            return
        self._place(fetched)
        self._interrupt()

    def remove(self, key: tuple[str, int]) -> None:
        fetched = self.partitions.pop(key, None)
        if fetched is not None:
            self._take_out(fetched)

    def _take_out(self, fetched: FetchedPartition) -> None:
        """The partition asks nothing for now."""
        self._asking.pop(fetched, None)
        self._session.take_out(fetched)

    def _place(self, fetched: FetchedPartition) -> None:
        """Puts the partition into the next request that fits its state."""
        if fetched.follower.state is FollowerState.FETCHING:
            self._asking.pop(fetched, None)
            self._session.put(fetched)
            return
        self._take_out(fetched)
        if fetched.follower.state is not FollowerState.FENCED:
            self._asking[fetched] = None

    def _interrupt(self) -> None:
        """There is something to ask that must not wait for the answer to a Fetch."""
        if self._fetching_on is not None:
            connection, self._fetching_on = self._fetching_on, None
            second = connection.send(Api.OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, {"replica_id": -1, "topics": ()})
            second.add_done_callback(_ignore_result)
        else:
            self.wake()

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def stop(self) -> asyncio.Task[None]:
        self._task.cancel()
        return self._task

    async def drop_connection(self) -> None:
        await self._links.drop(self.leader_id, self._purpose)

    # For metrics, which may be read on another thread

    @property
    def is_dead(self) -> bool:
        return self._task.done()

    @property
    def failed_count(self) -> int:
        """The number of partitions that ask nothing until the controller changes their role."""
        return sum(one.has_failed or one.follower.state is FollowerState.FENCED for one in self.partitions.values())

    def fetch_rate(self, now_ms: int) -> float:
        return self._rate.of(self._fetches, now_ms)

    # The task

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._links.connect(self.leader_id, self._purpose)
                while True:
                    await self._ask_all(connection)
                    self._failures = 0
            except HeadraceError as error:
                level = INFO if self._failures == 0 else DEBUG
                logger.log(level, "fetching from broker %d failed, trying again: %s", self.leader_id, error)
            except Exception:
                logger.exception("fetching from broker %d failed, trying again", self.leader_id)
            self._session.lost()
            self._failures += 1
            await self._sleep(self._pause_ms(self._failures))

    def _pause_ms(self, failures: int) -> int:
        max_ms = max(_FIRST_PAUSE_MS, self._config.int("replica.fetch.backoff.ms"))
        return min(max_ms, _FIRST_PAUSE_MS << min(failures - 1, 10))

    async def _sleep(self, pause_ms: int | None) -> None:
        """Waits for :meth:`wake`, and at most for the pause."""
        self._sleeper = self._runtime.loop.create_future()
        timer = None if pause_ms is None else self._runtime.timer.schedule(pause_ms, self.wake)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    async def _ask_all(self, connection: Connection) -> None:
        if self._asking:
            asking = list(self._asking)
            await self._ask_epochs(
                connection, [one for one in asking if one.follower.state is FollowerState.TRUNCATING]
            )
            await self._ask_ranges(
                connection, [one for one in asking if one.follower.state is FollowerState.OUT_OF_RANGE]
            )
        self._pause_throttled()
        if self._session:
            await self._fetch(connection)
        elif not self._asking:
            await self._sleep(None)

    # Where epochs ended

    async def _ask_epochs(self, connection: Connection, partitions: list[FetchedPartition]) -> None:
        asks: dict[tuple[str, int], tuple[FetchedPartition, EpochEndRequest]] = {}
        topics: dict[str, list[dict[str, int]]] = {}
        for fetched in partitions:
            ask = fetched.follower.next_request()
            assert isinstance(ask, EpochEndRequest)
            topic, index = fetched.partition.key
            asks[topic, index] = fetched, ask
            topics.setdefault(topic, []).append(
                {"partition": index, "current_leader_epoch": ask.leader_epoch, "leader_epoch": ask.epoch}
            )
        if not asks:
            return
        fields: dict[str, Any] = {
            "replica_id": self._broker_id,
            "topics": [{"topic": topic, "partitions": found} for topic, found in topics.items()],
        }
        answer = await connection.ask(Api.OFFSET_FOR_LEADER_EPOCH, version=_EPOCHS_VERSION, **fields)
        for topic in answer.topics:
            for found in topic.partitions:
                fetched, ask = asks[topic.topic, found.partition]
                if found.error_code is not ErrorCode.none:
                    self._rejected(fetched, ask, found.error_code.value)
                else:
                    end = EpochEnd(found.leader_epoch, found.end_offset)
                    self._apply(fetched, fetched.follower.on_epoch_end(ask, end))

    # Where logs begin and end

    async def _ask_ranges(self, connection: Connection, partitions: list[FetchedPartition]) -> None:
        asks: dict[tuple[str, int], tuple[FetchedPartition, LogRangeRequest]] = {}
        for fetched in partitions:
            ask = fetched.follower.next_request()
            assert isinstance(ask, LogRangeRequest)
            asks[fetched.partition.key] = fetched, ask
        if not asks:
            return
        starts = await self._ask_offsets(connection, asks, _EARLIEST)
        ends = await self._ask_offsets(connection, asks, _LATEST)
        for key, (fetched, ask) in asks.items():
            (start_error, start), (end_error, end) = starts[key], ends[key]
            if start_error or end_error:
                self._rejected(fetched, ask, start_error or end_error)
            else:
                self._apply(fetched, fetched.follower.on_log_range(ask, start, end))

    async def _ask_offsets(
        self,
        connection: Connection,
        asks: dict[tuple[str, int], tuple[FetchedPartition, LogRangeRequest]],
        timestamp: int,
    ) -> dict[tuple[str, int], tuple[int, int]]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), (_, ask) in asks.items():
            topics.setdefault(topic, []).append(
                {"partition_index": index, "current_leader_epoch": ask.leader_epoch, "timestamp": timestamp}
            )
        fields: dict[str, Any] = {
            "replica_id": self._broker_id,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": found} for topic, found in topics.items()],
        }
        answer = await connection.ask(Api.LIST_OFFSETS, version=_OFFSETS_VERSION, **fields)
        return {
            (topic.name, found.partition_index): (found.error_code.value, found.offset)
            for topic in answer.topics
            for found in topic.partitions
        }

    # Records

    def _pause_throttled(self) -> None:
        throttles = self._replicas.throttles
        if not throttles.followers:
            return
        for fetched in list(self._session.changed):
            if fetched.lag > 0 and throttles.must_pause(fetched.partition):
                self._pause(fetched, _THROTTLED_PAUSE_MS)

    async def _fetch(self, connection: Connection) -> None:
        version = self._fetch_version
        self._fetching_on = connection
        try:
            request = self._session.next_request(self._limits)
            frame = await connection.send(Api.FETCH, version, request, timeout_ms=self._timeout_ms, is_raw=True)
        finally:
            self._fetching_on = None
        self._fetches += 1
        answer = read_answer(frame, version)
        if not self._session.answered(answer):
            return
        unflushed: list[PartitionLog] = []
        for found in answer.partitions:
            fetched = self._session.remembered.get((found.topic, found.partition))
            if fetched is not None:
                self._append(fetched, found, unflushed)
        for log in unflushed:
            await self._runtime.run_blocking(log.flush)

    def _append(self, fetched: FetchedPartition, found: PartitionAnswer, unflushed: list[PartitionLog]) -> None:
        ask, partition = fetched.asked, fetched.partition
        assert ask is not None
        if partition.follower is not fetched.follower:
            return
        if found.error:
            self._rejected(fetched, ask, found.error)
            return
        try:
            end_offset = end_offset_of(found.records) if found.records else None
            answer = FetchResult(found.high_watermark, found.log_start_offset, end_offset, found.diverging)
            if partition.apply_fetch(ask, answer, found.records):
                unflushed.append(partition.log)
        except KafkaError as error:
            self._failed(fetched, error)
            return
        fetched.rejections = 0
        if found.records:
            self._replicas.bytes_in += len(found.records)
            self._replicas.throttles.received(partition, len(found.records))
        fetched.lag = max(0, found.high_watermark - partition.log.next_offset)
        self._place(fetched)

    # Failures

    def _apply(self, fetched: FetchedPartition, action: LogAction) -> None:
        if self.partitions.get(fetched.partition.key) is not fetched:
            return
        try:
            fetched.partition.apply(action)
        except KafkaError as error:
            self._failed(fetched, error)
            return
        fetched.rejections = 0
        self._place(fetched)

    def _rejected(self, fetched: FetchedPartition, ask: FollowerRequest, code: int) -> None:
        if self.partitions.get(fetched.partition.key) is not fetched:
            return
        error = _ERRORS.get(code, UnknownServerError)(f"the leader answered {ErrorCode(code).name}")
        fetched.follower.on_error(ask, error)
        if isinstance(error, OffsetOutOfRange):
            self._place(fetched)
            return
        # While leadership changes, either side may receive it first: this is logged only if it continues.
        level = INFO if fetched.rejections >= _LOGGED_REJECTIONS else DEBUG
        logger.log(level, "%r: the leader rejected the request: %s", fetched.partition, ErrorCode(code).name)
        self._take_out(fetched)
        if fetched.follower.state is not FollowerState.FENCED:
            fetched.rejections += 1
            self._pause(fetched, self._pause_ms(fetched.rejections))

    def _failed(self, fetched: FetchedPartition, error: KafkaError) -> None:
        """The log of this broker could not do what it had to do."""
        logger.error("%r: the answer of the leader cannot be applied: %s", fetched.partition, error)
        self._take_out(fetched)
        if isinstance(error, StorageError):
            fetched.has_failed = True
        else:
            fetched.rejections += 1
            self._pause(fetched, self._pause_ms(fetched.rejections))

    def _pause(self, fetched: FetchedPartition, pause_ms: int) -> None:
        self._take_out(fetched)
        self._runtime.timer.schedule(pause_ms, lambda: self._resume(fetched))

    def _resume(self, fetched: FetchedPartition) -> None:
        if self.partitions.get(fetched.partition.key) is fetched:
            self._place(fetched)
            self._interrupt()


def _ignore_result(future: asyncio.Future[Any]) -> None:
    """Marks an exception as handled, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
