"""CreatePartitions (key 37): more partitions for a topic. Never fewer.

Speaks v0 to v3. In a cluster any broker may be asked, as for CreateTopics.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.handlers._topic_changes import settle
from headrace.broker.handlers._waiting import milliseconds
from headrace.broker.request import Request
from headrace.protocol.errors import InvalidRequest, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    times_named = Counter(topic.name for topic in request.body.topics)
    once = {topic.name: topic for topic in request.body.topics}
    validate_only = request.body.validate_only
    answers = [await _grow(broker, topic, validate_only, times_named[name]) for name, topic in once.items()]
    if not validate_only:
        counts = {answer["name"]: once[answer["name"]].count for answer in answers if "error_code" not in answer}
        await settle(broker, answers, made=counts, timeout_ms=milliseconds(request.body.timeout))
    return {"results": answers}


async def _grow(broker: Broker, topic: Any, validate_only: bool, times_named: int) -> dict[str, Any]:
    with code_for_errors(name=topic.name) as answer:
        if times_named > 1:
            raise InvalidRequest(f"topic {topic.name!r} is named {times_named} times in the request")
        broker.metadata.named(topic.name)
        given = None if topic.assignments is None else [tuple(each.broker_ids) for each in topic.assignments]
        await broker.topics.add_partitions(topic.name, topic.count, given, validate_only=validate_only)
    return answer
