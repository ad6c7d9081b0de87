"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Speaks v0 to v6; from v4 on many keys at once. Key types: 0 a group, 1 a transactional id. The coordinator is the leader
of the key's partition of ``__consumer_offsets`` or ``__transaction_state``; the topic is made if it is not there. There
are no share groups: their keys (2) are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS
from headrace.broker.metadata_cache import Node
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError, code_for_errors
from headrace.protocol.internal_records import partition_for

if TYPE_CHECKING:
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.services import NodesSeenBy

_MANY_KEYS = 4
_GROUP, _TRANSACTION = 0, 1
_NOBODY = {"node_id": -1, "host": "", "port": -1}


async def handle(
    request: Request,
    metadata: MetadataCache,
    groups: GroupService,
    transactions: TransactionService,
    nodes_seen_by: NodesSeenBy,
) -> Reply:
    body = request.body
    key_type = getattr(body, "key_type", _GROUP)
    keys = body.coordinator_keys if request.version >= _MANY_KEYS else (body.key,)
    refusal = await _made_ready(groups, transactions, key_type)
    nodes = {node.node_id: node for node in nodes_seen_by(request.connection)}
    answer = partial(_answer, metadata, key_type, refusal, nodes)
    if request.version < _MANY_KEYS:
        return answer(keys[0])
    return {"coordinators": await request.answers(keys, answer, "coordinators")}


async def _made_ready(groups: GroupService, transactions: TransactionService, key_type: int) -> KafkaError | None:
    """Sees to it that the topic is there; the error that all keys are answered with, if it cannot be."""
    try:
        if key_type == _GROUP:
            await groups.ensure()
        elif key_type == _TRANSACTION:
            await transactions.ensure()
        else:
            return InvalidRequest(f"{key_type} is neither a group (0) nor a transactional id (1)")
    except KafkaError as error:
        return CoordinatorNotAvailable(f"its topic cannot be made: {error}")
    return None


def _answer(
    metadata: MetadataCache, key_type: int, refusal: KafkaError | None, nodes: Mapping[int, Node], key: str
) -> dict[str, object]:
    with code_for_errors(key=key, **_NOBODY) as answer:
        if refusal is not None:
            raise refusal
        topic = metadata.get(GROUPS if key_type == _GROUP else TRANSACTIONS)
        if topic is None:
            raise CoordinatorNotAvailable("the topic is being made")
        leader_id = topic.partitions[partition_for(key, len(topic.partitions))].leader_id
        node = nodes.get(leader_id)
        if node is None:
            raise CoordinatorNotAvailable("the partition of the key has no leader")
        answer.update(node_id=node.node_id, host=node.host, port=node.port)
    return answer
