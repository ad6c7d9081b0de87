"""Waits until the other brokers have received changes of topics, before the client is answered.

The controller tells all brokers about a change at the same time. The broker that serves the request has the change when
it answers; another broker may receive it some milliseconds later, and would tell a client that the new topic does not
exist. Most clients ask again; some (the admin clients of franz-go and aiokafka, scripts) do not. So this broker asks
the others for their metadata. A broker that is dead, paused or busy delays the answer by half a second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.cluster.links import NoAnswer
from headrace.client.errors import ClientClosed
from headrace.event_loop import cancel_and_wait
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.cluster.links import Links

_MAX_WAIT_MS = 500
_ASK_AGAIN_AFTER_S = 0.005
_PURPOSE = "topic-propagation"


async def wait_for_other_brokers(
    links: Links, others: Iterable[int], made: Mapping[str, int], gone: Sequence[str], timeout_ms: int
) -> None:
    """Returns when the other brokers know the changes of topics, or when the time is up.

    :param made: new or extended topics, with their numbers of partitions.
    :param gone: deleted topics.
    """
    timeout_ms = min(timeout_ms, _MAX_WAIT_MS)
    if not ((made or gone) and timeout_ms > 0):
        return
    tasks = [asyncio.create_task(_wait_for(links, broker_id, made, gone, timeout_ms)) for broker_id in others]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        await cancel_and_wait(late)


async def _wait_for(
    links: Links, broker_id: int, made: Mapping[str, int], gone: Sequence[str], timeout_ms: int
) -> None:
    body = {
        "topics": [{"name": name, "topic_id": None} for name in (*made, *gone)],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    while True:
        try:
            answer = await links.ask(broker_id, Api.METADATA, body, timeout_ms=timeout_ms, purpose=_PURPOSE)
        except (*NoAnswer, ClientClosed):
            return
        if all(_is_known(topic, made) for topic in answer.topics):
            return
        await asyncio.sleep(_ASK_AGAIN_AFTER_S)


def _is_known(topic: Any, made: Mapping[str, int]) -> bool:
    if topic.name not in made:
        return bool(topic.error_code == ErrorCode.unknown_topic_or_partition)
    return len(topic.partitions) >= made[topic.name] and all(found.leader_id >= 0 for found in topic.partitions)
