"""Creates, deletes, lists and describes topics, and adds partitions to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from headrace.client.admin.configs import config_text
from headrace.client.admin.quota_retries import ask_within_quota
from headrace.client.admin.requests import AdminRequests, outcome
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

#: The most partitions that a broker describes in one answer.
_PAGE_PARTITIONS = 2000
#: The brokers learn of the controller's changes within milliseconds, so the first checks come soon.
_SOON_MS = 5


class TopicsAdmin:
    """The topics of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        validate_only: bool = False,
        wait: bool = True,
        retry_on_quota_violation: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[str, CreatedTopic]:
        """Creates topics. A name alone creates a topic with the broker's defaults.

        :param validate_only: only checks whether the topics could be created.
        :param wait: waits until the topics can be used, and not only until the controller has created them.
        :param retry_on_quota_violation: a topic that the quota ``controller_mutation_rate`` refuses is sent again after
            the time that the broker asks for. False returns :class:`QuotaExceeded` for it (KIP-599).
        """
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        deadline = self._requests.deadline(timeout_ms)

        async def ask(names: list[str], left_ms: float) -> tuple[Any, dict[str, CreatedTopic | HeadraceError]]:
            answer = await self._requests.ask_controller(
                Api.CREATE_TOPICS,
                left_ms,
                lambda answer: _controller_codes(answer.topics),
                topics=[_creatable(topic) for topic in wanted if topic.name in names],
                timeout=self._requests.broker_timeout_ms(left_ms),
                validate_only=validate_only,
            )
            return answer, {
                topic.name: outcome(topic.error_code, _created(topic), f"the topic {topic.name!r}", topic.error_message)
                for topic in answer.topics
            }

        names = dict.fromkeys(topic.name for topic in wanted)
        results = Results(
            await ask_within_quota(self._requests, names, ask, deadline, retries=retry_on_quota_violation)
        )
        if wait and not validate_only:
            await self._wait_for_metadata(list(results.ok), exist=True, timeout_ms=deadline.left_ms())
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
        """Creates a topic.

        :param exist_ok: returns None if the topic exists already, instead of raising an error.
        :raises TopicExists: if the topic exists already.
        """
        topic = NewTopic(name, num_partitions, replication_factor, configs or {}, assignments or {})
        try:
            return (await self.create_topics([topic], timeout_ms=timeout_ms)).value(name)
        except TopicExists:
            if exist_ok:
                return None
            raise

    async def delete_topics(
        self,
        topics: Iterable[str | UUID],
        *,
        wait: bool = True,
        retry_on_quota_violation: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[str | UUID, None]:
        """Deletes topics, by name or by id, with all their records.

        :param wait: waits until the brokers' metadata no longer has the topics.
        :param retry_on_quota_violation: see :meth:`create_topics`.
        """
        deadline = self._requests.deadline(timeout_ms)

        async def ask(wanted: list[str | UUID], left_ms: float) -> tuple[Any, dict[str | UUID, HeadraceError | None]]:
            answer = await self._requests.ask_controller(
                Api.DELETE_TOPICS,
                left_ms,
                lambda answer: _controller_codes(answer.responses),
                topics=[_deletable(topic) for topic in wanted],  # Since v6.
                topic_names=[topic for topic in wanted if isinstance(topic, str)],
                timeout=self._requests.broker_timeout_ms(left_ms),
            )
            return answer, _deleted(answer, wanted)

        results = Results(
            await ask_within_quota(self._requests, list(topics), ask, deadline, retries=retry_on_quota_violation)
        )
        names = [topic for topic in results.ok if isinstance(topic, str)]
        if wait:
            await self._wait_for_metadata(names, exist=False, timeout_ms=deadline.left_ms())
        return results

    async def delete_topic(self, topic: str | UUID, *, timeout_ms: float | None = None) -> None:
        """Deletes a topic, by name or by id, with all its records.

        :raises UnknownTopic: if the topic does not exist.
        """
        (await self.delete_topics([topic], timeout_ms=timeout_ms)).value(topic)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> dict[str, TopicListing]:
        """Returns the topics that this client may see, by name."""
        await self._requests.cluster.refresh(all_topics=True, timeout_ms=timeout_ms)
        known = sorted(self._requests.cluster.metadata.topics.values())
        return {
            topic.name: TopicListing(topic.name, topic.id, topic.is_internal)
            for topic in known
            if include_internal or not topic.is_internal
        }

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> Results[str, TopicDescription]:
        """Describes topics: their partitions, leaders and replicas.

        :param topics: the names. Without them, all topics that this client may see, internal ones too.
        """
        deadline = self._requests.deadline(timeout_ms)
        if topics is None:
            return Results(sorted((await self._metadata_of(None, deadline.left_ms())).items()))
        names = sorted(set(topics))
        connection = await self._requests.cluster.connection(timeout_ms=deadline.left_ms())
        if Api.DESCRIBE_TOPIC_PARTITIONS not in connection.versions:
            found = await self._metadata_of(names, deadline.left_ms())
        else:
            found = await self._pages_of(names, deadline.left_ms())
        return Results((name, found.get(name) or UnknownTopic(message=f"there is no topic {name!r}")) for name in names)

    async def describe_topic(self, topic: str, *, timeout_ms: float | None = None) -> TopicDescription:
        """Describes one topic.

        :raises UnknownTopic: if the topic does not exist.
        """
        return (await self.describe_topics([topic], timeout_ms=timeout_ms)).value(topic)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        retry_on_quota_violation: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Adds partitions to topics.

        :param counts: the new total number of partitions, by topic.
        :param assignments: the broker ids of each new partition, by topic.
        :param retry_on_quota_violation: see :meth:`create_topics`.
        """
        deadline = self._requests.deadline(timeout_ms)
        chosen = {
            topic: [{"broker_ids": list(broker_ids)} for broker_ids in partitions]
            for topic, partitions in (assignments or {}).items()
        }

        async def ask(names: list[str], left_ms: float) -> tuple[Any, dict[str, HeadraceError | None]]:
            answer = await self._requests.ask_controller(
                Api.CREATE_PARTITIONS,
                left_ms,
                lambda answer: _controller_codes(answer.results),
                topics=[{"name": name, "count": counts[name], "assignments": chosen.get(name)} for name in names],
                timeout=self._requests.broker_timeout_ms(left_ms),
                validate_only=validate_only,
            )
            return answer, {
                topic.name: outcome(topic.error_code, None, f"the topic {topic.name!r}", topic.error_message)
                for topic in answer.results
            }

        results = await ask_within_quota(self._requests, counts, ask, deadline, retries=retry_on_quota_violation)
        self._requests.cluster.invalidate()
        return Results(results)

    # -- details

    async def _wait_for_metadata(self, topics: list[str], *, exist: bool, timeout_ms: float) -> None:
        """Waits until the metadata shows what the controller has done.

        A timeout is not an error: the change is made, and the metadata will show it later.
        """
        deadline = self._requests.deadline(timeout_ms)
        waiting, attempts = topics, 0
        while waiting and not deadline.has_passed():
            try:
                await self._requests.cluster.refresh(waiting, timeout_ms=deadline.left_ms())
            except (BrokerUnreachable, KafkaTimeout):
                break
            metadata = self._requests.cluster.metadata
            is_settled = _has_leaders if exist else _is_deleted
            waiting = [name for name in waiting if not is_settled(metadata, name)]
            attempts += 1
            if waiting:
                await asyncio.sleep(min(self._requests.backoff.delay_ms(attempts), _SOON_MS * attempts) / 1000)
        self._requests.cluster.metadata.forget(topics)  # Otherwise each later refresh would ask for them.

    async def _metadata_of(
        self, names: list[str] | None, timeout_ms: float
    ) -> dict[str, TopicDescription | HeadraceError]:
        answer = await self._requests.cluster.ask_any(
            Api.METADATA,
            timeout_ms=timeout_ms,
            topics=None if names is None else [{"name": name, "topic_id": None} for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        return {topic.name: _description(topic, topic.partitions) for topic in answer.topics}

    async def _pages_of(self, names: list[str], timeout_ms: float) -> dict[str, TopicDescription | HeadraceError]:
        """Asks for the descriptions in pages. A topic with many partitions may be on several pages."""
        deadline = self._requests.deadline(timeout_ms)
        topics: dict[str, Any] = {}
        partitions: dict[str, list[Any]] = {}
        cursor = None
        while names:
            answer = await self._requests.cluster.ask_any(
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


def _deleted(answer: Any, wanted: list[str | UUID]) -> dict[str | UUID, HeadraceError | None]:
    too_old = UnsupportedByBroker(message="the broker is too old to delete a topic by its id; use the name")
    results: dict[str | UUID, HeadraceError | None] = dict.fromkeys(wanted, too_old)
    for topic in answer.responses:
        topic_id = getattr(topic, "topic_id", None)
        key = topic_id if topic_id in wanted else topic.name
        said = getattr(topic, "error_message", None)
        results[key] = outcome(topic.error_code, None, f"the topic {key!r}", said)
    return results


def _controller_codes(items: Iterable[Any]) -> list[ErrorCode]:
    """Returns the code after which the whole request is sent again, to another broker."""
    return [item.error_code for item in items if item.error_code is ErrorCode.not_controller]


def _has_leaders(metadata: Metadata, topic: str) -> bool:
    partitions = metadata.partitions(topic)
    return bool(partitions) and all(partition.leader_id >= 0 for partition in partitions)


def _is_deleted(metadata: Metadata, topic: str) -> bool:
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
