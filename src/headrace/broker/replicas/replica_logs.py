"""Creates, configures and deletes the logs of this broker's replicas, and stores their high watermarks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headrace.broker.configs.registry import TOPIC_KEYS
from headrace.broker.configs.topic import topic_log_config
from headrace.broker.replicas.throttles import Throttles
from headrace.coordination.interface import CoordinationError
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import InconsistentTopicId, StorageError
from headrace.replication.leader import LeaderSettings
from headrace.replication.replicated_partition import PartitionEvents, ReplicatedPartition

if TYPE_CHECKING:
    from headrace.broker.replicas.context import ReplicaContext

logger = getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_READ_TIMEOUT_S = 5.0


class _TopicSettings(NamedTuple):
    overrides: Mapping[str, str]
    log: LogConfig
    leader: LeaderSettings


class ReplicaLogs:
    """The logs of all replicas, with the settings of their topics."""

    def __init__(self, context: ReplicaContext, events: PartitionEvents, throttles: Throttles) -> None:
        self._context = context
        self._events = events
        self._throttles = throttles
        self.topic_names: dict[UUID, str] = {}
        self._topics: dict[str, _TopicSettings] = {}
        #: Topics whose settings have to be read again before a further replica is created.
        self._outdated: set[str] = set()
        #: The high watermarks that were stored last.
        self._stored: dict[tuple[str, int], int] = {}

    # -- settings

    async def read_settings(self, topics: Iterable[str]) -> None:
        """Reads the settings of topics that are new on this broker."""
        missing = [topic for topic in topics if topic not in self._topics or topic in self._outdated]
        if not missing:
            return
        found = await asyncio.gather(*map(self._read_settings, missing))
        for topic, overrides in zip(missing, found, strict=True):
            if topic not in self._topics or topic in self._outdated:  # otherwise a change has come meanwhile
                self._set_settings(topic, overrides)

    async def _read_settings(self, topic: str) -> Mapping[str, str]:
        """A change of role must not wait for a tree that does not answer. When the tree answers again, all settings are
        read again."""
        configs = self._context.configs
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                return await configs.read_new_topic(topic)
        except (CoordinationError, TimeoutError) as error:
            logger.warning("the settings of topic %s cannot be read now: %r", topic, error)
            configs.read_again()
            return configs.of_topic(topic)

    def topic_deleted(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._outdated.discard(topic)

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        self._set_settings(topic, overrides)
        self._apply([topic])

    def defaults_changed(self) -> None:
        for topic, settings in list(self._topics.items()):
            self._set_settings(topic, settings.overrides)
        self._apply(self._topics)

    def _set_settings(self, topic: str, overrides: Mapping[str, str]) -> None:
        config = self._context.config
        min_isr = TOPIC_KEYS[_MIN_ISR].parse(overrides[_MIN_ISR]) if _MIN_ISR in overrides else config.int(_MIN_ISR)
        assert isinstance(min_isr, int)
        self._topics[topic] = _TopicSettings(
            overrides,
            topic_log_config(overrides, config),
            LeaderSettings(min_isr, config.int("replica.lag.time.max.ms")),
        )
        self._outdated.discard(topic)
        self._throttles.configure(topic, overrides)

    def _apply(self, topics: Collection[str]) -> None:
        for partition in self._context.partitions:
            if partition.log.topic in topics and isinstance(partition, ReplicatedPartition):
                settings = self._topics[partition.log.topic]
                partition.log.config = settings.log
                partition.configure(settings.leader)

    # -- logs

    def hosted(self, topic: str, index: int, topic_id: UUID | None, *, may_be_new: bool) -> ReplicatedPartition:
        """The partition with its log, which is created if it does not exist.

        :param may_be_new: whether the controller says that the replica is new.
        :raises InconsistentTopicId: if the log belongs to another topic of the same name.
        :raises StorageError: if the log is on a disk that has failed.
        """
        partitions = self._context.partitions
        partition = partitions.get(topic, index)
        if partition is None:
            if partitions.is_offline(topic, index):
                raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
            log = self._log_of(topic, index, topic_id, may_be_new=may_be_new)
            settings = self._topics[topic]
            log.config = settings.log
            partition = ReplicatedPartition(
                log,
                self._context.broker_id,
                self._context.runtime.clock,
                self._events,
                topic_id=topic_id,
                settings=settings.leader,
            )
            partitions.add(partition)
            if topic_id is not None:
                self.topic_names[topic_id] = topic
        assert isinstance(partition, ReplicatedPartition)
        if partition.log.log_dir.error is not None:
            raise partition.log.log_dir.offline_error()
        _check_topic_id(partition.topic_id, topic_id, partition.log)
        return partition

    def _log_of(self, topic: str, index: int, topic_id: UUID | None, *, may_be_new: bool) -> PartitionLog:
        logs = self._context.logs
        log = logs.get(topic, index)
        if log is not None:
            _check_topic_id(log.topic_id, topic_id, log)
            return log
        if logs.offline and not may_be_new:
            self._context.partitions.mark_offline(topic, index)
            raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
        while True:
            try:
                return logs.create(topic, index, topic_id, self._topics[topic].log)
            except StorageError:
                if not logs.online:
                    raise

    def delete(self, topic: str, index: int) -> None:
        """
        :raises StorageError: if the log is on a disk that has failed.
        """
        context = self._context
        if context.partitions.is_offline(topic, index):
            raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
        partition = context.partitions.get(topic, index)
        context.partitions.remove(topic, index)
        # A new topic of this name may have other settings. Other replicas of this topic may stay and need the old ones.
        self._outdated.add(topic)
        self._stored.pop((topic, index), None)
        if isinstance(partition, ReplicatedPartition) and partition.topic_id is not None and index == 0:
            self.topic_names.pop(partition.topic_id, None)
        log = context.logs.get(topic, index)
        if log is not None:
            context.on_log_deleted(log)
            context.logs.delete(topic, index)

    # -- high watermarks

    async def checkpoint(self) -> None:
        """Stores the high watermarks, if any has moved."""
        logs = self._context.logs
        now = {(log.topic, log.partition): log.high_watermark for log in logs.all()}
        if now != self._stored:
            self._stored = now
            await self._context.runtime.run_blocking(logs.checkpoint_high_watermarks)


def _check_topic_id(ours: UUID | None, theirs: UUID | None, log: PartitionLog) -> None:
    if ours is not None and theirs is not None and ours != theirs:
        raise InconsistentTopicId(f"{log.topic}-{log.partition} belongs to topic id {ours} here, not to {theirs}")
