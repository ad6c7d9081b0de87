"""Asks the controller to move this broker's leaderships to other brokers before the broker stops (ControlledShutdown).

The broker asks up to ``controlled.shutdown.max.retries`` times, with ``controlled.shutdown.retry.backoff.ms`` in
between, while the controller cannot be reached or some partitions have no other replica that could lead. Then the
broker stops all the same, and those partitions have no leader until a replica comes back. The last broker of a cluster
does not ask, because no other broker could lead. Neither does a broker without a connection to ZooKeeper, because the
controller probably has none either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.cluster.links import NoAnswer
from headrace.coordination.interface import CoordinationError, NoNodeError
from headrace.coordination.paths import CONTROLLER
from headrace.coordination.znodes import ControllerRegistration
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.cluster.links import Links
    from headrace.broker.cluster.registration import ClusterRegistration
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.controller.controller import Controller
    from headrace.coordination.interface import Coordination

logger = getLogger(__name__)

#: How long the tree and the controller may take to answer, so that they cannot delay the stop for ever.
_ASK_TIMEOUT_MS = 10_000


class ControlledShutdown:
    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        coordination: Coordination,
        registration: ClusterRegistration,
        links: Links,
        controller: Controller,
    ) -> None:
        """
        :param controller: the controller in this process, which may be the active one.
        """
        self._broker_id = controller.broker_id
        self._attempts = config.int("controlled.shutdown.max.retries")
        self._backoff_s = config.int("controlled.shutdown.retry.backoff.ms") / 1000
        self._metadata = metadata
        self._coordination = coordination
        self._registration = registration
        self._links = links
        self._controller = controller

    async def hand_over(self, *, is_connected: Callable[[], bool]) -> None:
        """Returns when other brokers lead all partitions that this broker led, or when asking again is useless.

        :param is_connected: whether this broker has a connection to ZooKeeper.
        """
        for attempt in range(self._attempts):
            if set(self._metadata.nodes) <= {self._broker_id}:
                return
            if not is_connected():
                logger.warning("there is no connection to ZooKeeper, so no broker can take over the partitions")
                break
            try:
                async with asyncio.timeout(_ASK_TIMEOUT_MS / 1000):
                    left = await self._ask()
            except (KafkaError, CoordinationError, TimeoutError, *NoAnswer) as error:
                logger.warning("the controller could not be asked for a controlled shutdown: %r", error)
            else:
                if not left:
                    return
                logger.warning("%d partitions have no other replica that could lead: %s", len(left), left[:10])
            if attempt < self._attempts - 1:
                await asyncio.sleep(self._backoff_s)
        logger.warning("stopping without a controlled shutdown")

    async def _ask(self) -> list[tuple[str, int]]:
        """The partitions that this broker still leads."""
        broker_epoch = self._registration.broker_epoch
        controller_id = await self._controller_id()
        if controller_id == self._broker_id:
            return await self._controller.controlled_shutdown(self._broker_id, broker_epoch)
        answer = await self._links.ask(
            controller_id,
            Api.CONTROLLED_SHUTDOWN,
            {"broker_id": self._broker_id, "broker_epoch": broker_epoch},
            timeout_ms=_ASK_TIMEOUT_MS,
        )
        if answer.error_code != ErrorCode.none:
            raise KafkaError(f"the controller, broker {controller_id}, answered {answer.error_code.name}")
        return [(left.topic_name, left.partition_index) for left in answer.remaining_partitions]

    async def _controller_id(self) -> int:
        try:
            data, _ = await self._coordination.get(CONTROLLER)
        except NoNodeError:
            raise KafkaError("there is no controller at the moment") from None
        return ControllerRegistration.from_json(data).broker_id
