"""DeleteRecords (key 21): moves a partition's start forward; what is below is gone for every reader.

Speaks v0 to v2. Offset -1 means the high watermark. With one replica the new start holds at once, so nothing waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.metadata_cache import INTERNAL_TOPICS
from headrace.broker.request import Request
from headrace.protocol.errors import InvalidTopic, OffsetOutOfRange, PolicyViolation, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(request: Request, broker: Broker) -> Reply:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_delete(broker, topic.name, wanted) for wanted in topic.partitions]}
            for topic in request.body.topics
        ]
    }


def _delete(broker: Broker, topic: str, wanted: Any) -> dict[str, object]:
    with code_for_errors(partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK) as answer:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"records of {topic} are not deleted by clients")
        partition = broker.partitions.leader(topic, wanted.partition_index)
        if not partition.log.config.is_deleted:
            raise PolicyViolation(f"{topic} is compacted only; deleting records needs cleanup.policy=delete")
        to_offset = partition.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
        if to_offset < 0:
            raise OffsetOutOfRange(f"offset {to_offset} is below every record")
        partition.log.advance_log_start(to_offset)
        answer["low_watermark"] = partition.log.log_start_offset
    return answer
