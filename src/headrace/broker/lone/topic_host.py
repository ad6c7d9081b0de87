"""Serves the topics of a lone broker: creates and deletes their logs, leads their partitions, keeps the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.topic import topic_log_config
from headrace.broker.metadata_cache import NO_LEADER, MetadataCache, PartitionInfo, TopicInfo
from headrace.controller.topic_rules import Topic
from headrace.log.config import LogConfig
from headrace.log.log_manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import StorageError
from headrace.replication.partition import Partition
from headrace.replication.partitions import Partitions

logger = getLogger(__name__)

#: How many folders are created before the event loop may run other tasks.
_FOLDERS_PER_TURN = 32


class TopicHost:
    """Implements ``lone.topics.TopicListener`` for the topics of one broker."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        logs: LogManager,
        partitions: Partitions,
        metadata: MetadataCache,
        *,
        on_log_deleted: Callable[[PartitionLog], object],
        on_topic_deleted: Callable[[str], object],
    ) -> None:
        """
        :param on_log_deleted: is called before a log is deleted.
        :param on_topic_deleted: is called with the name of each deleted topic.
        """
        self._broker_id = broker_id
        self._config = config
        self._logs = logs
        self._partitions = partitions
        self._metadata = metadata
        self._on_log_deleted = on_log_deleted
        self._on_topic_deleted = on_topic_deleted

    async def topic_changed(self, topic: Topic) -> None:
        log_config = topic_log_config(topic.configs, self._config)
        infos = []
        for index, (replicas, state) in enumerate(zip(topic.assignment, topic.states, strict=True)):
            leader_id = state.leader
            if self._broker_id in replicas and not self._lead(topic, index, state.leader_epoch, log_config):
                leader_id = NO_LEADER
            offline = () if leader_id != NO_LEADER else (self._broker_id,)
            infos.append(PartitionInfo(leader_id, state.leader_epoch, replicas, state.isr, offline))
            if index % _FOLDERS_PER_TURN == _FOLDERS_PER_TURN - 1:
                await asyncio.sleep(0)
        self._metadata.put(TopicInfo(topic.name, topic.topic_id, tuple(infos)))

    def lose_missing_logs(self, topic: Topic) -> None:
        """Marks the missing logs of an existing topic as lost. Called while a log dir is offline: a log that is in no
        other log dir is in that one, and must not be created again."""
        for index, replicas in enumerate(topic.assignment):
            if self._broker_id in replicas and self._logs.get(topic.name, index) is None:
                logger.error("partition %s-%d cannot be served: its log dir is offline", topic.name, index)
                self._partitions.mark_offline(topic.name, index)

    async def topic_deleted(self, topic: Topic) -> None:
        self._metadata.remove(topic.name)
        for index in range(len(topic.assignment)):
            self._partitions.remove(topic.name, index)
            log = self._logs.get(topic.name, index)
            if log is not None:
                self._on_log_deleted(log)
                self._logs.delete(topic.name, index)
        self._on_topic_deleted(topic.name)

    def _lead(self, topic: Topic, index: int, leader_epoch: int, log_config: LogConfig) -> bool:
        """Leads the partition. Returns False if its folder is on a disk that has failed."""
        partition = self._partitions.get(topic.name, index)
        if partition is not None:
            partition.log.config = log_config
            if partition.log.log_dir.error is not None:
                self._partitions.mark_offline(topic.name, index)
                return False
            return True
        if self._partitions.is_offline(topic.name, index):
            return False
        try:
            log = self._logs.get(topic.name, index) or self._create_log(topic, index, log_config)
        except StorageError as error:
            logger.error("partition %s-%d cannot be served: %s", topic.name, index, error)
            self._partitions.mark_offline(topic.name, index)
            return False
        log.config = log_config
        self._partitions.add(Partition(log, leader_epoch))
        return True

    def _create_log(self, topic: Topic, index: int, log_config: LogConfig) -> PartitionLog:
        while True:
            try:
                return self._logs.create(topic.name, index, topic.topic_id, log_config)
            except StorageError:
                if not self._logs.online:
                    raise
