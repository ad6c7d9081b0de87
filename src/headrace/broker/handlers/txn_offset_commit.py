"""TxnOffsetCommit (key 28): stores offsets that become valid when the producer's transaction is committed.

Speaks v0 to v5. From v3 on the request names the member of the group, which is then checked (KIP-447). From v5 on this
request adds the group's partition to the transaction (KIP-890); before v5, AddOffsetsToTxn must have added it.

Error codes are those that the clients of a version know. A fenced producer is INVALID_PRODUCER_EPOCH. A coordinator
that is loading is COORDINATOR_NOT_AVAILABLE up to v1. A partition that is not part of the transaction is
INVALID_TXN_STATE up to v3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.coordinators.internal_topics import GROUPS
from headrace.broker.handlers._commits import Commits, refused_commit
from headrace.broker.network.request import Reply, Request
from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.committing import Committer, commit_in_transaction
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
)
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache

_LOADING_SINCE = 2
_MEMBERS_SINCE = 3
_ABORTABLE_SINCE = 4
_ADDS_PARTITION_SINCE = 5


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    metadata: MetadataCache,
    groups: GroupService,
    transactions: TransactionService,
) -> Reply:
    body, connection = request.body, request.connection
    may_write = authorizer.is_allowed(
        connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    )
    if not may_write:
        return {"topics": refused_commit(request, ErrorCode.transactional_id_authorization_failed)}
    if not authorizer.is_allowed(connection, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return {"topics": refused_commit(request, ErrorCode.group_authorization_failed)}

    async def commit(possible: list[TopicCommit]) -> None:
        try:
            await _commit(request, groups, transactions, possible)
        except KafkaError as error:
            raise _for_version(error, request.version) from None

    return {"topics": await Commits(request, authorizer, metadata, config).answer(commit)}


def _for_version(error: KafkaError, version: int) -> KafkaError:
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, CoordinatorLoadInProgress) and version < _LOADING_SINCE:
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_SINCE:
        return InvalidTxnState(str(error))
    return error


async def _commit(
    request: Request,
    groups: GroupService,
    transactions: TransactionService,
    possible: list[TopicCommit],
) -> None:
    body, version = request.body, request.version
    if not body.group_id:
        raise InvalidGroupId("the id of the group is empty")
    committer = Committer(body.group_id)
    if version >= _MEMBERS_SINCE:
        committer = Committer(body.group_id, body.member_id, body.generation_id, body.group_instance_id)
    shard = groups.coordinator.shard_for(committer.group_id)
    producer_id, producer_epoch = body.producer_id, body.producer_epoch
    await transactions.ensure_partition(
        body.transactional_id, producer_id, producer_epoch, GROUPS, shard.index, adds=version >= _ADDS_PARTITION_SINCE
    )
    shard = groups.coordinator.shard_for(committer.group_id)
    commit_in_transaction(shard, committer, possible, producer_id, producer_epoch)
    await groups.replicated(committer.group_id)
