"""AlterReplicaLogDirs (key 34): moves partitions to another log dir of this broker.

Speaks v1 to v2. Answers at once; the move runs in the background (``relocations.py``), and DescribeLogDirs shows it.
A path that is no log dir of ours is LOG_DIR_NOT_FOUND, whatever the partition; one that failed KAFKA_STORAGE_ERROR.
A replica that is not here is REPLICA_NOT_AVAILABLE, of a partition that nobody has UNKNOWN_TOPIC_OR_PARTITION; but the
path is remembered, and used should the replica come.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.broker.network.dispatch import Reply
from headrace.broker.network.request import Request
from headrace.log.home import Home
from headrace.protocol.errors import LogDirNotFound, NotLeaderOrFollower, ReplicaNotAvailable, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    results: dict[str, list[dict[str, object]]] = {}
    for wanted in request.body.dirs:
        for topic in wanted.topics:
            answers = results.setdefault(topic.name, [])
            answers += [_move(broker, topic.name, index, wanted.path) for index in topic.partitions]
    return {"results": [{"topic_name": name, "partitions": answers} for name, answers in results.items()]}


def _move(broker: Broker, topic: str, index: int, path: str) -> dict[str, object]:
    with code_for_errors(partition_index=index) as answer:
        home = _home(broker, path)
        if not broker.partitions.is_lost(topic, index):
            broker.logs.prefer(topic, index, home)
        try:
            log = broker.partitions.replica(topic, index).log
        except NotLeaderOrFollower as error:
            raise ReplicaNotAvailable(str(error)) from error
        if log.home.error is not None:
            raise log.home.offline()
        broker.maintenance.relocations.move(log, home)
    return answer


def _home(broker: Broker, path: str) -> Home:
    for home in broker.logs.homes:
        if os.path.abspath(home.path) == path:
            if home.error is not None:
                raise home.offline()
            return home
    raise LogDirNotFound(f"{path} is no log dir of broker {broker.broker_id}")
