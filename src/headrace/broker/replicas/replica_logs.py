"""The logs of this broker's replicas: made, found, configured and deleted as the controller and the tree say."""

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
    from headrace.broker.broker import Broker
    from headrace.broker.cluster.config_changes import ConfigChanges

logger = getLogger(__name__)

_MIN_ISR = "min.insync.replicas"
_READ_TIMEOUT_S = 5.0


class _TopicSettings(NamedTuple):
    overrides: Mapping[str, str]
    log: LogConfig
    leader: LeaderSettings


class ReplicaLogs:
    def __init__(self, broker: Broker, events: PartitionEvents, throttles: Throttles) -> None:
        self._broker = broker
        self._events = events
        self._throttles = throttles
        self.topic_names: dict[UUID, str] = {}
        self._topics: dict[str, _TopicSettings] = {}
        #: Topics whose settings are to be read again before there are more replicas of them.
        self._doubted: set[str] = set()
        self._checkpointed: dict[tuple[str, int], int] = {}

    # -- settings

    async def learn(self, topics: Iterable[str]) -> None:
        """Reads the settings of topics that are new here."""
        configs = None if self._broker.cluster is None else self._broker.cluster.configs
        missing = [topic for topic in topics if topic not in self._topics or topic in self._doubted]
        if configs is None or not missing:
            return
        found = await asyncio.gather(*(_read_settings(configs, topic) for topic in missing))
        for topic, overrides in zip(missing, found, strict=True):
            if topic not in self._topics or topic in self._doubted:  # else a change has come meanwhile
                self._settle(topic, overrides)

    def forget(self, topic: str) -> None:
        """It is deleted."""
        self._topics.pop(topic, None)
        self._doubted.discard(topic)

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        self._settle(topic, overrides)
        self._apply([topic])

    def defaults_changed(self) -> None:
        for topic, settings in list(self._topics.items()):
            self._settle(topic, settings.overrides)
        self._apply(self._topics)

    def _settle(self, topic: str, overrides: Mapping[str, str]) -> None:
        config = self._broker.config
        min_isr = TOPIC_KEYS[_MIN_ISR].parse(overrides[_MIN_ISR]) if _MIN_ISR in overrides else config.int(_MIN_ISR)
        assert isinstance(min_isr, int)
        self._topics[topic] = _TopicSettings(
            overrides,
            topic_log_config(overrides, config),
            LeaderSettings(min_isr, config.int("replica.lag.time.max.ms")),
        )
        self._doubted.discard(topic)
        self._throttles.configure(topic, overrides)

    def _apply(self, topics: Collection[str]) -> None:
        for partition in self._broker.partitions:
            if partition.log.topic in topics and isinstance(partition, ReplicatedPartition):
                settings = self._topics[partition.log.topic]
                partition.log.config = settings.log
                partition.configure(settings.leader)

    # -- logs

    def hosted(self, topic: str, index: int, topic_id: UUID | None, *, may_be_new: bool) -> ReplicatedPartition:
        """The partition with its log, which is made if it is not there.

        :raises InconsistentTopicId: if there is one, of another topic with that name.
        :raises StorageError: if it is on a disk that does not work.
        """
        partitions = self._broker.partitions
        partition = partitions.get(topic, index)
        if partition is None:
            if partitions.is_lost(topic, index):
                raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
            log = self._log_of(topic, index, topic_id, may_be_new=may_be_new)
            settings = self._topics[topic]
            log.config = settings.log
            partition = ReplicatedPartition(
                log,
                self._broker.broker_id,
                self._broker.clock,
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
        logs = self._broker.logs
        log = logs.get(topic, index)
        if log is not None:
            _check_topic_id(log.topic_id, topic_id, log)
            return log
        if logs.offline and not may_be_new:
            self._broker.partitions.lose(topic, index)
            raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
        while True:
            try:
                return logs.create(topic, index, topic_id, self._topics[topic].log)
            except StorageError:
                if not logs.online:
                    raise

    def delete(self, topic: str, index: int) -> None:
        """
        :raises StorageError: if it is on a disk that does not work.
        """
        broker = self._broker
        if broker.partitions.is_lost(topic, index):
            raise StorageError(f"the log of {topic}-{index} is on a log dir that is offline")
        partition = broker.partitions.get(topic, index)
        broker.partitions.remove(topic, index)
        # Another topic of that name may have other settings. Other replicas of this one may stay here, and need them.
        self._doubted.add(topic)
        self._checkpointed.pop((topic, index), None)
        if isinstance(partition, ReplicatedPartition) and partition.topic_id is not None and index == 0:
            self.topic_names.pop(partition.topic_id, None)
        log = broker.logs.get(topic, index)
        if log is not None:
            broker.forget_log(log)
            broker.logs.delete(topic, index)

    # -- high watermarks

    async def checkpoint(self) -> None:
        """Writes down the high watermarks, if any has moved."""
        now = {(log.topic, log.partition): log.high_watermark for log in self._broker.logs.all()}
        if now != self._checkpointed:
            self._checkpointed = now
            await self._broker.run_blocking(self._broker.logs.checkpoint_high_watermarks)


async def _read_settings(configs: ConfigChanges, topic: str) -> Mapping[str, str]:
    """A role must not wait for a tree that does not answer: when it does, all settings are read again."""
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await configs.learn(topic)
    except (CoordinationError, TimeoutError) as error:
        logger.warning("the settings of topic %s cannot be read now: %r", topic, error)
        configs.read_again()
        return configs.of_topic(topic)


def _check_topic_id(ours: UUID | None, theirs: UUID | None, log: PartitionLog) -> None:
    if ours is not None and theirs is not None and ours != theirs:
        raise InconsistentTopicId(f"{log.topic}-{log.partition} is here of topic {ours}, not of {theirs}")
