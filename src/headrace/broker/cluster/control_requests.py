"""Serves the controller's requests on a broker of a cluster."""

from __future__ import annotations

from headrace.broker.cluster.metadata_updates import MetadataUpdates
from headrace.broker.control_requests import ControlRequests
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.controller.controller import Controller
from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaResponse,
    UpdateMetadata,
)


class ClusterControlRequests(ControlRequests):
    def __init__(self, replicas: ReplicaManager, updates: MetadataUpdates, controller: Controller) -> None:
        self._replicas = replicas
        self._updates = updates
        self._controller = controller

    async def leader_and_isr(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        return await self._replicas.become_leader_or_follower(request)

    async def stop_replica(self, request: StopReplica) -> StopReplicaResponse:
        return await self._replicas.stop_replicas(request)

    def update_metadata(self, request: UpdateMetadata) -> None:
        self._updates.apply(request)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        return await self._controller.controlled_shutdown(broker_id, broker_epoch)
