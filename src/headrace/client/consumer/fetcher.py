"""Fetches records ahead of the user, in the background, whether ``poll()`` is called or not.

``fetch_positions.py`` says what to fetch. There is at most one Fetch request per broker at a time, on a connection of
its own, because a broker holds a Fetch that finds no records for ``fetch.max.wait.ms``. Each change (an answer, records
that were taken, a seek, an assignment) calls :meth:`Fetcher.wake`, and the next turn of the event loop sends the
requests that are possible now. Positions that are not known are looked up first: the group's committed offset, or
``auto.offset.reset``.

After a failure that may pass (a lost connection, a leader that moved) the fetcher tries again after a pause, and logs
it. An error for the user is kept, and the next poll raises it. The partition is not fetched until then.

All code here runs on one event loop. Only the buffered records may be taken by another thread, so the positions have a
lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from logging import getLogger
from time import monotonic
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.consumer.consumer_metrics import ConsumerMetrics
from headrace.client.consumer.fetch_positions import FetchOutcome, FetchPositions, PartitionLeader
from headrace.client.consumer.fetch_requests import FetchLimits, highest_version, request_fields
from headrace.client.consumer.fetch_session import SessionRequest
from headrace.client.consumer.offset_lookup import FoundOffset, OffsetLookup
from headrace.client.errors import (
    AuthenticationFailed,
    BadResponse,
    BrokerError,
    BrokerUnreachable,
    HeadraceError,
    KafkaTimeout,
    NoCommittedOffset,
    error_for,
)
from headrace.client.offset_reset import OffsetReset
from headrace.client.retry import Backoff
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.wire.consumer_fetch import FetchAnswer, PartitionAnswer, read_answer

logger = getLogger(__name__)

#: Keeps the connections for Fetch apart from others.
_PURPOSE = "fetch"
_CLOSING_MS = 1_000

Committed = Callable[[set[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Fetcher:
    """The fetching of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: FetchPositions,
        limits: FetchLimits,
        metrics: ConsumerMetrics,
        *,
        lookup: OffsetLookup,
        committed: Committed | None,
        refresh: Callable[[], Awaitable[None]],
        notify: Callable[[], None],
    ) -> None:
        """
        :param committed: asks for the group's committed offsets; None without a group.
        :param refresh: refreshes the cluster's metadata.
        :param notify: called when there may be records to take, or an error to raise.
        """
        self._cluster = cluster
        self._positions = positions
        self._limits = limits
        self._metrics = metrics
        self._lookup = lookup
        self._committed = committed
        self._refresh = refresh
        self._notify = notify
        self._loop: asyncio.AbstractEventLoop | None = None
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Brokers with a request in flight, or in the pause after a failure.
        self._busy: set[int] = set()
        self._failures: dict[object, int] = {}
        #: The names of the other tasks that run, or are in the pause after a failure.
        self._running: set[str] = set()
        self._lookups: dict[str, asyncio.Task[None]] = {}
        #: Whether all partitions together have too much buffered.
        self._is_full = False
        self._errors: dict[TopicPartition, HeadraceError] = {}
        self._internal_error: BaseException | None = None
        self._scheduled_step: asyncio.Handle | None = None
        self._is_stopped = False

    # -- for the consumer

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Starts fetching, on the running event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.wake()

    def wake(self) -> None:
        """Checks soon what can be fetched, because something has changed."""
        if self._scheduled_step is None and not self._is_stopped and self._loop is not None:
            self._scheduled_step = self._loop.call_soon(self._step)

    def refresh(self) -> None:
        """Refreshes the metadata in the background."""
        self._start_once("metadata", self._refresh_metadata())

    def positions_changed(self) -> None:
        """Cancels lookups of positions, because the assignment or a position has changed."""
        for name in list(self._lookups):
            self._lookups.pop(name).cancel()
            self._running.discard(name)
        # A partition that was moved is not held any more, so its error does not matter any more.
        self._errors = {one: error for one, error in self._errors.items() if self._positions.is_held(one)}
        self.wake()

    @property
    def has_room_again(self) -> bool:
        """Whether a partition was not fetched because its buffer was full, and has room now. On any thread."""
        return self._is_full or self._positions.has_room_again()

    @property
    def has_error(self) -> bool:
        return bool(self._errors) or self._internal_error is not None

    def raise_error(self) -> None:
        """Raises the error of a partition, once. The partition is fetched again then."""
        if self._internal_error is not None:
            raise self._internal_error
        for partition in self._errors:
            error = self._errors.pop(partition)
            if partition in self._positions.assignment():
                self._positions.release(partition)
                self.wake()
                raise error

    async def stop(self) -> None:
        """Cancels all requests, and closes the fetch sessions if the brokers answer."""
        self._is_stopped = True
        if self._scheduled_step is not None:
            self._scheduled_step.cancel()
        await cancel_and_wait(list(self._tasks))
        closing = self._positions.closing_requests()
        await asyncio.gather(*(self._close_session(*item) for item in closing.items()))

    async def _close_session(self, node_id: int, request: SessionRequest) -> None:
        # On another connection, because the broker may still hold a request on the connection for Fetch.
        try:
            connection = await self._cluster.connection(node_id, timeout_ms=_CLOSING_MS)
            limits = self._limits._replace(max_wait_ms=0)
            await connection.ask_raw(Api.FETCH, timeout_ms=_CLOSING_MS, **request_fields(request, limits))
        except HeadraceError as error:
            logger.debug("a fetch session with broker %d was not closed: %s", node_id, error)

    # -- steps

    def _step(self) -> None:
        self._scheduled_step = None
        if self._is_stopped or not self._positions.assignment():
            return
        if self._cluster.is_stale():
            self.refresh()
        with self._positions.lock:
            self._send_requests()

    def _send_requests(self) -> None:
        if self._positions.awaiting_committed():
            self._start_lookup("committed", self._look_up_committed())
        if self._positions.awaiting_reset():
            self._start_lookup("resets", self._look_up_resets())
        self._is_full = self._positions.buffered_bytes() > self._limits.max_bytes
        if self._is_full:
            return
        requests, leaderless = self._positions.requests(self._leader_of, self._busy)
        if leaderless:
            self._cluster.invalidate()
            self.refresh()
        for node_id, request in requests.items():
            self._busy.add(node_id)
            self._start(self._fetch(node_id, request))

    def _leader_of(self, partition: TopicPartition) -> PartitionLeader | None:
        metadata = self._cluster.metadata
        info = metadata.partition(*partition)
        if info is None or info.leader_id not in metadata.nodes:
            return None
        return PartitionLeader(info.leader_id, info.leader_epoch, metadata.topic_id(partition.topic))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._loop is not None, "the fetcher is not started"
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug in this client. The task does not run again, so the next poll must raise the error.
            self._internal_error = error
            self._notify()

    def _start_once(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if name in self._running:
            work.close()
            return None
        self._running.add(name)
        return self._start(work)

    def _start_lookup(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._start_once(name, work)
        if task is not None:
            self._lookups[name] = task

    def _retry_later(self, what: object, release: Callable[[], object]) -> None:
        """Tries again after a pause that grows with each failure."""
        self._failures[what] = self._failures.get(what, 0) + 1
        self._after(self._backoff.delay_ms(self._failures[what]), release)

    def _after(self, delay_ms: float, release: Callable[[], object]) -> None:
        def over() -> None:
            release()
            self.wake()

        assert self._loop is not None, "the fetcher is not started"
        self._loop.call_later(delay_ms / 1000, over)

    # -- fetching

    async def _fetch(self, node_id: int, request: SessionRequest) -> None:
        throttle_ms = 0.0
        try:
            connection = await self._cluster.connection(node_id, purpose=_PURPOSE)
            version = connection.version_of(Api.FETCH, highest_version(request))
            fields = request_fields(request, self._limits)
            sent = monotonic()
            frame = await connection.ask_raw(Api.FETCH, version=version, **fields)
            asked = ((partition, wanted.topic_id) for partition, wanted in request.asked.items())
            answer = read_answer(frame, version, asked)
            self._metrics.fetched(connection.metrics, sent, answer)
            throttle_ms = connection.throttle_left_ms
            is_fine = self._read_answer(node_id, request, answer)
        except (BrokerUnreachable, KafkaTimeout, BadResponse) as error:
            logger.info("Fetch from broker %d failed: %s", node_id, error)
            self._lost(node_id)
            self._cluster.invalidate()
            is_fine = False
        except HeadraceError as error:  # The broker supports no version of Fetch that this client supports.
            self._lost(node_id)
            self._fail(request.asked, error)
            is_fine = False
        if not is_fine:
            self._retry_later(node_id, lambda: self._busy.discard(node_id))
        elif throttle_ms:
            self._failures.pop(node_id, None)
            self._after(throttle_ms, lambda: self._busy.discard(node_id))
        else:
            self._failures.pop(node_id, None)
            self._busy.discard(node_id)
            self.wake()
        self._notify()

    def _lost(self, node_id: int) -> None:
        with self._positions.lock:
            self._positions.lost(node_id)

    def _read_answer(self, node_id: int, request: SessionRequest, answer: FetchAnswer) -> bool:
        """Handles the answer of a broker. Returns whether the broker may be asked again at once."""
        is_session_error = answer.error in (ErrorCode.fetch_session_id_not_found, ErrorCode.invalid_fetch_session_epoch)
        if not self._positions.session_answered(node_id, answer.session_id, answer.error):
            if not is_session_error:
                logger.warning("broker %d answered a Fetch with %s", node_id, answer.error.name)
            return is_session_error
        is_fine = True
        for partition, found in answer.partitions:
            wanted = request.asked.get(partition)
            if wanted is None:
                continue
            try:
                with self._positions.lock:
                    outcome = self._positions.answered(partition, wanted, found)
            except KafkaError as error:  # A control batch cannot be read.
                self._fail(
                    [partition], error_for(error.code, f"the fetched records of {partition} cannot be read: {error}")
                )
                continue
            is_fine = self._handle_outcome(partition, found, outcome) and is_fine
        return is_fine

    def _handle_outcome(self, partition: TopicPartition, answer: PartitionAnswer, outcome: FetchOutcome) -> bool:
        if outcome is FetchOutcome.REFRESH:
            logger.debug("%s: %s, the metadata is refreshed", partition, answer.error.name)
            self._cluster.invalidate()
            return False
        if outcome is FetchOutcome.FAILED:
            self._fail([partition], _failure(partition, self._positions.position(partition), answer))
        elif outcome is FetchOutcome.NOTHING and answer.error is not ErrorCode.none:
            return False
        return True

    def _fail(self, partitions: Iterable[TopicPartition], error: HeadraceError) -> None:
        for partition in partitions:
            if partition in self._positions.assignment():
                self._positions.hold(partition)
                self._errors[partition] = error
        self._notify()

    # -- metadata and positions

    async def _refresh_metadata(self) -> None:
        try:
            await self._refresh()
        except HeadraceError as error:
            logger.warning("the metadata could not be refreshed: %s", error)
            if isinstance(error, AuthenticationFailed):
                self._fail(self._positions.assignment(), error)
            self._retry_later("metadata", lambda: self._running.discard("metadata"))
            return
        if self._cluster.is_stale() or any(self._leader_of(one) is None for one in self._positions.assignment()):
            self._retry_later("metadata", lambda: self._running.discard("metadata"))
        else:
            self._failures.pop("metadata", None)
            self._running.discard("metadata")
        self.wake()
        self._notify()

    async def _look_up_committed(self) -> None:
        with self._positions.lock:
            partitions = self._positions.awaiting_committed()
        try:
            found = {} if self._committed is None else await self._committed(partitions)
        except HeadraceError as error:
            self._lookup_failed("committed", partitions, error)
            return
        with self._positions.lock:
            for partition in partitions:
                if not self._positions.committed_found(partition, found.get(partition)):
                    message = f"the group has no committed offset for {partition}, and auto.offset.reset is none"
                    self._fail([partition], NoCommittedOffset(f"{message}; call seek() to set a position"))
        self._lookup_done("committed")

    async def _look_up_resets(self) -> None:
        with self._positions.lock:
            asked = self._positions.awaiting_reset()
        now_ms = self._cluster.clock.wall_ms()
        try:
            found = await self._lookup.find({one: reset.timestamp_ms(now_ms) for one, reset in asked.items()})
        except HeadraceError as error:
            self._lookup_failed("resets", asked, error)
            return
        with self._positions.lock:
            self._take_resets(asked, found)
        self._lookup_done("resets")

    def _take_resets(
        self, asked: Mapping[TopicPartition, OffsetReset], found: Mapping[TopicPartition, FoundOffset]
    ) -> None:
        for partition, offset in found.items():
            self._positions.reset_found(partition, asked[partition], offset.offset, offset.leader_epoch)

    def _lookup_failed(self, name: str, partitions: Iterable[TopicPartition], error: HeadraceError) -> None:
        self._lookups.pop(name, None)
        self._retry_later(name, lambda: self._running.discard(name))
        if isinstance(error, AuthenticationFailed) or (isinstance(error, BrokerError) and not error.is_retriable):
            self._fail(partitions, error)
        else:
            logger.warning("the positions could not be looked up: %s", error)

    def _lookup_done(self, name: str) -> None:
        self._lookups.pop(name, None)
        self._failures.pop(name, None)
        self._running.discard(name)
        self.wake()
        self._notify()


def _failure(partition: TopicPartition, position: int | None, answer: PartitionAnswer) -> HeadraceError:
    if answer.error is ErrorCode.none:
        return BadResponse(f"the broker sent an incomplete batch of {partition} at offset {position}")
    if answer.error is ErrorCode.offset_out_of_range:
        message = (
            f"{partition} has no offset {position}, and auto.offset.reset is none; call seek() with one that it has"
        )
        return error_for(answer.error, message)
    return error_for(answer.error, f"fetching {partition} from offset {position}")
