"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Speaks v0 to v6; from v4 on many keys at once. Key types: 0 is a group, 1 a transactional id. The coordinator is the
leader of the key's partition of ``__consumer_offsets`` or ``__transaction_state``. The broker creates the topic if it
does not exist. There are no share groups: keys of type 2 are refused with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS
from headrace.broker.metadata_cache import Node
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError, code_for_errors
from headrace.protocol.internal_records import partition_for
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.services import NodesSeenBy

_MANY_KEYS_SINCE = 4
_GROUP, _TRANSACTION = 0, 1
#: The resources that the keys of each type name.
_RESOURCES = {_GROUP: ResourceType.GROUP, _TRANSACTION: ResourceType.TRANSACTIONAL_ID}
_NO_COORDINATOR = {"node_id": -1, "host": "", "port": -1}


async def handle(
    request: Request,
    authorizer: Authorizer,
    metadata: MetadataCache,
    groups: GroupService,
    transactions: TransactionService,
    nodes_seen_by: NodesSeenBy,
) -> Reply:
    body = request.body
    key_type = getattr(body, "key_type", _GROUP)
    keys = body.coordinator_keys if request.version >= _MANY_KEYS_SINCE else (body.key,)
    nodes = {node.node_id: node for node in nodes_seen_by(request.connection)}
    #: The error of all keys, once it is known: the topic is created for the first key that the client may use.
    refusals: list[KafkaError | None] = []

    async def answer(key: str) -> dict[str, object]:
        with code_for_errors(key=key, **_NO_COORDINATOR) as found:
            if key_type in _RESOURCES:
                check(authorizer, request.connection, AclOperation.DESCRIBE, _RESOURCES[key_type], key)
            if not refusals:
                refusals.append(await _create_topic(groups, transactions, key_type))
            found.update(_answer(metadata, key_type, refusals[0], nodes, key))
        return found

    if request.version < _MANY_KEYS_SINCE:
        return await answer(keys[0])
    return {"coordinators": await request.awaited_answers(keys, answer, "coordinators")}


async def _create_topic(groups: GroupService, transactions: TransactionService, key_type: int) -> KafkaError | None:
    """Creates the internal topic if it does not exist. Returns the error of all keys if that fails."""
    try:
        if key_type == _GROUP:
            await groups.ensure()
        elif key_type == _TRANSACTION:
            await transactions.ensure()
        else:
            return InvalidRequest(f"unknown key type {key_type}; use 0 (group) or 1 (transactional id)")
    except KafkaError as error:
        return CoordinatorNotAvailable(f"the coordinator's topic cannot be created: {error}")
    return None


def _answer(
    metadata: MetadataCache, key_type: int, refusal: KafkaError | None, nodes: Mapping[int, Node], key: str
) -> dict[str, object]:
    with code_for_errors(key=key, **_NO_COORDINATOR) as answer:
        if refusal is not None:
            raise refusal
        topic = metadata.get(GROUPS if key_type == _GROUP else TRANSACTIONS)
        if topic is None:
            raise CoordinatorNotAvailable("the coordinator's topic is being created; try again")
        leader_id = topic.partitions[partition_for(key, len(topic.partitions))].leader_id
        node = nodes.get(leader_id)
        if node is None:
            raise CoordinatorNotAvailable("the partition of the key has no leader now; try again")
        answer.update(node_id=node.node_id, host=node.host, port=node.port)
    return answer
