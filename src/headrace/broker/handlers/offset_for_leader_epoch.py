"""OffsetForLeaderEpoch (key 23): the offset at which a leader epoch ends in the leader's log.

Speaks v2 to v4. A follower or consumer whose records of an epoch differ from the leader's learns here from which offset
on they differ (KIP-101, KIP-320).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode, code_for_errors
from headrace.replication.partition import ANY_EPOCH
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.replication.partitions import Partitions


async def handle(request: Request, authorizer: Authorizer, partitions: Partitions) -> Reply:
    connection = request.connection
    is_broker = is_allowed_on_cluster(authorizer, connection, AclOperation.CLUSTER_ACTION, log_denied=False)
    may_describe = allowed_topics(authorizer, connection, AclOperation.DESCRIBE)

    async def describe(topic: Any) -> dict[str, object]:
        is_allowed = is_broker or may_describe(topic.topic)
        answer = partial(_answer, partitions, topic.topic) if is_allowed else _refusal
        answers = await request.answers(topic.partitions, answer, "topics", "partitions")
        return {"topic": topic.topic, "partitions": answers}

    return {"topics": await request.awaited_answers(request.body.topics, describe, "topics")}


def _refusal(wanted: Any) -> dict[str, object]:
    return {"partition": wanted.partition, "error_code": ErrorCode.topic_authorization_failed}


def _answer(partitions: Partitions, topic: str, wanted: Any) -> dict[str, object]:
    with code_for_errors(partition=wanted.partition) as answer:
        epoch = getattr(wanted, "current_leader_epoch", ANY_EPOCH)
        partition = partitions.leader(topic, wanted.partition, epoch)
        leader_epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
        answer.update(leader_epoch=leader_epoch, end_offset=end_offset)
    return answer
