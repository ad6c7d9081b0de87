"""Describes the cluster and its brokers, elects leaders, and moves replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.client.admin.requests import AdminRequests, AskedBroker, BrokerIds, by_topic, outcome, raise_for
from headrace.client.admin.types import (
    BrokerVersions,
    ClusterDescription,
    ElectionKind,
    Features,
    LogDir,
    Reassignment,
    ReplicaSize,
    Results,
    TopicPartitionReplica,
    VersionRange,
)
from headrace.client.errors import ErrorCode, HeadraceError, error_for
from headrace.client.retry import Deadline
from headrace.client.types import Node, TopicPartition
from headrace.protocol.api import Api

_ELECTIONS: dict[ElectionKind, int] = {"preferred": 0, "unclean": 1}


class ClusterAdmin:
    """The brokers, leaders and replicas of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """Describes the brokers of the cluster."""
        answer = await self._requests.cluster.ask_any(
            Api.DESCRIBE_CLUSTER,
            timeout_ms=timeout_ms,
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=include_fenced_brokers,
        )
        raise_for(answer.error_code, "the cluster", answer.error_message)
        brokers = {
            int(broker.broker_id): Node(int(broker.broker_id), broker.host, int(broker.port), broker.rack)
            for broker in answer.brokers
        }
        return ClusterDescription(
            answer.cluster_id,
            brokers.get(int(answer.controller_id)),
            tuple(brokers[broker_id] for broker_id in sorted(brokers)),
            frozenset(int(broker.broker_id) for broker in answer.brokers if getattr(broker, "is_fenced", False)),
        )

    async def describe_features(self, *, timeout_ms: float | None = None) -> Features:
        """Returns the features that the brokers support, and those that the cluster has finalized."""
        answer = await self._requests.cluster.ask_any(
            Api.API_VERSIONS,
            timeout_ms=timeout_ms,
            client_software_name="headrace",
            client_software_version="0.1.0",
        )
        raise_for(answer.error_code, "the features")
        epoch = int(getattr(answer, "finalized_features_epoch", -1))
        return Features(
            {
                feature.name: VersionRange(int(feature.min_version), int(feature.max_version))
                for feature in getattr(answer, "supported_features", ())
            },
            {
                feature.name: VersionRange(int(feature.min_version_level), int(feature.max_version_level))
                for feature in getattr(answer, "finalized_features", ())
            },
            None if epoch < 0 else epoch,
        )

    async def api_versions(
        self, broker_ids: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> Results[int, BrokerVersions]:
        """Returns the API versions that each broker supports. Without ids, of all brokers."""

        async def ask(broker: AskedBroker, keys: list[int]) -> Mapping[int, BrokerVersions]:
            apis = {key: VersionRange(*versions) for key, versions in sorted(broker.connection.versions.items())}
            return {keys[0]: BrokerVersions(broker.node, apis)}

        ids = await self._requests.all_broker_ids(timeout_ms) if broker_ids is None else broker_ids
        return await self._requests.fan_out(ids, self._requests.brokers, ask, timeout_ms)

    # -- log dirs

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Iterable[str] | None = None,
        timeout_ms: float | None = None,
    ) -> Results[int, dict[str, LogDir]]:
        """Returns the log dirs of each broker, by path, with the partitions in them.

        :param broker_ids: the brokers. Without it, all.
        :param topics: returns only partitions of these topics.
        """
        deadline = self._requests.deadline(timeout_ms)
        wanted = None
        if topics is not None:
            names = list(topics)
            await self._requests.cluster.refresh(names, timeout_ms=deadline.left_ms())
            counts = {name: len(self._requests.cluster.partitions(name)) for name in names}
            wanted = [{"topic": name, "partitions": list(range(count))} for name, count in counts.items()]

        async def ask(broker: AskedBroker, keys: list[int]) -> Mapping[int, dict[str, LogDir] | HeadraceError]:
            answer = await broker.ask(Api.DESCRIBE_LOG_DIRS, topics=wanted)
            log_dirs = {found.log_dir: _log_dir(found) for found in answer.results}
            code = getattr(answer, "error_code", ErrorCode.none)
            return {keys[0]: outcome(code, log_dirs, f"the log dirs of broker {keys[0]}")}

        ids = await self._requests.all_broker_ids(deadline.left_ms()) if broker_ids is None else broker_ids
        return await self._requests.fan_out(ids, self._requests.brokers, ask, deadline.left_ms())

    async def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str], *, timeout_ms: float | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Moves replicas to another log dir of their broker."""

        async def locate(replicas: list[TopicPartitionReplica], deadline: Deadline) -> BrokerIds[TopicPartitionReplica]:
            places = await self._requests.brokers([replica.broker_id for replica in replicas], deadline)
            return {replica: places[replica.broker_id] for replica in replicas}

        async def ask(
            broker: AskedBroker, keys: list[TopicPartitionReplica]
        ) -> Mapping[TopicPartitionReplica, HeadraceError | None]:
            dirs: dict[str, list[TopicPartition]] = defaultdict(list)
            for replica in keys:
                dirs[paths[replica]].append(TopicPartition(replica.topic, replica.partition))
            answer = await broker.ask(
                Api.ALTER_REPLICA_LOG_DIRS,
                dirs=[
                    {"path": path, "topics": [{"name": t, "partitions": n} for t, n in by_topic(partitions).items()]}
                    for path, partitions in dirs.items()
                ],
            )
            return {
                TopicPartitionReplica(topic.topic_name, int(found.partition_index), broker.node.id): outcome(
                    found.error_code, None, f"the partition {topic.topic_name}-{found.partition_index}"
                )
                for topic in answer.results
                for found in topic.partitions
            }

        return await self._requests.fan_out(paths, locate, ask, timeout_ms)

    # -- leaders and replicas

    async def elect_leaders(
        self,
        kind: ElectionKind = "preferred",
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Elects the preferred leader of partitions, or with ``unclean`` any replica that is alive.

        Without partitions, all that need an election. A partition that needs none fails with ELECTION_NOT_NEEDED.
        """
        wanted = None if partitions is None else by_topic(partitions)
        answer = await self._requests.ask_controller(
            Api.ELECT_LEADERS,
            timeout_ms,
            election_type=_ELECTIONS[kind],
            topic_partitions=None
            if wanted is None
            else [{"topic": topic, "partitions": indexes} for topic, indexes in wanted.items()],
            timeout=self._requests.broker_timeout_ms(timeout_ms),
        )
        raise_for(getattr(answer, "error_code", ErrorCode.none), "the election of leaders")
        self._requests.cluster.invalidate()
        return Results(
            (
                TopicPartition(topic.topic, int(found.partition_id)),
                outcome(found.error_code, None, f"{topic.topic}-{found.partition_id}", found.error_message),
            )
            for topic in answer.replica_election_results
            for found in topic.partition_result
        )

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Begins to move partitions to other brokers. The first broker is the preferred leader. None cancels a move."""
        asked = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "replicas": _ids(replicas[TopicPartition(topic, index)])}
                    for index in indexes
                ],
            }
            for topic, indexes in by_topic(replicas).items()
        ]
        answer = await self._requests.ask_controller(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            timeout_ms,
            timeout=self._requests.broker_timeout_ms(timeout_ms),
            allow_replication_factor_change=allow_replication_factor_change,
            topics=asked,
        )
        raise_for(answer.error_code, "the reassignment", answer.error_message)
        return Results(
            (
                TopicPartition(topic.name, int(found.partition_index)),
                outcome(found.error_code, None, f"{topic.name}-{found.partition_index}", found.error_message),
            )
            for topic in answer.responses
            for found in topic.partitions
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Returns the partitions that are being moved: of the given ones, or of all."""
        wanted = None if partitions is None else by_topic(partitions)
        answer = await self._requests.ask_controller(
            Api.LIST_PARTITION_REASSIGNMENTS,
            timeout_ms,
            timeout=self._requests.broker_timeout_ms(timeout_ms),
            topics=None
            if wanted is None
            else [{"name": topic, "partition_indexes": indexes} for topic, indexes in wanted.items()],
        )
        raise_for(answer.error_code, "the list of reassignments", answer.error_message)
        return {
            TopicPartition(topic.name, int(found.partition_index)): Reassignment(
                tuple(map(int, found.replicas)),
                tuple(map(int, found.adding_replicas)),
                tuple(map(int, found.removing_replicas)),
            )
            for topic in answer.topics
            for found in topic.partitions
        }


def _ids(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def _log_dir(found: Any) -> LogDir:
    error = None if found.error_code is ErrorCode.none else error_for(found.error_code, f"the log dir {found.log_dir}")
    replicas = {
        TopicPartition(topic.name, int(partition.partition_index)): ReplicaSize(
            int(partition.partition_size), int(partition.offset_lag), bool(partition.is_future_key)
        )
        for topic in found.topics
        for partition in topic.partitions
    }
    total_bytes, usable_bytes = int(getattr(found, "total_bytes", -1)), int(getattr(found, "usable_bytes", -1))
    return LogDir(found.log_dir, error, replicas, total_bytes, usable_bytes)
