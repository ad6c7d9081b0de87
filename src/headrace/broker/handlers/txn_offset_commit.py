"""TxnOffsetCommit (key 28): offsets that count if and when the producer's transaction is committed.

Speaks v0 to v5. From v3 on it says which member it is for, which is then checked (KIP-447). From v5 on the group's
partition becomes part of the transaction by this request (KIP-890); before, AddOffsetsToTxn must have made it so.

Errors are those that clients of the version know: a fenced producer is INVALID_PRODUCER_EPOCH; a coordinator that is
loading COORDINATOR_NOT_AVAILABLE until v1; a partition that is not of the transaction INVALID_TXN_STATE until v3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.coordinators.internal_topics import GROUPS
from headrace.broker.handlers._commits import Commits
from headrace.broker.network.request import Reply, Request
from headrace.groups.committed_offsets import TopicCommit
from headrace.groups.committing import Committer, commit_in_transaction
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
)

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache

_KNOWS_LOADING = 2
_MEMBERS = 3
_KNOWS_ABORTABLE = 4
_ADDS_PARTITION = 5


async def handle(
    request: Request,
    config: BrokerConfig,
    metadata: MetadataCache,
    groups: GroupService,
    transactions: TransactionService,
) -> Reply:
    async def commit(possible: list[TopicCommit]) -> None:
        try:
            await _commit(request, groups, transactions, possible)
        except KafkaError as error:
            raise _as_known(error, request.version) from None

    return {"topics": await Commits(request, metadata, config).answer(commit)}


def _as_known(error: KafkaError, version: int) -> KafkaError:
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, CoordinatorLoadInProgress) and version < _KNOWS_LOADING:
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, TransactionAbortable) and version < _KNOWS_ABORTABLE:
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
        raise InvalidGroupId("a transaction commits offsets for a group with a name")
    who = Committer(body.group_id)
    if version >= _MEMBERS:
        who = Committer(body.group_id, body.member_id, body.generation_id, body.group_instance_id)
    shard = groups.coordinator.shard_for(who.group_id)
    producer_id, producer_epoch = body.producer_id, body.producer_epoch
    await transactions.ensure_partition(
        body.transactional_id, producer_id, producer_epoch, GROUPS, shard.index, adds=version >= _ADDS_PARTITION
    )
    shard = groups.coordinator.shard_for(who.group_id)
    commit_in_transaction(shard, who, possible, producer_id, producer_epoch)
    await groups.replicated(who.group_id)
