"""The replicas on this broker, and what the controller says of them: LeaderAndIsr and StopReplica.

Requests are followed one at a time and in order. Each partition is judged for itself: one whose leader epoch is older
than what we know is refused, one of the same epoch is known already, and a newer one changes its role. A log is made
where there is none, unless it may be on a disk that does not work.

Around the roles: who may be waiting for a partition is told of every change (the purgatories, followers' sessions); ISR
changes go to the tree (``isr_writes.py``); those that follow have fetchers (``fetchers.py``), and those that lead serve
followers (``follower_sessions.py``). From time to time ISRs are looked through for followers that are behind, and high
watermarks are written down: after a crash a replica starts with what was last written, and learns the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID

from headrace.broker.replicas.fetchers import Fetchers
from headrace.broker.replicas.follower_sessions import FollowerSessions
from headrace.broker.replicas.isr_writes import IsrWrites
from headrace.broker.replicas.replica_logs import ReplicaLogs
from headrace.broker.replicas.throttles import Throttles
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    LeaderAndIsrResponse,
    StoppedPartition,
    StopReplica,
    StopReplicaResponse,
)
from headrace.coordination import retried_changes
from headrace.coordination.interface import CoordinationError
from headrace.coordination.paths import LOG_DIR_EVENT_PREFIX
from headrace.coordination.znodes import LogDirFailure
from headrace.protocol.errors import ErrorCode, FencedLeaderEpoch, KafkaError, StaleControllerEpoch, error_code_of
from headrace.replication.leader import IsrChange
from headrace.replication.replicated_partition import NO_LEADER, ReplicatedPartition
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

_Job: TypeAlias = Coroutine[None, None, None]
_P = TypeVar("_P", LeaderAndIsrPartition, StoppedPartition)

#: The one way to choose a replica for a consumer that is known here, in whatever package a class of that name is.
_RACK_AWARE = "RackAwareReplicaSelector"
#: Partitions changed before the loop gets a turn.
_PARTITIONS_A_TURN = 32


class _Absent(Collection[int]):
    """The brokers that do not live, as far as we know: all but some."""

    def __init__(self, live: Callable[[], Collection[int]]) -> None:
        self._live = live

    def __contains__(self, broker_id: object) -> bool:
        return broker_id not in self._live()

    def __iter__(self) -> Iterator[int]:
        raise TypeError("there is no end to them")

    def __len__(self) -> int:
        raise TypeError("there is no end to them")


class ReplicaManager:
    """Made once logs are open; the purgatories may come later, before :meth:`start`."""

    def __init__(self, broker: Broker) -> None:
        assert broker.cluster is not None
        self._broker = broker
        self._member = broker.cluster
        self.partitions = broker.partitions
        self.throttles = Throttles(broker.broker_id, broker.config, broker.clock)
        self.sessions = FollowerSessions(broker, self)
        self.fetchers = Fetchers(broker, self)
        self.logs = ReplicaLogs(broker, self, self.throttles)
        self._isr_writes = IsrWrites(lambda: broker.coordination, broker.clock, broker.timer, self.run_soon)
        self._absent = _Absent(lambda: broker.metadata.nodes.keys())
        #: Whether consumers may be sent to followers.
        self.has_selector = (broker.config.optional_str("replica.selector.class") or "").endswith(_RACK_AWARE)
        #: Changes of ISRs that were written, and those that were refused.
        self.isr_shrinks: int = 0
        self.isr_expands: int = 0
        self.failed_isr_updates: int = 0
        #: Of record batches, between us and other brokers.
        self.bytes_in: int = 0
        self.bytes_out: int = 0
        self._turn = asyncio.Lock()
        self._timers: dict[str, TimerTask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_leaving = self._is_closed = False

    # -- the controller's words

    async def lead(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        """Makes, renews and leaves leaders and followers."""
        return LeaderAndIsrResponse(
            *await self._obey(request, request.partitions, partial(self._lead_one, request.topic_ids))
        )

    async def stop_replicas(self, request: StopReplica) -> StopReplicaResponse:
        return StopReplicaResponse(*await self._obey(request, request.partitions, self._stop_one))

    async def _obey(
        self, request: LeaderAndIsr | StopReplica, partitions: Iterable[_P], change: Callable[[_P], ErrorCode]
    ) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
        """One request after the other; between its partitions others get a turn. Its own code, and each partition's."""
        async with self._turn:
            codes: dict[tuple[str, int], ErrorCode] = {}
            try:
                if isinstance(request, LeaderAndIsr):
                    self._check(request)
                    await self.logs.learn({told.topic for told in request.partitions})
                for number, told in enumerate(partitions):
                    if number % _PARTITIONS_A_TURN == _PARTITIONS_A_TURN - 1:
                        await asyncio.sleep(0)
                    self._check(request)
                    codes[told.topic, told.partition] = change(told)
            except KafkaError as error:
                logger.info(
                    "a %s of controller %d is refused: %s", type(request).__name__, request.controller_id, error
                )
                return error.code, {}
            finally:
                self.fetchers.settle()
            return ErrorCode.none, codes

    def _check(self, request: LeaderAndIsr | StopReplica) -> None:
        """:raises KafkaError: if it comes from a controller of yesterday, or is for us as we were before a restart."""
        self._member.check_broker_epoch(request.broker_epoch)
        self._member.check_controller(request.controller_epoch)

    def _lead_one(self, topic_ids: Mapping[str, UUID | None], told: LeaderAndIsrPartition) -> ErrorCode:
        try:
            topic_id = topic_ids.get(told.topic)
            partition = self.logs.hosted(told.topic, told.partition, topic_id, may_be_new=told.is_new)
            self._change(partition, told)
        except Exception as error:  # noqa: BLE001  becomes a code, and is logged if it is ours
            logger.warning("%s-%d does not change its role: %s", told.topic, told.partition, error)
            return error_code_of(error)
        return ErrorCode.none

    def _change(self, partition: ReplicatedPartition, told: LeaderAndIsrPartition) -> None:
        leadership, replicas = told.leadership, told.assignment.replicas
        if leadership.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpoch(f"leader epoch {leadership.leader_epoch}, known is {partition.leader_epoch}")
        has_role = partition.leader is not None or partition.follower is not None
        if leadership.leader_epoch == partition.leader_epoch and (has_role or leadership.leader == NO_LEADER):
            return
        self.fetchers.remove(partition)
        partition.adding, partition.removing = told.assignment.adding, told.assignment.removing
        if leadership.leader == self._broker.broker_id:
            partition.lead(leadership.to_state(), leadership.version, replicas, self._absent)
        else:
            partition.follow(leadership.leader, leadership.leader_epoch, replicas)
            if partition.follower is not None and not self._is_leaving:
                self.fetchers.add(partition)
        self._broker.leadership_changed(told.topic, told.partition, partition.is_leader)

    def _stop_one(self, told: StoppedPartition) -> ErrorCode:
        try:
            partition = self.partitions.get(told.topic, told.partition)
            if isinstance(partition, ReplicatedPartition):
                if 0 <= told.leader_epoch < partition.leader_epoch:
                    raise FencedLeaderEpoch(f"leader epoch {told.leader_epoch}, known is {partition.leader_epoch}")
                self._stop(partition)
            if told.is_deleted:
                self.logs.delete(told.topic, told.partition)
        except Exception as error:  # noqa: BLE001  becomes a code, and is logged if it is ours
            logger.warning("%s-%d is not stopped: %s", told.topic, told.partition, error)
            return error_code_of(error)
        return ErrorCode.none

    def _stop(self, partition: ReplicatedPartition) -> None:
        self.fetchers.remove(partition)
        partition.stop()
        self._broker.leadership_changed(*partition.key, False)

    # -- what else is told

    def leave(self) -> None:
        """Our leaderships are about to move to others. We do not follow those: we would be in sync, and then gone."""
        self._is_leaving = True

    def topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's own settings have changed: its logs', ``min.insync.replicas``, throttled replicas."""
        self.logs.configure(topic, overrides)

    def defaults_changed(self) -> None:
        """Settings of the broker that topics fall back to have changed."""
        self.logs.defaults_changed()

    def brokers_changed(self) -> None:
        """``broker.metadata.nodes`` has changed."""
        self.fetchers.wake()
        for partition in self.replicated():
            partition.look_again()

    def log_dirs_failed(self) -> None:
        """A log dir went offline: its partitions are lost, and the controller is told. On the loop."""
        lost = [one for one in self.replicated() if one.log.log_dir.error is not None]
        for partition in lost:
            logger.error("%s-%d cannot be served: its log dir is offline", *partition.key)
            self.partitions.lose(*partition.key)
            self._stop(partition)
        self.fetchers.settle()
        if lost:
            self.run_soon(self._tell_of_lost_logs())

    async def _tell_of_lost_logs(self) -> None:
        failure = LogDirFailure(self._broker.broker_id)
        try:
            await retried_changes.create_at_least_once(
                self._broker.coordination, LOG_DIR_EVENT_PREFIX, failure.to_json()
            )
        except CoordinationError as error:
            # The session is over: when we register again the controller asks for all replicas, and hears of them.
            logger.warning("the controller was not told that a log dir is offline: %s", error)

    # -- what is known

    def replicated(self) -> Iterable[ReplicatedPartition]:
        return (one for one in self.partitions if isinstance(one, ReplicatedPartition))

    def topic_named(self, topic_id: UUID) -> str | None:
        """Leaders are named before the metadata that names their topics is here."""
        name = self.logs.topic_names.get(topic_id)
        if name is None and (known := self._broker.metadata.get_by_id(topic_id)) is not None:
            return known.name
        return name

    def under_replicated(self) -> list[ReplicatedPartition]:
        return [one for one in self.replicated() if one.is_under_replicated]

    def under_min_isr(self) -> list[ReplicatedPartition]:
        return [one for one in self.replicated() if one.is_under_min_isr]

    def at_min_isr(self) -> list[ReplicatedPartition]:
        return [one for one in self.replicated() if one.leader and len(one.leader.isr) == one.leader.min_isr]

    def reassigning(self) -> list[ReplicatedPartition]:
        return [one for one in self.replicated() if one.is_reassigning]

    # -- what partitions say (PartitionEvents)

    def high_watermark_moved(self, partition: ReplicatedPartition) -> None:
        broker, key = self._broker, partition.key
        broker.delayed_produce.check_and_complete(key)
        broker.delayed_fetch.check_and_complete(key)
        for reader in partition.readers:
            reader.news(at_once=self.has_selector)

    def isr_change_wanted(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        self._isr_writes.submit(partition, change)

    def isr_changed(self, partition: ReplicatedPartition, before: Collection[int]) -> None:
        if len(partition.leading().isr) < len(before):
            self.isr_shrinks += 1
        else:
            self.isr_expands += 1

    def isr_change_refused(self, partition: ReplicatedPartition) -> None:  # noqa: ARG002  as in PartitionEvents
        self.failed_isr_updates += 1

    def role_changed(self, partition: ReplicatedPartition) -> None:
        broker, key = self._broker, partition.key
        broker.delayed_produce.check_and_complete(key)
        broker.delayed_fetch.check_and_complete(key)
        broker.delayed_delete_records.check_and_complete(key)

    def follower_fetched(self, partition: ReplicatedPartition) -> None:
        """It may have said that its log begins later now."""
        waiting = self._broker.delayed_delete_records
        if waiting.delayed:
            waiting.check_and_complete(partition.key)

    # -- what is done from time to time

    def start(self) -> None:
        config = self._broker.config
        self._repeat("isr", lambda: max(1, config.int("replica.lag.time.max.ms") // 2), self._shrink_isrs)
        interval_name = "replica.high.watermark.checkpoint.interval.ms"
        self._repeat("checkpoint", lambda: config.int(interval_name), self.logs.checkpoint)

    def _repeat(self, name: str, interval_ms: Callable[[], int], job: Callable[[], _Job]) -> None:
        async def run() -> None:
            try:
                await job()
            except Exception:
                logger.exception("the job %r of replicas failed; it runs again at its next time", name)
            schedule()

        def schedule() -> None:
            if not self._is_closed:
                self._timers[name] = self._broker.timer.schedule(interval_ms(), lambda: self.run_soon(run()))

        schedule()

    async def _shrink_isrs(self) -> None:
        self.sessions.close_abandoned()
        for number, partition in enumerate(self.replicated()):
            if number % _PARTITIONS_A_TURN == _PARTITIONS_A_TURN - 1:
                await asyncio.sleep(0)
            partition.shrink()
            for reader in partition.readers:
                reader.news(at_once=False)  # retention may have moved the log's start

    def run_soon(self, job: _Job) -> None:
        if self._is_closed:
            job.close()
            return
        task = self._broker.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """No fetchers, no jobs, nobody waits any more. Logs are closed afterwards, by whoever opened them."""
        self._isr_writes.close()
        for timer in self._timers.values():
            timer.cancel()
        self.sessions.close()
        self._is_closed = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, *self.fetchers.close(), return_exceptions=True)
