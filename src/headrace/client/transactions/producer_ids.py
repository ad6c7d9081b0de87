"""Asks for producer ids (InitProducerId), for idempotence and for transactions.

An idempotent producer asks any broker and gets an id with epoch 0. A transactional producer asks the coordinator of its
transactional id. The coordinator ends the transaction that an earlier producer of that id left open, and fences that
producer by a higher epoch. A request with the producer's own id and epoch raises the epoch (KIP-360).
"""

from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import error_for
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode
from headrace.protocol.records import NO_PRODUCER_ID

#: Producer id and epoch.
ProducerIdAndEpoch = tuple[int, int]
NO_PRODUCER: ProducerIdAndEpoch = (NO_PRODUCER_ID, -1)

#: Version 6 is for two-phase commits (KIP-939).
_VERSION = 5
_NO_TIMEOUT_MS = 2**31 - 1


async def request_producer_id(cluster: Cluster) -> ProducerIdAndEpoch:
    """Asks any broker for the id of an idempotent producer.

    :raises HeadraceError: if no broker gives an id.
    """
    answer = await cluster.ask_any(
        Api.INIT_PRODUCER_ID, version=_VERSION, transactional_id=None, transaction_timeout=_NO_TIMEOUT_MS,
        producer_id=-1, producer_epoch=-1,
    )  # fmt: skip
    return _producer_of(answer, "a producer id")


async def request_transactional_producer_id(
    cluster: Cluster, transactional_id: str, timeout_ms: int, producer: ProducerIdAndEpoch = NO_PRODUCER
) -> ProducerIdAndEpoch:
    """Asks the coordinator for the id of a transactional producer.

    :param timeout_ms: ``transaction.timeout.ms``.
    :param producer: the id and epoch that the producer has so far.
    """
    answer = await cluster.ask_coordinator(
        Api.INIT_PRODUCER_ID, "transaction", transactional_id, version=_VERSION, transactional_id=transactional_id,
        transaction_timeout=timeout_ms, producer_id=producer[0], producer_epoch=producer[1],
    )  # fmt: skip
    return _producer_of(answer, f"a producer id for the transactional.id {transactional_id!r}")


def _producer_of(answer: Any, requested: str) -> ProducerIdAndEpoch:
    if answer.error_code is not ErrorCode.none:
        raise error_for(answer.error_code, requested)
    return int(answer.producer_id), int(answer.producer_epoch)
