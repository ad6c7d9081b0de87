"""The requests that an active controller or another broker sends to a broker of a cluster (API keys 4 to 7).

``ClusterControlRequests`` (``cluster/control_requests.py``) serves them. A lone broker neither advertises nor serves
these APIs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.controller.decisions.broker_requests import (
        LeaderAndIsr,
        LeaderAndIsrResponse,
        StopReplica,
        StopReplicaResponse,
        UpdateMetadata,
    )


class ControlRequests(ABC):
    """Each method raises KafkaError if the sender is not the active controller any more."""

    @abstractmethod
    async def leader_and_isr(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        """Makes partitions of this broker leaders or followers."""

    @abstractmethod
    async def stop_replica(self, request: StopReplica) -> StopReplicaResponse:
        """Stops replicas of this broker, and deletes some of them."""

    @abstractmethod
    async def update_metadata(self, request: UpdateMetadata) -> None:
        """Updates the metadata of brokers, topics and leaders."""

    @abstractmethod
    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        """Moves the leadership of a broker's partitions to other brokers. The result is the partitions that it still
        leads. Only the active controller does this."""


class NoControlRequests(ControlRequests):
    """A lone broker: the dispatcher rejects these APIs before a handler is called."""

    async def leader_and_isr(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        raise AssertionError(f"a lone broker does not serve {request}")

    async def stop_replica(self, request: StopReplica) -> StopReplicaResponse:
        raise AssertionError(f"a lone broker does not serve {request}")

    async def update_metadata(self, request: UpdateMetadata) -> None:
        raise AssertionError(f"a lone broker does not serve {request}")

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        raise AssertionError(f"a lone broker does not serve ControlledShutdown ({broker_id=}, {broker_epoch=})")
