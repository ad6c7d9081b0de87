"""InitProducerId: who a producer is to the brokers, for idempotence and for transactions.

An idempotent producer asks any broker and is given an id with epoch 0. A transactional one asks the coordinator of its
transactional id, which ends what an earlier producer of that id left open and fences it by a higher epoch; asking
with the own id and epoch raises the epoch (KIP-360).
"""

from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import error_for
from headrace.client.producer.partition_queue import NO_PRODUCER, Producer
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

#: Version 6 is for two-phase commits (KIP-939).
_VERSION = 5
_NO_TIMEOUT_MS = 2**31 - 1


async def ask_producer_id(cluster: Cluster) -> Producer:
    """
    :raises HeadraceError: if there is none to be had.
    """
    answer = await cluster.ask_any(
        Api.INIT_PRODUCER_ID, version=_VERSION, transactional_id=None, transaction_timeout=_NO_TIMEOUT_MS,
        producer_id=-1, producer_epoch=-1,
    )  # fmt: skip
    return _producer_of(answer, "a producer id")


async def ask_transactional_id(
    cluster: Cluster, transactional_id: str, timeout_ms: int, producer: Producer = NO_PRODUCER
) -> Producer:
    """
    :param timeout_ms: ``transaction.timeout.ms``.
    :param producer: who we are so far.
    """
    answer = await cluster.ask_coordinator(
        Api.INIT_PRODUCER_ID, "transaction", transactional_id, version=_VERSION, transactional_id=transactional_id,
        transaction_timeout=timeout_ms, producer_id=producer[0], producer_epoch=producer[1],
    )  # fmt: skip
    return _producer_of(answer, f"a producer id for the transactional.id {transactional_id!r}")


def _producer_of(answer: Any, what: str) -> Producer:
    if answer.error_code is not ErrorCode.none:
        raise error_for(answer.error_code, what)
    return int(answer.producer_id), int(answer.producer_epoch)
