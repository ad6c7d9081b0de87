"""Whether the other brokers have heard of what was done to topics, before whoever asked for it is answered.

The controller tells all brokers at once, and whoever serves the request has heard when it answers. Others may hear some
milliseconds later, and a client that asks one of them next is told of a topic that is not there. Most ask again; some
(franz-go's admin, aiokafka's, scripts) do not. So the others are asked, for a moment: one that is dead, paused or busy
does not hold up the answer for longer than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.links import NoAnswer
from headrace.client.errors import ClientClosed
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_AT_MOST_MS = 500
_AGAIN_AFTER_S = 0.005


async def others_have_heard(broker: Broker, made: Mapping[str, int], gone: Sequence[str], timeout_ms: int) -> None:
    """Returns when all others know of topics with so many partitions, and that others are gone, or after a moment."""
    others = [number for number in broker.metadata.nodes if number != broker.broker_id]
    timeout_ms = min(timeout_ms, _AT_MOST_MS)
    if not (others and (made or gone) and timeout_ms > 0):
        return
    tasks = [asyncio.create_task(_has_heard(broker, number, made, gone, timeout_ms)) for number in others]
    _, late = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
    await cancel_and_wait(late)


async def _has_heard(
    broker: Broker, broker_id: int, made: Mapping[str, int], gone: Sequence[str], timeout_ms: int
) -> None:
    assert broker.cluster is not None
    body = {
        "topics": [{"name": name, "topic_id": None} for name in (*made, *gone)],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    while True:
        try:
            answer = await broker.cluster.links.ask(
                broker_id, Api.METADATA, body, timeout_ms=timeout_ms, purpose="hearsay"
            )
        except (*NoAnswer, ClientClosed):
            return
        if all(_is_known(topic, made) for topic in answer.topics):
            return
        await asyncio.sleep(_AGAIN_AFTER_S)


def _is_known(topic: Any, made: Mapping[str, int]) -> bool:
    if topic.name not in made:
        return bool(topic.error_code == ErrorCode.unknown_topic_or_partition)
    return len(topic.partitions) >= made[topic.name] and all(found.leader_id >= 0 for found in topic.partitions)
