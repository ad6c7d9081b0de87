"""Loads the topics of a lone broker when it starts, and adopts the logs of data folders without a znode tree.

Data folders without a tree are those of an Apache Kafka, or of a broker whose tree was lost. Their topics are adopted:
each partition's folder names its topic and the topic's id. If the tree is not new, a folder whose topic is not in the
tree is the rest of a deletion that a crash has interrupted. It is renamed to ``-stray``, as Kafka does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.lone.registration import FIRST_CONTROLLER_EPOCH
from headrace.controller.topic_rules import Topic
from headrace.coordination.znodes import PartitionState, random_uuid

if TYPE_CHECKING:
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.lone.topic_host import TopicHost
    from headrace.broker.lone.topics import LoneTopics
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partitions import Partitions
    from headrace.runtime.clock import Clock

logger = getLogger(__name__)


class TopicAdoption:
    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        partitions: Partitions,
        clock: Clock,
        topics: LoneTopics,
        host: TopicHost,
        producer_ids: ProducerIds,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._partitions = partitions
        self._clock = clock
        self._topics = topics
        self._host = host
        self._producer_ids = producer_ids

    async def load_topics(self, *, is_new_tree: bool) -> None:
        for topic in await self._topics.load():
            if self._logs.offline:
                self._host.lose_missing_logs(topic)
            await self._host.topic_changed(topic)
        adopted: list[PartitionLog] = []
        for name, logs in self._logs_without_topic().items():
            if is_new_tree and sorted(logs) == list(range(len(logs))):
                await self._adopt(name, logs)
                adopted += logs.values()
            else:
                for index in logs:
                    logger.warning("%s-%d belongs to no topic; its folder is renamed to -stray", name, index)
                    self._logs.set_aside(name, index)
        if adopted:
            from headrace.broker.lone.adopted_producers import largest_producer_id

            largest = largest_producer_id(self._partitions, self._clock, adopted)
            await self._producer_ids.begin_above(largest)

    def _logs_without_topic(self) -> Mapping[str, dict[int, PartitionLog]]:
        found: dict[str, dict[int, PartitionLog]] = defaultdict(dict)
        for log in list(self._logs.all()):
            if self._partitions.get(log.topic, log.partition) is None:
                found[log.topic][log.partition] = log
        return found

    async def _adopt(self, name: str, logs: Mapping[int, PartitionLog]) -> None:
        logger.info("adopting topic %s with %d partitions from its folders", name, len(logs))
        replicas = (self._broker_id,)
        topic = Topic(
            name,
            logs[0].topic_id or random_uuid(),
            tuple(replicas for _ in logs),
            tuple(
                PartitionState(replicas[0], max(0, logs[index].latest_epoch), replicas, FIRST_CONTROLLER_EPOCH)
                for index in range(len(logs))
            ),
            {},
        )
        await self._topics.write(topic)
