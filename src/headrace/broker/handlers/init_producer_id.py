"""InitProducerId (key 22): gives an id and an epoch to an idempotent or transactional producer.

Speaks v0 to v6. Ids are allocated in blocks from the znode tree, so no id is ever given twice. An idempotent producer
that sends its id and epoch to get the next epoch (KIP-360) gets a new id instead, which has the same effect.

A transactional id keeps its producer id, and each producer that starts with it gets the next epoch. This fences an
older producer. If the older producer left a transaction open, that transaction is aborted first. Transactions that
outlive their producer (v6, KIP-939) are not supported: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in an Apache Kafka
that does not allow them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import authorization_failed, check, is_allowed_on_cluster
from headrace.broker.handlers._transactional import code_of
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.transactions.coordinator import ProducerIdentity

_NONE = -1
_KNOWN_IDENTITY_SINCE, _FENCED_SINCE, _TWO_PHASE_SINCE = 3, 4, 6


async def handle(
    request: Request,
    authorizer: Authorizer,
    config: BrokerConfig,
    transactions: TransactionService,
    producer_ids: ProducerIds,
) -> Reply:
    try:
        _check_rights(authorizer, request)
        if request.body.transactional_id is None:
            return {"producer_id": await producer_ids.next(), "producer_epoch": 0}
        identity = await _start(request.body, request.version, config, transactions)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        code = code_of(error, knows_fenced=request.version >= _FENCED_SINCE)
        return {"error_code": code, "producer_id": _NONE, "producer_epoch": _NONE}
    return {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch}


def _check_rights(authorizer: Authorizer, request: Request) -> None:
    """
    :raises TransactionalIdAuthorizationFailed: if the client may not use the transactional id.
    :raises ClusterAuthorizationFailed: if the client may not write idempotently: neither to the cluster as a whole nor
        to any topic.
    """
    connection, transactional_id = request.connection, request.body.transactional_id
    if transactional_id is not None:
        check(authorizer, connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if getattr(request.body, "enable2_pc", False):
            check(
                authorizer, connection, AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id
            )
    elif not is_allowed_on_cluster(
        authorizer, connection, AclOperation.IDEMPOTENT_WRITE, log_denied=False
    ) and not authorizer.is_allowed_on_any(connection, AclOperation.WRITE, ResourceType.TOPIC):
        raise authorization_failed(ResourceType.CLUSTER)


async def _start(body: Any, version: int, config: BrokerConfig, transactions: TransactionService) -> ProducerIdentity:
    transactional_id: str = body.transactional_id
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if version >= _TWO_PHASE_SINCE:
        if body.enable2_pc:
            raise TransactionalIdAuthorizationFailed("two-phase commit (KIP-939) is not supported")
        if body.keep_prepared_txn:
            raise UnsupportedVersion("keeping prepared transactions (KIP-939) is not supported")
    timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
    longest_ms = config.int("transaction.max.timeout.ms")
    if not 0 < timeout_ms <= longest_ms:
        raise InvalidTransactionTimeout(
            f"the transaction timeout {timeout_ms} ms must be at least 1 ms, and at most transaction.max.timeout.ms, "
            f"which is {longest_ms} ms"
        )
    known = _known(body) if version >= _KNOWN_IDENTITY_SINCE else None
    await transactions.ensure()
    start = transactions.coordinator.start_producer

    def ask(fresh: int | None) -> ProducerIdentity:
        return start(transactional_id, timeout_ms, known=known, fresh_producer_id=fresh)

    try:
        identity = await transactions.with_producer_id(ask)
    except ConcurrentTransactions:
        await transactions.wait_until_ended(transactional_id)
        identity = await transactions.with_producer_id(ask)
    await transactions.replicated(transactional_id)
    return identity


def _known(body: Any) -> ProducerIdentity | None:
    from headrace.transactions.coordinator import ProducerIdentity

    if (body.producer_id == _NONE) != (body.producer_epoch == _NONE):
        raise InvalidRequest("give both a producer id and an epoch, or neither")
    return None if body.producer_id == _NONE else ProducerIdentity(body.producer_id, body.producer_epoch)
