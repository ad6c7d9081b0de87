"""One fetcher: it keeps the partitions that this broker follows at one leader as far as the leader has them.

A task that asks one thing after the other, on a connection of its own: first where epochs ended, for partitions whose
log may have to be cut (``replication/follower.py`` has the theory); then where the leader's logs begin and end, for
those that asked out of range; then it fetches, which the leader holds until there is something. The partitions are
remembered by the leader in a fetch session (KIP-227), so that a request names only those that have changed: an idle
partition costs nothing.

A partition that comes while a fetch is held at the leader does not wait for its end: a second request is sent behind
it, upon which the leader answers the first (``Connection.on_impatience``).

A partition that is refused rests, 20 ms at first and doubling up to ``replica.fetch.backoff.ms``: most refusals are of
a leader that has not yet heard that it leads, and does a moment later. A lost connection is tried again in the same
manner. A follower that is fenced asks nothing more until the controller has spoken.
"""

from __future__ import annotations

import asyncio
from logging import DEBUG, INFO, getLogger
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.links import Links
from headrace.broker.metrics.counters import MinuteRate
from headrace.broker.replicas.fetch_session import FetchSession, Follow
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
from headrace.replication.follower import Ask, AskEpochEnd, AskRange, Deed, FetchAnswer, State
from headrace.replication.replicated_partition import ReplicatedPartition, end_of

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.replicas.replicas import ReplicaManager

logger = getLogger(__name__)

_EPOCHS_VERSION = 4
_OFFSETS_VERSION = 7
_EARLIEST, _LATEST = -2, -1
_MANY_REFUSALS = 5
_FIRST_REST_MS = 20
#: How long a throttled partition rests before it is looked at again.
_THROTTLED_REST_MS = 100

_ERRORS: dict[int, type[KafkaError]] = {error.code.value: error for error in (FencedLeaderEpoch, OffsetOutOfRange)}


