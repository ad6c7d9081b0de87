"""DeleteTopics (key 20): topics and their data, gone. By name, from v6 on also by id.

Speaks v1 to v6. Refused as a whole where ``delete.topic.enable`` is false.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.dispatch import Reply
from headrace.broker.request import Request
from headrace.protocol.errors import InvalidRequest, TopicDeletionDisabled, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_BY_NAME_OR_ID = 6


async def handle(request: Request, broker: Broker) -> Reply:
    body = request.body
    if request.version >= _BY_NAME_OR_ID:
        wanted = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [(name, None) for name in body.topic_names]
    twice = {each for each, times in Counter(wanted).items() if times > 1}
    return {"responses": [await _delete(broker, *each, is_twice=each in twice) for each in dict.fromkeys(wanted)]}


async def _delete(broker: Broker, name: str | None, topic_id: UUID | None, *, is_twice: bool) -> dict[str, Any]:
    with code_for_errors(name=name, topic_id=topic_id) as answer:
        if not broker.config.bool("delete.topic.enable"):
            raise TopicDeletionDisabled("delete.topic.enable is false")
        if (name is None) == (topic_id is None):
            raise InvalidRequest("give either a topic's name or its id")
        if is_twice:
            raise InvalidRequest("the topic is named twice in the request")
        topic = broker.metadata.identified(topic_id) if topic_id else broker.metadata.named(name or "")
        answer["topic_id"] = topic.topic_id
        if topic_id:
            answer["name"] = topic.name
        await broker.topics.delete(topic.name)
    return answer
