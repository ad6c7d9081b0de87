"""AddPartitionsToTxn (key 24): announces the partitions that a transaction will write to.

Speaks v0 to v5. Clients send v0 to v3, for one transaction. Brokers send v4 and v5, for many transactions (KIP-890); a
``verify_only`` transaction asks whether its partitions were added, and a partition that was not added is answered with
TRANSACTION_ABORTABLE. If one partition of a transaction does not exist, none of its partitions is added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, is_allowed_on_cluster
from headrace.broker.handlers._transactional import FENCED_SINCE, code_of
from headrace.broker.metadata_cache import INTERNAL_TOPICS
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation, ResourceType
from headrace.transactions.coordinator import ProducerIdentity
from headrace.transactions.metadata import VERSION_2, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import MetadataCache

_MANY_SINCE, _VERSION_2_SINCE = 4, 5
Codes = dict[TopicPartition, ErrorCode]


async def handle(
    request: Request, authorizer: Authorizer, metadata: MetadataCache, transactions: TransactionService
) -> Reply:
    body, version = request.body, request.version
    if version < _MANY_SINCE:
        refused = _refused(request, authorizer, _partitions(body.v3_and_below_topics))
        if refused:
            return {"results_by_topic_v3_and_below": _by_topic(refused)}
        producer = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        wanted = _partitions(body.v3_and_below_topics)
        codes = await _add(
            metadata, transactions, body.v3_and_below_transactional_id, producer, wanted, version, verify_only=False
        )
        return {"results_by_topic_v3_and_below": _by_topic(codes)}
    if not is_allowed_on_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION):
        return {"error_code": ErrorCode.cluster_authorization_failed, "results_by_transaction": ()}
    results = []
    for each in body.transactions:
        producer, wanted = ProducerIdentity(each.producer_id, each.producer_epoch), _partitions(each.topics)
        codes = await _add(
            metadata, transactions, each.transactional_id, producer, wanted, version, verify_only=each.verify_only
        )
        results.append({"transactional_id": each.transactional_id, "topic_results": _by_topic(codes)})
    return {"results_by_transaction": results}


def _refused(request: Request, authorizer: Authorizer, wanted: list[TopicPartition]) -> Codes:
    """Returns the codes of a client's request that is not authorized; nothing if the client may do all of it."""
    connection, transactional_id = request.connection, request.body.v3_and_below_transactional_id
    if not authorizer.is_allowed(connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(wanted, ErrorCode.transactional_id_authorization_failed)
    may_write = allowed_topics(authorizer, connection, AclOperation.WRITE)
    denied = {name for name in {topic for topic, _ in wanted} if name in INTERNAL_TOPICS or not may_write(name)}
    if not denied:
        return {}
    return {
        partition: ErrorCode.topic_authorization_failed if partition[0] in denied else ErrorCode.operation_not_attempted
        for partition in wanted
    }


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


async def _add(
    metadata: MetadataCache,
    transactions: TransactionService,
    transactional_id: str,
    producer: ProducerIdentity,
    wanted: list[TopicPartition],
    version: int,
    *,
    verify_only: bool,
) -> Codes:
    unknown = {partition for partition in wanted if not metadata.has_partition(*partition)}
    if unknown:
        return {
            partition: ErrorCode.unknown_topic_or_partition
            if partition in unknown
            else ErrorCode.operation_not_attempted
            for partition in wanted
        }
    coordinator = transactions.coordinator
    try:
        if verify_only:
            missing = coordinator.missing_partitions(transactional_id, producer, wanted)
            await transactions.replicated(transactional_id)
            return {
                partition: ErrorCode.transaction_abortable if partition in missing else ErrorCode.none
                for partition in wanted
            }
        client_version = VERSION_2 if version >= _VERSION_2_SINCE else 0
        coordinator.add_partitions(transactional_id, producer, wanted, client_version=client_version)
        await transactions.replicated(transactional_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        code = code_of(error, knows_fenced=version >= FENCED_SINCE)
        return dict.fromkeys(wanted, code)
    return dict.fromkeys(wanted, ErrorCode.none)


def _by_topic(codes: Codes) -> list[dict[str, object]]:
    topics: dict[str, list[dict[str, object]]] = defaultdict(list)
    for (name, index), code in codes.items():
        topics[name].append({"partition_index": index, "partition_error_code": code})
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]
