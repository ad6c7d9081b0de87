"""Fetching ahead: what ``fetch_positions.py`` wants is asked for in the background, whether somebody polls or not.

One request a broker is under way at a time, on a connection of its own, because a broker holds a Fetch that finds
nothing for ``fetch.max.wait.ms``. Whatever changes (an answer, records taken, a seek, an assignment) calls
:meth:`Fetcher.wake`, and the next turn of the loop asks for what is wanted now. Positions that are not known are
looked up first: what the group committed, else ``auto.offset.reset``.

What may pass (a lost connection, a leader that moved) is tried again after a pause, and only logged. What is the user's
to know is kept and raised by the next poll; that partition rests until then.

All here is one event loop's, but the positions: what is buffered may be taken by another thread, so they have a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from logging import getLogger
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.consumer.fetch_positions import Effect, FetchPositions, Leader
from headrace.client.consumer.fetch_requests import FetchLimits, highest_version, request_fields
from headrace.client.consumer.fetch_session import SessionRequest
from headrace.client.consumer.offset_lookup import FoundOffset, OffsetLookup
from headrace.client.errors import (
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

#: The connections for nothing but Fetch.
_PURPOSE = "fetch"
_CLOSING_MS = 1_000

Committed = Callable[[set[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        positions: FetchPositions,
        limits: FetchLimits,
        *,
        lookup: OffsetLookup,
        committed: Committed | None,
        refresh: Callable[[], Awaitable[None]],
        notify: Callable[[], None],
    ) -> None:
        """
        :param committed: asks for the group's offsets; none without a group.
        :param refresh: brings the cluster's metadata up to date.
        :param notify: called when there may be something to take, or to raise.
        """
        self._cluster = cluster
        self._positions = positions
        self._limits = limits
        self._lookup = lookup
        self._committed = committed
        self._refresh = refresh
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._tasks: set[asyncio.Task[None]] = set()
        #: Nodes with a request under way, or left alone for a while after a failure.
        self._busy: set[int] = set()
        self._failures: dict[object, int] = {}
        #: What runs, or pauses, besides fetching.
        self._chores: set[str] = set()
        self._lookups: dict[str, asyncio.Task[None]] = {}
        #: All partitions together have too much buffered.
        self._is_full = False
        self._errors: dict[TopicPartition, HeadraceError] = {}
        self._mistake: BaseException | None = None
        self._turn: asyncio.Handle | None = None
        self._is_closed = False

    # -- the user's side

    def wake(self) -> None:
        """Something changed: looks soon for what there is to do."""
        if self._turn is None and not self._is_closed:
            self._turn = self._loop.call_soon(self._step)

    def refresh(self) -> None:
        """Brings metadata up to date, soon."""
        self._start_chore("metadata", self._refresh_metadata())

    def moved(self) -> None:
        """Assignment or positions changed: what is being looked up may be for nobody any more."""
        for name in list(self._lookups):
            self._lookups.pop(name).cancel()
            self._chores.discard(name)
        # Who was moved is not held any more: what went wrong before is not what is wanted now.
        self._errors = {one: error for one, error in self._errors.items() if self._positions.is_held(one)}
        self.wake()

    @property
    def is_to_wake(self) -> bool:
        """Whether records were taken for want of whose room something was not asked for. On any thread."""
        return self._is_full or self._positions.has_room_again()

    @property
    def has_error(self) -> bool:
        return bool(self._errors) or self._mistake is not None

    def raise_error(self) -> None:
        """Raises what went wrong with a partition, once; it is then asked for again."""
        if self._mistake is not None:
            raise self._mistake
        for partition in self._errors:
            error = self._errors.pop(partition)
            if partition in self._positions.assignment():
                self._positions.release(partition)
                self.wake()
                raise error

    async def close(self) -> None:
        """Ends all requests; the brokers are told to forget the sessions, if they can be."""
        self._is_closed = True
        if self._turn is not None:
            self._turn.cancel()
        await cancel_and_wait(list(self._tasks))
        closing = self._positions.closing_requests()
        await asyncio.gather(*(self._close_session(*item) for item in closing.items()))

    async def _close_session(self, node_id: int, request: SessionRequest) -> None:
        # On another connection than the one where a held request may still be in the way.
        try:
            connection = await self._cluster.connection(node_id, timeout_ms=_CLOSING_MS)
            limits = self._limits._replace(max_wait_ms=0)
            await connection.ask_raw(Api.FETCH, timeout_ms=_CLOSING_MS, **request_fields(request, limits))
        except HeadraceError as error:
            logger.debug("a fetch session was not closed: %s", error)

    # -- what to do next

    def _step(self) -> None:
        self._turn = None
        if self._is_closed or not self._positions.assignment():
            return
        if self._cluster.is_stale():
            self.refresh()
        with self._positions.lock:
            self._ask_what_is_wanted()

    def _ask_what_is_wanted(self) -> None:
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

    def _leader_of(self, partition: TopicPartition) -> Leader | None:
        metadata = self._cluster.metadata
        info = metadata.partition(*partition)
        if info is None or info.leader_id not in metadata.nodes:
            return None
        return Leader(info.leader_id, info.leader_epoch, metadata.topic_id(partition.topic))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (mistake := task.exception()) is not None:
            # Ours. Nothing goes on by itself from here, so whoever polls must know.
            self._mistake = mistake
            self._notify()

    def _start_chore(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if name in self._chores:
            work.close()
            return None
        self._chores.add(name)
        return self._start(work)

    def _start_lookup(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._start_chore(name, work)
        if task is not None:
            self._lookups[name] = task

    def _again_later(self, what: object, release: Callable[[], object]) -> None:
        """After a failure: the next try is after a pause that grows."""
        self._failures[what] = self._failures.get(what, 0) + 1

        def over() -> None:
            release()
            self.wake()

        self._loop.call_later(self._backoff.delay_ms(self._failures[what]) / 1000, over)

    # -- fetching

    async def _fetch(self, node_id: int, request: SessionRequest) -> None:
        try:
            connection = await self._cluster.connection(node_id, purpose=_PURPOSE)
            version = connection.version_of(Api.FETCH, highest_version(request))
            fields = request_fields(request, self._limits)
            frame = await connection.ask_raw(Api.FETCH, version=version, **fields)
            asked = ((partition, wanted.topic_id) for partition, wanted in request.asked.items())
            is_fine = self._take_in(node_id, request, read_answer(frame, version, asked))
        except (BrokerUnreachable, KafkaTimeout, BadResponse) as error:
            logger.info("fetching from broker %d failed: %s", node_id, error)
            self._lost(node_id)
            self._cluster.invalidate()
            is_fine = False
        except HeadraceError as error:  # no version in common
            self._lost(node_id)
            self._fail(request.asked, error)
            is_fine = False
        if is_fine:
            self._failures.pop(node_id, None)
            self._busy.discard(node_id)
            self.wake()
        else:
            self._again_later(node_id, lambda: self._busy.discard(node_id))
        self._notify()

    def _lost(self, node_id: int) -> None:
        with self._positions.lock:
            self._positions.lost(node_id)

    def _take_in(self, node_id: int, request: SessionRequest, answer: FetchAnswer) -> bool:
        """Whether the node may be asked again at once."""
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
                    effect = self._positions.answered(partition, wanted, found)
            except KafkaError as error:  # control batches are looked into
                self._fail([partition], error_for(error.code, f"what was fetched of {partition}: {error}"))
                continue
            is_fine = self._note(partition, found, effect) and is_fine
        return is_fine

    def _note(self, partition: TopicPartition, answer: PartitionAnswer, effect: Effect) -> bool:
        if effect is Effect.REFRESH:
            logger.debug("%s: %s, asking for metadata", partition, answer.error.name)
            self._cluster.invalidate()
            return False
        if effect is Effect.FAILED:
            self._fail([partition], _failure(partition, self._positions.position(partition), answer))
        elif effect is Effect.NOTHING and answer.error is not ErrorCode.none:
            return False
        return True

    def _fail(self, partitions: Iterable[TopicPartition], error: HeadraceError) -> None:
        for partition in partitions:
            if partition in self._positions.assignment():
                self._positions.hold(partition)
                self._errors[partition] = error
        self._notify()

    # -- chores

    async def _refresh_metadata(self) -> None:
        try:
            await self._refresh()
        except HeadraceError as error:
            logger.warning("metadata could not be refreshed: %s", error)
            self._again_later("metadata", lambda: self._chores.discard("metadata"))
            return
        if self._cluster.is_stale() or any(self._leader_of(one) is None for one in self._positions.assignment()):
            self._again_later("metadata", lambda: self._chores.discard("metadata"))
        else:
            self._failures.pop("metadata", None)
            self._chores.discard("metadata")
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
                    message = f"the group has committed no offset of {partition}, and auto.offset.reset is none"
                    self._fail([partition], NoCommittedOffset(f"{message}; seek to where you want to begin"))
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
        self._again_later(name, lambda: self._chores.discard(name))
        if isinstance(error, BrokerError) and not error.is_retriable:
            self._fail(partitions, error)
        else:
            logger.warning("positions could not be looked up: %s", error)

    def _lookup_done(self, name: str) -> None:
        self._lookups.pop(name, None)
        self._failures.pop(name, None)
        self._chores.discard(name)
        self.wake()
        self._notify()


def _failure(partition: TopicPartition, position: int | None, answer: PartitionAnswer) -> HeadraceError:
    if answer.error is ErrorCode.none:
        return BadResponse(f"a batch of {partition} at offset {position} came cut")
    if answer.error is ErrorCode.offset_out_of_range:
        message = f"{partition} has no offset {position}, and auto.offset.reset is none; seek to one that it has"
        return error_for(answer.error, message)
    return error_for(answer.error, f"fetching {partition} from offset {position}")
