"""The replicas on this broker: carries out the controller's requests LeaderAndIsr and StopReplica.

Requests are carried out one at a time and in order. Each partition is checked separately: a leader epoch that is older
than the known one is rejected, the same epoch changes nothing, and a newer epoch changes the partition's role. A log
that does not exist is created, unless it may be on a disk that has failed.

Requests that wait for a partition learn of every change (the purgatories, followers' sessions). ISR changes are written
to the tree (``isr_writes.py``). Followers have fetchers (``fetchers.py``), and leaders serve followers
(``follower_sessions.py``). Two jobs run periodically. One removes followers that are too far behind from the ISRs. The
other stores the high watermarks: after a crash a replica starts with the stored one, and learns the rest.
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
    from headrace.broker.replicas.context import ReplicaContext

logger = getLogger(__name__)

_Job: TypeAlias = Coroutine[None, None, None]
_P = TypeVar("_P", LeaderAndIsrPartition, StoppedPartition)

#: The only replica selector that Headrace knows. The setting may name a class of this name in any package.
_RACK_AWARE = "RackAwareReplicaSelector"
#: How many partitions are changed before the event loop may run other tasks.
_PARTITIONS_PER_TURN = 32


class _DeadBrokers(Collection[int]):
    """All broker ids except those of the live brokers. The collection is infinite: only ``in`` works."""

    def __init__(self, live: Callable[[], Collection[int]]) -> None:
        self._live = live

    def __contains__(self, broker_id: object) -> bool:
        return broker_id not in self._live()

    def __iter__(self) -> Iterator[int]:
        raise TypeError("the collection is infinite")

    def __len__(self) -> int:
        raise TypeError("the collection is infinite")


class ReplicaManager:
    """All replicas of this broker: their roles, logs, fetchers, followers' sessions and periodic jobs."""

    def __init__(self, context: ReplicaContext) -> None:
        self._context = context
        runtime, metadata = context.runtime, context.metadata
        self.partitions = context.partitions
        self.throttles = Throttles(context.broker_id, context.config, runtime.clock)
        selector = context.config.optional_str("replica.selector.class") or ""
        self.sessions = FollowerSessions(runtime, self, has_replica_selector=selector.endswith(_RACK_AWARE))
        self.fetchers = Fetchers(context, self)
        self.logs = ReplicaLogs(context, self, self.throttles)
        self._isr_writes = IsrWrites(context.coordination, runtime.clock, runtime.timer, self.run_soon)
        self._dead_brokers = _DeadBrokers(lambda: metadata.nodes.keys())
        #: Changes of ISRs that were written, and those that were rejected.
        self.isr_shrinks: int = 0
        self.isr_expands: int = 0
        self.failed_isr_updates: int = 0
        #: Bytes of record batches that this broker received from leaders and sent to followers.
        self.bytes_in: int = 0
        self.bytes_out: int = 0
        self._one_at_a_time = asyncio.Lock()
        self._timers: dict[str, TimerTask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_handing_over = self._is_stopped = False

    # -- requests of the controller

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        """Makes partitions leaders or followers, or renews their epochs."""
        change_role = partial(self._change_role_or_code, request.topic_ids)
        return LeaderAndIsrResponse(*await self._carry_out(request, request.partitions, change_role))

    async def stop_replicas(self, request: StopReplica) -> StopReplicaResponse:
        return StopReplicaResponse(*await self._carry_out(request, request.partitions, self._stop_or_code))

    async def _carry_out(
        self, request: LeaderAndIsr | StopReplica, partitions: Iterable[_P], change: Callable[[_P], ErrorCode]
    ) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
        """Carries out one request after the other. Other tasks may run between two partitions. Returns the code of the
        request, and the code of each partition."""
        async with self._one_at_a_time:
            codes: dict[tuple[str, int], ErrorCode] = {}
            try:
                if isinstance(request, LeaderAndIsr):
                    self._context.fence.check(request.broker_epoch, request.controller_epoch)
                    await self.logs.read_settings({target.topic for target in request.partitions})
                for number, target in enumerate(partitions):
                    if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                        await asyncio.sleep(0)
                    self._context.fence.check(request.broker_epoch, request.controller_epoch)
                    codes[target.topic, target.partition] = change(target)
            except KafkaError as error:
                logger.info(
                    "a %s request of controller %d is rejected: %s",
                    type(request).__name__,
                    request.controller_id,
                    error,
                )
                return error.code, {}
            finally:
                self.fetchers.stop_idle()
            return ErrorCode.none, codes

    def _change_role_or_code(self, topic_ids: Mapping[str, UUID | None], target: LeaderAndIsrPartition) -> ErrorCode:
        try:
            topic_id = topic_ids.get(target.topic)
            partition = self.logs.hosted(target.topic, target.partition, topic_id, may_be_new=target.is_new)
            self._change_role(partition, target)
        except Exception as error:  # noqa: BLE001  becomes an error code; an unexpected error is logged there
            logger.warning("the role of %s-%d does not change: %s", target.topic, target.partition, error)
            return error_code_of(error)
        return ErrorCode.none

    def _change_role(self, partition: ReplicatedPartition, target: LeaderAndIsrPartition) -> None:
        leadership, replicas = target.leadership, target.assignment.replicas
        if leadership.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpoch(f"leader epoch {leadership.leader_epoch} is older than {partition.leader_epoch}")
        has_role = partition.leader is not None or partition.follower is not None
        if leadership.leader_epoch == partition.leader_epoch and (has_role or leadership.leader == NO_LEADER):
            return
        self.fetchers.remove(partition)
        partition.adding, partition.removing = target.assignment.adding, target.assignment.removing
        if leadership.leader == self._context.broker_id:
            partition.become_leader(leadership.to_state(), leadership.version, replicas, self._dead_brokers)
        else:
            partition.become_follower(leadership.leader, leadership.leader_epoch, replicas)
            if partition.follower is not None and not self._is_handing_over:
                self.fetchers.add(partition)
        self._context.on_leadership_changed(target.topic, target.partition, partition.is_leader)

    def _stop_or_code(self, target: StoppedPartition) -> ErrorCode:
        try:
            partition = self.partitions.get(target.topic, target.partition)
            if isinstance(partition, ReplicatedPartition):
                if 0 <= target.leader_epoch < partition.leader_epoch:
                    raise FencedLeaderEpoch(
                        f"leader epoch {target.leader_epoch} is older than {partition.leader_epoch}"
                    )
                self._stop(partition)
            if target.is_deleted:
                self.logs.delete(target.topic, target.partition)
        except Exception as error:  # noqa: BLE001  becomes an error code; an unexpected error is logged there
            logger.warning("%s-%d is not stopped: %s", target.topic, target.partition, error)
            return error_code_of(error)
        return ErrorCode.none

    def _stop(self, partition: ReplicatedPartition) -> None:
        self.fetchers.remove(partition)
        partition.stop()
        self._context.on_leadership_changed(*partition.key, False)

    # -- other events

    def begin_hand_over(self) -> None:
        """The leaderships of this broker are about to move to other brokers. This broker does not follow the new
        leaders: it would join their ISRs, and then stop."""
        self._is_handing_over = True

    def topic_configured(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic's own settings have changed: those of its logs, ``min.insync.replicas``, throttled replicas."""
        self.logs.configure(topic, overrides)

    def defaults_changed(self) -> None:
        """Broker settings that are defaults of topic settings have changed."""
        self.logs.defaults_changed()

    def brokers_changed(self) -> None:
        """Other brokers are alive than before."""
        self.fetchers.wake()
        for partition in self.replicated():
            partition.update_high_watermark()

    def log_dirs_failed(self) -> None:
        """A log dir went offline: stops its partitions and notifies the controller. Called on the event loop."""
        lost = [one for one in self.replicated() if one.log.log_dir.error is not None]
        for partition in lost:
            logger.error("%s-%d cannot be served: its log dir is offline", *partition.key)
            self.partitions.mark_offline(*partition.key)
            self._stop(partition)
        self.fetchers.stop_idle()
        if lost:
            self.run_soon(self._notify_of_lost_logs())

    async def _notify_of_lost_logs(self) -> None:
        failure = LogDirFailure(self._context.broker_id)
        try:
            await retried_changes.create_at_least_once(
                self._context.coordination, LOG_DIR_EVENT_PREFIX, failure.to_json()
            )
        except CoordinationError as error:
            # The session has ended. When this broker registers again, the controller sends LeaderAndIsr for all its
            # replicas, and the answers name the offline ones.
            logger.warning("the controller was not notified that a log dir is offline: %s", error)

    # -- lookups

    def replicated(self) -> Iterable[ReplicatedPartition]:
        return (one for one in self.partitions if isinstance(one, ReplicatedPartition))

    def topic_named(self, topic_id: UUID) -> str | None:
        """The name of a topic. LeaderAndIsr may name a topic before the metadata has it."""
        name = self.logs.topic_names.get(topic_id)
        if name is None and (known := self._context.metadata.get_by_id(topic_id)) is not None:
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

    # -- events of partitions (PartitionEvents)

    def high_watermark_moved(self, partition: ReplicatedPartition) -> None:
        purgatories, key = self._context.purgatories, partition.key
        purgatories.produce.check_and_complete(key)
        purgatories.fetch.check_and_complete(key)
        for reader in partition.follower_readers:
            reader.offsets_changed(at_once=self.sessions.has_replica_selector)

    def isr_change_requested(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        self._isr_writes.submit(partition, change)

    def isr_changed(self, partition: ReplicatedPartition, before: Collection[int]) -> None:
        if len(partition.require_leader().isr) < len(before):
            self.isr_shrinks += 1
        else:
            self.isr_expands += 1

    def isr_change_rejected(self, partition: ReplicatedPartition) -> None:  # noqa: ARG002  as in PartitionEvents
        self.failed_isr_updates += 1

    def role_changed(self, partition: ReplicatedPartition) -> None:
        purgatories, key = self._context.purgatories, partition.key
        purgatories.produce.check_and_complete(key)
        purgatories.fetch.check_and_complete(key)
        purgatories.delete_records.check_and_complete(key)

    def follower_fetched(self, partition: ReplicatedPartition) -> None:
        """The follower's log may begin at a later offset now, which DeleteRecords waits for."""
        waiting = self._context.purgatories.delete_records
        if waiting.delayed:
            waiting.check_and_complete(partition.key)

    # -- periodic jobs

    def start(self) -> None:
        config = self._context.config
        self._repeat("isr", lambda: max(1, config.int("replica.lag.time.max.ms") // 2), self._shrink_isrs)
        interval_name = "replica.high.watermark.checkpoint.interval.ms"
        self._repeat("checkpoint", lambda: config.int(interval_name), self.logs.checkpoint)

    def _repeat(self, name: str, interval_ms: Callable[[], int], job: Callable[[], _Job]) -> None:
        async def run() -> None:
            try:
                await job()
            except Exception:
                logger.exception("the periodic job %r of replicas failed; it runs again after its interval", name)
            schedule()

        def schedule() -> None:
            if not self._is_stopped:
                self._timers[name] = self._context.runtime.timer.schedule(interval_ms(), lambda: self.run_soon(run()))

        schedule()

    async def _shrink_isrs(self) -> None:
        self.sessions.close_abandoned()
        for number, partition in enumerate(self.replicated()):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            partition.shrink_isr()
            for reader in partition.follower_readers:
                reader.offsets_changed(at_once=False)  # retention may have moved the start of the log

    def run_soon(self, job: _Job) -> None:
        if self._is_stopped:
            job.close()
            return
        task = self._context.runtime.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        """Stops the fetchers and the jobs, and ends all waits. The broker closes the logs afterwards."""
        self._isr_writes.stop()
        for timer in self._timers.values():
            timer.cancel()
        self.sessions.close()
        self._is_stopped = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, *self.fetchers.stop(), return_exceptions=True)
