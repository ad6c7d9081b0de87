"""Topics and their partitions: make, delete, list, describe, widen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from headrace.client.admin.base import AdminBase, outcome
from headrace.client.admin.configs import config_text
from headrace.client.admin.types import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    Results,
    TopicDescription,
    TopicListing,
)
from headrace.client.errors import (
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    TopicExists,
    UnknownTopic,
    UnsupportedByBroker,
)
from headrace.client.metadata import Metadata
from headrace.protocol.api import Api

#: How many partitions a broker describes in one answer.
_PAGE_PARTITIONS = 2000
#: What the controller has done, brokers know within milliseconds.
_SOON_MS = 5


class TopicsAdmin(AdminBase):
    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        wait: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Makes topics; a bare name takes the broker's defaults.

        :param validate_only: only says whether they could be made.
        :param wait: returns when the topics can be used, not only when the controller has made them.
        """
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        deadline = self._deadline(timeout_ms)
        answer = await self._ask_controller(
            Api.CREATE_TOPICS,
            timeout_ms,
            lambda answer: _controller_codes(answer.topics),
            topics=[_creatable(topic) for topic in wanted],
            timeout=self._broker_timeout_ms(timeout_ms),
            validate_only=validate_only,
        )
        results: Results[str, CreatedTopic] = Results(
            (topic.name, outcome(topic.error_code, _created(topic), f"the topic {topic.name!r}", topic.error_message))
            for topic in answer.topics
        )
        if wait and not validate_only:
            await self._settle(list(results.ok), are_there=True, timeout_ms=deadline.left_ms())
        return results

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, object] | None = None,
        assignments: Mapping[int, Sequence[int]] | None = None,
        exist_ok: bool = False,
        timeout_ms: float | None = None,
    ) -> CreatedTopic | None:
        """Makes a topic; None if it is there already and that is ``exist_ok``.

        :raises TopicExists: if it is there already.
        """
        topic = NewTopic(name, num_partitions, replication_factor, configs or {}, assignments or {})
        try:
            return (await self.create_topics([topic], timeout_ms=timeout_ms)).value(name)
        except TopicExists:
            if exist_ok:
                return None
            raise

    async def delete_topics(
        self, topics: Iterable[str | UUID], *, wait: bool = True, timeout_ms: float | None = None
    ) -> Results[str | UUID, None]:
        """Deletes topics, by name or by id, with all their records.

        :param wait: returns when they are gone from the metadata, not only from the controller's.
        """
        wanted = list(topics)
        deadline = self._deadline(timeout_ms)
        answer = await self._ask_controller(
            Api.DELETE_TOPICS,
            timeout_ms,
            lambda answer: _controller_codes(answer.responses),
            topics=[_deletable(topic) for topic in wanted],  # since v6
            topic_names=[topic for topic in wanted if isinstance(topic, str)],
            timeout=self._broker_timeout_ms(timeout_ms),
        )
        too_old = UnsupportedByBroker(message="the broker deletes topics by name only")
        results: Results[str | UUID, None] = Results(dict.fromkeys(wanted, too_old))
        for topic in answer.responses:
            topic_id = getattr(topic, "topic_id", None)
            key = topic_id if topic_id in wanted else topic.name
            said = getattr(topic, "error_message", None)
            results[key] = outcome(topic.error_code, None, f"the topic {key!r}", said)
        names = [topic for topic in results.ok if isinstance(topic, str)]
        if wait:
            await self._settle(names, are_there=False, timeout_ms=deadline.left_ms())
        return results

    async def delete_topic(self, topic: str | UUID, *, timeout_ms: float | None = None) -> None:
        """
        :raises UnknownTopic: if there is none.
        """
        (await self.delete_topics([topic], timeout_ms=timeout_ms)).value(topic)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> dict[str, TopicListing]:
        """The topics that this client may see, by name."""
        await self._cluster.refresh(all_topics=True, timeout_ms=timeout_ms)
        known = sorted(self._cluster.metadata.topics.values())
        return {
            topic.name: TopicListing(topic.name, topic.id, topic.is_internal)
            for topic in known
            if include_internal or not topic.is_internal
        }

    async def describe_topics(
        self, topics: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, TopicDescription]:
        names = sorted(set(topics))
        deadline = self._deadline(timeout_ms)
        connection = await self._cluster.connection(timeout_ms=deadline.left_ms())
        if Api.DESCRIBE_TOPIC_PARTITIONS not in connection.versions:
            found = await self._metadata_of(names, deadline.left_ms())
        else:
            found = await self._pages_of(names, deadline.left_ms())
        return Results((name, found.get(name) or UnknownTopic(message=f"there is no topic {name!r}")) for name in names)

    async def describe_topic(self, topic: str, *, timeout_ms: float | None = None) -> TopicDescription:
        """
        :raises UnknownTopic: if there is none.
        """
        return (await self.describe_topics([topic], timeout_ms=timeout_ms)).value(topic)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Gives topics more partitions.

        :param counts: how many each topic is to have in all.
        :param assignments: of a topic, the broker ids of each new partition.
        """
        chosen = {
            topic: [{"broker_ids": list(broker_ids)} for broker_ids in partitions]
            for topic, partitions in (assignments or {}).items()
        }
        answer = await self._ask_controller(
            Api.CREATE_PARTITIONS,
            timeout_ms,
            lambda answer: _controller_codes(answer.results),
            topics=[{"name": name, "count": count, "assignments": chosen.get(name)} for name, count in counts.items()],
            timeout=self._broker_timeout_ms(timeout_ms),
            validate_only=validate_only,
        )
        self._cluster.invalidate()
        return Results(
            (topic.name, outcome(topic.error_code, None, f"the topic {topic.name!r}", topic.error_message))
            for topic in answer.results
        )

    # -- how

    async def _settle(self, topics: list[str], *, are_there: bool, timeout_ms: float) -> None:
        """Waits until the metadata has what the controller has done. When the time is up, that is no failure: it is
        done, and will be seen."""
        deadline = self._deadline(timeout_ms)
        waiting, attempts = topics, 0
        while waiting and not deadline.has_passed():
            try:
                await self._cluster.refresh(waiting, timeout_ms=deadline.left_ms())
            except (BrokerUnreachable, KafkaTimeout):
                break
            metadata = self._cluster.metadata
            is_settled = _is_led if are_there else _is_gone
            waiting = [name for name in waiting if not is_settled(metadata, name)]
            attempts += 1
            if waiting:
                await asyncio.sleep(min(self._backoff.delay_ms(attempts), _SOON_MS * attempts) / 1000)
        self._cluster.metadata.forget(topics)  # else each later refresh would ask for them

    async def _metadata_of(self, names: list[str], timeout_ms: float) -> dict[str, TopicDescription | HeadraceError]:
        answer = await self._cluster.ask_any(
            Api.METADATA,
            timeout_ms=timeout_ms,
            topics=[{"name": name, "topic_id": None} for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return {topic.name: _description(topic, topic.partitions) for topic in answer.topics}

    async def _pages_of(self, names: list[str], timeout_ms: float) -> dict[str, TopicDescription | HeadraceError]:
        """Descriptions a page at a time; a topic with many partitions may lie on several."""
        deadline = self._deadline(timeout_ms)
        topics: dict[str, Any] = {}
        partitions: dict[str, list[Any]] = {}
        cursor = None
        while names:
            answer = await self._cluster.ask_any(
                Api.DESCRIBE_TOPIC_PARTITIONS,
                timeout_ms=deadline.left_ms(),
                topics=[{"name": name} for name in names],
                response_partition_limit=_PAGE_PARTITIONS,
                cursor=cursor,
            )
            for topic in answer.topics:
                topics[topic.name] = topic
                partitions.setdefault(topic.name, []).extend(topic.partitions)
            if answer.next_cursor is None:
                break
            at = answer.next_cursor
            cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}
            names = [name for name in names if name >= at.topic_name]
        return {name: _description(topic, partitions[name]) for name, topic in topics.items()}


def _creatable(topic: NewTopic) -> dict[str, object]:
    assigned = [
        {"partition_index": index, "broker_ids": list(broker_ids)} for index, broker_ids in topic.assignments.items()
    ]
    return {
        "name": topic.name,
        "num_partitions": -1 if assigned else topic.num_partitions,
        "replication_factor": -1 if assigned else topic.replication_factor,
        "assignments": assigned,
        "configs": [{"name": name, "value": config_text(value)} for name, value in topic.configs.items()],
    }


def _created(topic: Any) -> CreatedTopic:
    return CreatedTopic(
        topic.name,
        getattr(topic, "topic_id", None),
        int(getattr(topic, "num_partitions", -1)),
        int(getattr(topic, "replication_factor", -1)),
        {config.name: config.value for config in getattr(topic, "configs", None) or ()},
    )


def _deletable(topic: str | UUID) -> dict[str, object]:
    return {"name": None, "topic_id": topic} if isinstance(topic, UUID) else {"name": topic, "topic_id": None}


def _controller_codes(items: Iterable[Any]) -> list[ErrorCode]:
    """The one code of an item that makes the whole request worth another try, at another broker."""
    return [item.error_code for item in items if item.error_code is ErrorCode.not_controller]


def _is_led(metadata: Metadata, topic: str) -> bool:
    partitions = metadata.partitions(topic)
    return bool(partitions) and all(partition.leader_id >= 0 for partition in partitions)


def _is_gone(metadata: Metadata, topic: str) -> bool:
    known = metadata.topics.get(topic)
    return known is None or known.error is ErrorCode.unknown_topic_or_partition


def _description(topic: Any, partitions: Iterable[Any]) -> TopicDescription | HeadraceError:
    topic_id = getattr(topic, "topic_id", None)
    description = TopicDescription(
        topic.name,
        topic_id if topic_id is not None and topic_id.int else None,
        bool(getattr(topic, "is_internal", False)),
        tuple(sorted(map(_partition, partitions))),
    )
    if topic.error_code is ErrorCode.unknown_topic_or_partition:
        return UnknownTopic(message=f"there is no topic {topic.name!r}")
    return outcome(topic.error_code, description, f"the topic {topic.name!r}")


def _partition(partition: Any) -> PartitionDescription:
    eligible = getattr(partition, "eligible_leader_replicas", None)
    last_known = getattr(partition, "last_known_elr", None)
    return PartitionDescription(
        int(partition.partition_index),
        int(partition.leader_id),
        int(getattr(partition, "leader_epoch", -1)),
        tuple(map(int, partition.replica_nodes)),
        tuple(map(int, partition.isr_nodes)),
        tuple(map(int, getattr(partition, "offline_replicas", ()))),
        None if eligible is None else tuple(map(int, eligible)),
        None if last_known is None else tuple(map(int, last_known)),
    )