class Fetcher:
    def __init__(
        self, broker: Broker, replicas: ReplicaManager, leader_id: int, purpose: str, *, has_topic_ids: bool
    ) -> None:
        """
        :param has_topic_ids: whether the topics of its partitions have ids; all have, or none.
        """
        config = broker.config
        self.leader_id = leader_id
        self.follows: dict[tuple[str, int], Follow] = {}
        self._broker = broker
        self._replicas = replicas
        self._purpose = purpose
        self._fetch_version = TOPIC_IDS_FROM if has_topic_ids else TOPIC_IDS_FROM - 1
        self._limits = FetchLimits(
            broker.broker_id,
            config.int("replica.fetch.wait.max.ms"),
            config.int("replica.fetch.min.bytes"),
            config.int("replica.fetch.response.max.bytes"),
            config.int("replica.fetch.max.bytes"),
        )
        self._timeout_ms = config.int("replica.socket.timeout.ms")
        #: Those that ask something else than records.
        self._asking: dict[Follow, None] = {}
        self._session = FetchSession()
        self._failures = 0
        #: Fetches that were answered.
        self._fetches = 0
        self._rate = MinuteRate(broker.clock.monotonic_ms())
        self._sleeper: asyncio.Future[None] | None = None
        self._held_at: Connection | None = None
        self._task = broker.loop.create_task(self._run(), name=purpose)

    # Partitions come and go

    def add(self, partition: ReplicatedPartition) -> None:
        assert partition.follower is not None
        self.remove(partition.key)
        follow = Follow(partition, partition.follower)
        self.follows[partition.key] = follow
        try:
            partition.do(follow.follower.begin())
        except KafkaError as error:
            logger.error("%r cannot begin to follow: %s", partition, error)
            follow.has_failed = True
            return
        self._place(follow)
        self._interrupt()

    def remove(self, key: tuple[str, int]) -> None:
        follow = self.follows.pop(key, None)
        if follow is not None:
            self._take_out(follow)

    def _take_out(self, follow: Follow) -> None:
        """It asks nothing."""
        self._asking.pop(follow, None)
        self._session.take_out(follow)

    def _place(self, follow: Follow) -> None:
        """Into the next request that suits its state."""
        if follow.follower.state is State.FETCHING:
            self._asking.pop(follow, None)
            self._session.put(follow)
            return
        self._take_out(follow)
        if follow.follower.state is not State.FENCED:
            self._asking[follow] = None

    def _interrupt(self) -> None:
        """There is something to ask that does not wait."""
        if self._held_at is not None:
            connection, self._held_at = self._held_at, None
            poke = connection.send(Api.OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, {"replica_id": -1, "topics": ()})
            poke.add_done_callback(_retrieved)
        else:
            self.wake()

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def close(self) -> asyncio.Task[None]:
        self._task.cancel()
        return self._task

    async def drop_connection(self) -> None:
        await self._links.drop(self.leader_id, self._purpose)

    @property
    def _links(self) -> Links:
        assert self._broker.cluster is not None
        return self._broker.cluster.links

    # For metrics: may be asked on another thread

    @property
    def is_dead(self) -> bool:
        return self._task.done()

    @property
    def failed_count(self) -> int:
        """Partitions that ask nothing more until the controller has spoken of them."""
        return sum(one.has_failed or one.follower.state is State.FENCED for one in self.follows.values())

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
                logger.log(level, "fetching from broker %d failed, and is tried again: %s", self.leader_id, error)
            except Exception:
                logger.exception("fetching from broker %d failed, and is tried again", self.leader_id)
            self._session.lost()
            self._failures += 1
            await self._sleep(self._rest_ms(self._failures))

    def _rest_ms(self, failures: int) -> int:
        most_ms = max(_FIRST_REST_MS, self._broker.config.int("replica.fetch.backoff.ms"))
        return min(most_ms, _FIRST_REST_MS << min(failures - 1, 10))

    async def _sleep(self, rest_ms: int | None) -> None:
        """Until somebody wakes us, or so long."""
        self._sleeper = self._broker.loop.create_future()
        timer = None if rest_ms is None else self._broker.timer.schedule(rest_ms, self.wake)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    async def _ask_all(self, connection: Connection) -> None:
        if self._asking:
            asking = list(self._asking)
            await self._ask_epochs(connection, [one for one in asking if one.follower.state is State.TRUNCATING])
            await self._ask_ranges(connection, [one for one in asking if one.follower.state is State.OUT_OF_RANGE])
        self._hold_back()
        if self._session:
            await self._fetch(connection)
        elif not self._asking:
            await self._sleep(None)

    # Where epochs ended

    async def _ask_epochs(self, connection: Connection, follows: list[Follow]) -> None:
        asks: dict[tuple[str, int], tuple[Follow, AskEpochEnd]] = {}
        topics: dict[str, list[dict[str, int]]] = {}
        for follow in follows:
            ask = follow.follower.next_ask()
            assert isinstance(ask, AskEpochEnd)
            topic, index = follow.partition.key
            asks[topic, index] = follow, ask
            topics.setdefault(topic, []).append(
                {"partition": index, "current_leader_epoch": ask.leader_epoch, "leader_epoch": ask.epoch}
            )
        if not asks:
            return
        fields: dict[str, Any] = {
            "replica_id": self._broker.broker_id,
            "topics": [{"topic": topic, "partitions": found} for topic, found in topics.items()],
        }
        answer = await connection.ask(Api.OFFSET_FOR_LEADER_EPOCH, version=_EPOCHS_VERSION, **fields)
        for topic in answer.topics:
            for found in topic.partitions:
                follow, ask = asks[topic.topic, found.partition]
                if found.error_code is not ErrorCode.none:
                    self._refused(follow, ask, found.error_code.value)
                else:
                    end = EpochEnd(found.leader_epoch, found.end_offset)
                    self._do(follow, follow.follower.on_epoch_end(ask, end))

    # Where logs begin and end

    async def _ask_ranges(self, connection: Connection, follows: list[Follow]) -> None:
        asks: dict[tuple[str, int], tuple[Follow, AskRange]] = {}
        for follow in follows:
            ask = follow.follower.next_ask()
            assert isinstance(ask, AskRange)
            asks[follow.partition.key] = follow, ask
        if not asks:
            return
        starts = await self._ask_offsets(connection, asks, _EARLIEST)
        ends = await self._ask_offsets(connection, asks, _LATEST)
        for key, (follow, ask) in asks.items():
            (start_error, start), (end_error, end) = starts[key], ends[key]
            if start_error or end_error:
                self._refused(follow, ask, start_error or end_error)
            else:
                self._do(follow, follow.follower.on_range(ask, start, end))

    async def _ask_offsets(
        self, connection: Connection, asks: dict[tuple[str, int], tuple[Follow, AskRange]], timestamp: int
    ) -> dict[tuple[str, int], tuple[int, int]]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), (_, ask) in asks.items():
            topics.setdefault(topic, []).append(
                {"partition_index": index, "current_leader_epoch": ask.leader_epoch, "timestamp": timestamp}
            )
        fields: dict[str, Any] = {
            "replica_id": self._broker.broker_id,
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

    def _hold_back(self) -> None:
        """Throttled partitions rest."""
        throttles = self._replicas.throttles
        if not throttles.followers:
            return
        for follow in list(self._session.changed):
            if follow.lag > 0 and throttles.holds_back(follow.partition):
                self._rest(follow, _THROTTLED_REST_MS)

    async def _fetch(self, connection: Connection) -> None:
        version = self._fetch_version
        self._held_at = connection
        try:
            request = self._session.next_request(self._limits)
            frame = await connection.send(Api.FETCH, version, request, timeout_ms=self._timeout_ms, is_raw=True)
        finally:
            self._held_at = None
        self._fetches += 1
        answer = read_answer(frame, version)
        if not self._session.answered(answer):
            return
        unflushed: list[PartitionLog] = []
        for found in answer.partitions:
            follow = self._session.remembered.get((found.topic, found.partition))
            if follow is not None:
                self._take(follow, found, unflushed)
        for log in unflushed:
            await self._broker.run_blocking(log.flush)

    def _take(self, follow: Follow, found: PartitionAnswer, unflushed: list[PartitionLog]) -> None:
        ask, partition = follow.asked, follow.partition
        assert ask is not None
        if partition.follower is not follow.follower:
            return
        if found.error:
            self._refused(follow, ask, found.error)
            return
        try:
            end_offset = end_of(found.records) if found.records else None
            diverging = None if found.diverging is None else EpochEnd(*found.diverging)
            answer = FetchAnswer(found.high_watermark, found.log_start_offset, end_offset, diverging)
            if partition.take(ask, answer, found.records):
                unflushed.append(partition.log)
        except KafkaError as error:
            self._failed(follow, error)
            return
        follow.refusals = 0
        if found.records:
            self._replicas.bytes_in += len(found.records)
            self._replicas.throttles.received(partition, len(found.records))
        follow.lag = max(0, found.high_watermark - partition.log.next_offset)
        self._place(follow)

    # What went wrong

    def _do(self, follow: Follow, deed: Deed) -> None:
        if self.follows.get(follow.partition.key) is not follow:
            return
        try:
            follow.partition.do(deed)
        except KafkaError as error:
            self._failed(follow, error)
            return
        follow.refusals = 0
        self._place(follow)

    def _refused(self, follow: Follow, ask: Ask, code: int) -> None:
        if self.follows.get(follow.partition.key) is not follow:
            return
        error = _ERRORS.get(code, UnknownServerError)(f"the leader answered {ErrorCode(code).name}")
        follow.follower.on_error(ask, error)
        if isinstance(error, OffsetOutOfRange):
            self._place(follow)
            return
        # While leaders change each side may be the first to hear of it: worth a word only if it goes on.
        level = INFO if follow.refusals >= _MANY_REFUSALS else DEBUG
        logger.log(level, "%r was refused by its leader: %s", follow.partition, ErrorCode(code).name)
        self._take_out(follow)
        if follow.follower.state is not State.FENCED:
            follow.refusals += 1
            self._rest(follow, self._rest_ms(follow.refusals))

    def _failed(self, follow: Follow, error: KafkaError) -> None:
        """Our own log would not do what it was to do."""
        logger.error("%r: what the leader sent cannot be taken: %s", follow.partition, error)
        self._take_out(follow)
        if isinstance(error, StorageError):
            follow.has_failed = True
        else:
            follow.refusals += 1
            self._rest(follow, self._rest_ms(follow.refusals))

    def _rest(self, follow: Follow, rest_ms: int) -> None:
        self._take_out(follow)
        self._broker.timer.schedule(rest_ms, lambda: self._rested(follow))

    def _rested(self, follow: Follow) -> None:
        if self.follows.get(follow.partition.key) is follow:
            self._place(follow)
            self._interrupt()


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody waits for it, and what became of it does not matter."""
    if not future.cancelled():
        future.exception()
