"""AlterReplicaLogDirs (key 34): moves partitions to another log dir of this broker.

Speaks v1 to v2. The answer comes at once. The move runs in the background (``relocations.py``), and DescribeLogDirs
shows it. A path that is not a log dir of this broker is LOG_DIR_NOT_FOUND, whatever the partition; a log dir that
failed is KAFKA_STORAGE_ERROR. If this broker has no replica of the partition, the answer is REPLICA_NOT_AVAILABLE, or
UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist. In both cases the broker remembers the path, and creates a
later replica of the partition there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import authorization_failed, is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.log.log_dir import LogDir
from headrace.protocol.errors import LogDirNotFound, NotLeaderOrFollower, ReplicaNotAvailable, code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.maintenance.relocations import Relocations
    from headrace.log.log_manager import LogManager
    from headrace.replication.partitions import Partitions


async def handle(
    request: Request,
    authorizer: Authorizer,
    broker_id: int,
    partitions: Partitions,
    logs: LogManager,
    relocations: Relocations,
) -> Reply:
    results: dict[str, list[dict[str, object]]] = {}
    may_alter = is_allowed_on_cluster(authorizer, request.connection, AclOperation.ALTER)

    def move(topic: str, index: int, path: str) -> dict[str, object]:
        with code_for_errors(partition_index=index) as answer:
            if not may_alter:
                raise authorization_failed(ResourceType.CLUSTER)
            log_dir = _log_dir(broker_id, logs, path)
            if not partitions.is_offline(topic, index):
                logs.prefer_dir(topic, index, log_dir)
            try:
                log = partitions.replica(topic, index).log
            except NotLeaderOrFollower as error:
                raise ReplicaNotAvailable(str(error)) from error
            if log.log_dir.error is not None:
                raise log.log_dir.offline_error()
            relocations.move(log, log_dir)
        return answer

    for wanted in request.body.dirs:
        for topic in wanted.topics:
            answers = results.setdefault(topic.name, [])
            answers += [move(topic.name, index, wanted.path) for index in topic.partitions]
    return {"results": [{"topic_name": name, "partitions": answers} for name, answers in results.items()]}


def _log_dir(broker_id: int, logs: LogManager, path: str) -> LogDir:
    for log_dir in logs.log_dirs:
        if os.path.abspath(log_dir.path) == path:
            if log_dir.error is not None:
                raise log_dir.offline_error()
            return log_dir
    raise LogDirNotFound(f"{path} is not a log dir of broker {broker_id}")
