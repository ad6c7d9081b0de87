"""DescribeLogDirs (key 35): which folder holds which partition, and how large it is.

Speaks v1 to v5. Null topics mean all. A folder that failed is answered with KAFKA_STORAGE_ERROR and no partitions.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.request import Request
from headrace.log.partition_log import PartitionLog
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    wanted = request.body.topics
    if wanted is not None:
        names = {(topic.topic, index) for topic in wanted for index in topic.partitions}
    by_folder: dict[Path, dict[str, list[PartitionLog]]] = defaultdict(lambda: defaultdict(list))
    for log in broker.logs.all():
        if wanted is None or (log.topic, log.partition) in names:
            by_folder[log.directory.parent][log.topic].append(log)
    return {
        "results": [
            {"error_code": ErrorCode.kafka_storage_error, "log_dir": home.path, "topics": ()}
            if home.error is not None
            else _describe(Path(home.path), by_folder[Path(home.path)])
            for home in broker.logs.homes
        ]
    }


def _describe(folder: Path, topics: dict[str, list[PartitionLog]]) -> dict[str, Any]:
    disk = os.statvfs(folder)
    return {
        "log_dir": str(folder),
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": log.partition,
                        "partition_size": log.size_bytes,
                        "offset_lag": max(0, log.high_watermark - log.next_offset),
                        "is_future_key": False,
                    }
                    for log in logs
                ],
            }
            for name, logs in topics.items()
        ],
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }
