"""Serves the controller's requests on a broker of a cluster.

A broker that has just started receives requests before it is registered: the controller repeats requests that the
killed process has not answered, at the same address. Until this process has a broker epoch, it cannot tell them from
its own, so all of them wait for the registration. A partial UpdateMetadata for the earlier registration would let the
broker serve clients before it knows all topics; a LeaderAndIsr would start replicas with an outdated leader.
"""

from __future__ import annotations

from headrace.broker.cluster.metadata_updates import MetadataUpdates
from headrace.broker.cluster.registration import ClusterRegistration
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
    def __init__(
        self,
        registration: ClusterRegistration,
        replicas: ReplicaManager,
        updates: MetadataUpdates,
        controller: Controller,
    ) -> None:
        self._is_registered = registration.is_registered
        self._replicas = replicas
        self._updates = updates
        self._controller = controller

    async def leader_and_isr(self, request: LeaderAndIsr) -> LeaderAndIsrResponse:
        await self._is_registered.wait()
        return await self._replicas.become_leader_or_follower(request)

    async def stop_replica(self, request: StopReplica) -> StopReplicaResponse:
        await self._is_registered.wait()
        return await self._replicas.stop_replicas(request)

    async def update_metadata(self, request: UpdateMetadata) -> None:
        await self._is_registered.wait()
        self._updates.apply(request)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[tuple[str, int]]:
        return await self._controller.controlled_shutdown(broker_id, broker_epoch)
