"""Leaving a cluster on purpose: the controller moves our leaderships to others before we go (ControlledShutdown, 7).

It is asked up to ``controlled.shutdown.max.retries`` times more, with ``controlled.shutdown.retry.backoff.ms`` in
between, while it cannot be reached or some partitions have nobody else to lead them. Then we go all the same, and those
partitions are without a leader until a replica comes back. The last broker of a cluster has nobody to hand over to, and
does not ask; nor does one without a connection to ZooKeeper, as the controller will not have one either.
"""

from __future__ import annotations

import asyncio
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.cluster.links import NoAnswer
from headrace.coordination.interface import CoordinationError, NoNodeError
from headrace.coordination.paths import CONTROLLER
from headrace.coordination.znodes import ControllerRegistration
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

#: A wait for the tree or the controller that must not hold up the end for ever.
_ASK_TIMEOUT_MS = 10_000


async def hand_over(broker: Broker) -> None:
    """Returns when others lead all that we led, or when it is no use to go on asking."""
    member = broker.cluster
    assert member is not None
    attempts = broker.config.int("controlled.shutdown.max.retries")
    backoff_s = broker.config.int("controlled.shutdown.retry.backoff.ms") / 1000
    for attempt in range(attempts):
        if set(broker.metadata.nodes) <= {broker.broker_id}:
            return
        if not member.is_connected:
            logger.warning("there is no connection to ZooKeeper: nobody could take over")
            break
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_MS / 1000):
                left = await _ask(broker)
        except (KafkaError, CoordinationError, TimeoutError, *NoAnswer) as error:
            logger.warning("the controller could not be asked for a controlled shutdown: %r", error)
        else:
            if not left:
                return
            logger.warning("%d partitions have nobody else to lead them: %s", len(left), left[:10])
        if attempt < attempts - 1:
            await asyncio.sleep(backoff_s)
    logger.warning("going without a controlled shutdown")


async def _ask(broker: Broker) -> list[tuple[str, int]]:
    """The partitions that we still lead."""
    member = broker.cluster
    assert member is not None
    controller_id = await _controller_id(broker)
    if controller_id == broker.broker_id:
        return await member.controller.controlled_shutdown(broker.broker_id, member.broker_epoch)
    answer = await member.links.ask(
        controller_id,
        Api.CONTROLLED_SHUTDOWN,
        {"broker_id": broker.broker_id, "broker_epoch": member.broker_epoch},
        timeout_ms=_ASK_TIMEOUT_MS,
    )
    if answer.error_code != ErrorCode.none:
        raise KafkaError(f"the controller, broker {controller_id}, answered {answer.error_code.name}")
    return [(left.topic_name, left.partition_index) for left in answer.remaining_partitions]


async def _controller_id(broker: Broker) -> int:
    try:
        data, _ = await broker.coordination.get(CONTROLLER)
    except NoNodeError:
        raise KafkaError("there is no controller at the moment") from None
    return ControllerRegistration.from_json(data).broker_id
