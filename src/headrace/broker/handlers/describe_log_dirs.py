"""DescribeLogDirs (key 35): the partitions of each log dir, with their sizes.

Speaks v1 to v5. Null topics mean all topics. A log dir that failed is answered with KAFKA_STORAGE_ERROR and no
partitions. A partition that is being moved appears in both log dirs: in the target as a future replica, with its lag.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.relocation import Relocation
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.maintenance.relocations import Relocations
    from headrace.log.log_manager import LogManager

Answer = dict[str, Any]


async def handle(request: Request, authorizer: Authorizer, logs: LogManager, relocations: Relocations) -> Reply:
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE):
        return {"error_code": ErrorCode.cluster_authorization_failed, "results": ()}
    wanted = request.body.topics
    names: set[tuple[str, int]] = set()
    if wanted is not None:
        async for topic, index in request.slices.over(_named(wanted)):
            if logs.get(topic, index) is not None:
                names.add((topic, index))
    answers: dict[str, dict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for log in logs.all():
        if wanted is None or (log.topic, log.partition) in names:
            answers[log.log_dir.path][log.topic].append(_current(log))
    for move in relocations:
        if wanted is None or (move.log.topic, move.log.partition) in names:
            answers[move.log_dir.path][move.log.topic].append(_future(move))
    return {"results": [_describe(log_dir, answers[log_dir.path]) for log_dir in logs.log_dirs]}


def _named(topics: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((topic.topic, index) for topic in topics for index in topic.partitions)


def _current(log: PartitionLog) -> Answer:
    return {
        "partition_index": log.partition,
        "partition_size": log.size_bytes,
        "offset_lag": max(0, log.high_watermark - log.next_offset),
        "is_future_key": False,
    }


def _future(move: Relocation) -> Answer:
    return {
        "partition_index": move.log.partition,
        "partition_size": move.size_bytes,
        "offset_lag": move.log.next_offset - move.next_offset,
        "is_future_key": True,
    }


def _describe(log_dir: LogDir, topics: dict[str, list[Answer]]) -> Answer:
    folder = os.path.abspath(log_dir.path)
    if log_dir.error is not None:
        return {"error_code": ErrorCode.kafka_storage_error, "log_dir": folder, "topics": ()}
    disk = os.statvfs(folder)
    return {
        "log_dir": folder,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }
