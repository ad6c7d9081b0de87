"""Adds the current leader to an answer of Produce or Fetch, if another broker leads the partition (KIP-951).

The client then needs no Metadata request to find the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.metadata_cache import MetadataCache, Node

#: Answers have a field for the current leader since this version.
LEADERS_SINCE = {Api.PRODUCE: 10, Api.FETCH: 12}
#: Answers have a field for the addresses of leaders since this version.
ENDPOINTS_SINCE = {Api.PRODUCE: 10, Api.FETCH: 16}

#: The codes of a partition that another broker leads.
NOT_LEADER_CODES = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


def add_current_leaders(
    metadata: MetadataCache,
    nodes: Callable[[], Iterable[Node]],
    own_id: int,
    reply: dict[str, Any],
    partitions_field: str,
    *,
    with_endpoints: bool = True,
) -> None:
    """Adds the current leader to each partition of an answer that another broker leads, and the leaders' addresses."""
    leaders: set[int] = set()
    for topic in reply["responses"]:
        if isinstance(topic, bytes):  # an encoded topic has no errors
            continue
        for answer in topic[partitions_field]:
            if not isinstance(answer, bytes) and answer.get("error_code") in NOT_LEADER_CODES:
                _add_current_leader(metadata, own_id, topic, answer, leaders)
    if leaders and with_endpoints:
        reply["node_endpoints"] = [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in nodes()
            if node.node_id in leaders
        ]


def _add_current_leader(
    metadata: MetadataCache, own_id: int, topic: dict[str, Any], answer: dict[str, Any], leaders: set[int]
) -> None:
    name, topic_id = topic.get("name", topic.get("topic")), topic.get("topic_id")
    known = metadata.get(name) if isinstance(name, str) else None
    if known is None and topic_id is not None and not isinstance(topic_id, str):
        known = metadata.get_by_id(topic_id)
    index = answer["index"] if "index" in answer else answer["partition_index"]
    if known is None or index >= len(known.partitions):
        return
    info = known.partitions[index]
    if info.leader_id >= 0 and info.leader_id != own_id:
        answer["current_leader"] = {"leader_id": info.leader_id, "leader_epoch": info.leader_epoch}
        leaders.add(info.leader_id)
