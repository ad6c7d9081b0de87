"""Adds the current leader to an answer of Produce or Fetch, if another broker leads the partition (KIP-951).

The client then needs no Metadata request to find the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.network.request import Request
    from headrace.broker.services import NodesSeenBy

#: The answers of these APIs have a field for the current leader since this version.
_LEADERS_SINCE = {Api.PRODUCE: 10, Api.FETCH: 12}
#: The answers have a field for the addresses of leaders since this version.
_ENDPOINTS_SINCE = {Api.PRODUCE: 10, Api.FETCH: 16}
_PARTITIONS_FIELD = {Api.PRODUCE: "partition_responses", Api.FETCH: "partitions"}

#: The codes of a partition that another broker leads.
NOT_LEADER_CODES = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


class CurrentLeaders:
    def __init__(self, broker_id: int, metadata: MetadataCache, nodes_seen_by: NodesSeenBy) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._nodes_seen_by = nodes_seen_by

    def add_to(self, reply: dict[str, Any], request: Request) -> None:
        """Adds the current leader to each partition that another broker leads, and the addresses of these leaders."""
        if len(self._metadata.nodes) < 2 or request.version < _LEADERS_SINCE[request.api]:
            return  # no other broker can be a leader, or the client cannot read the field
        leaders: set[int] = set()
        partitions_field = _PARTITIONS_FIELD[request.api]
        for topic in reply["responses"]:
            if isinstance(topic, bytes):  # an encoded topic has no errors
                continue
            for answer in topic[partitions_field]:
                if not isinstance(answer, bytes) and answer.get("error_code") in NOT_LEADER_CODES:
                    self._add_leader(topic, answer, leaders)
        if leaders and request.version >= _ENDPOINTS_SINCE[request.api]:
            reply["node_endpoints"] = [
                {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
                for node in self._nodes_seen_by(request.connection)
                if node.node_id in leaders
            ]

    def _add_leader(self, topic: dict[str, Any], answer: dict[str, Any], leaders: set[int]) -> None:
        name, topic_id = topic.get("name", topic.get("topic")), topic.get("topic_id")
        known = self._metadata.get(name) if isinstance(name, str) else None
        if known is None and topic_id is not None and not isinstance(topic_id, str):
            known = self._metadata.get_by_id(topic_id)
        index = answer["index"] if "index" in answer else answer["partition_index"]
        if known is None or index >= len(known.partitions):
            return
        info = known.partitions[index]
        if info.leader_id >= 0 and info.leader_id != self._broker_id:
            answer["current_leader"] = {"leader_id": info.leader_id, "leader_epoch": info.leader_epoch}
            leaders.add(info.leader_id)
