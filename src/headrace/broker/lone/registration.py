"""Writes the registration of a lone broker to its own znode tree: the cluster's id, the broker and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.metadata_cache import MetadataCache, Node
from headrace.coordination.interface import Coordination, NodeExistsError
from headrace.coordination.paths import CLUSTER_ID, CONTROLLER, CONTROLLER_EPOCH, PERSISTENT_PATHS, broker_path
from headrace.coordination.znodes import (
    BrokerRegistration,
    ClusterId,
    ControllerRegistration,
    Endpoint,
    encode_controller_epoch,
)

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

FIRST_CONTROLLER_EPOCH = 1


class LoneRegistration:
    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
        metadata: MetadataCache,
        endpoints: Mapping[str, tuple[str, int]],
    ) -> None:
        """
        :param endpoints: the addresses that the listeners are bound to.
        """
        self._config = config
        self._coordination = coordination
        self._metadata = metadata
        self._endpoints = endpoints
        #: Whether :meth:`register` has found an empty tree.
        self.is_new_tree = False

    async def register(self, *, now_ms: int) -> None:
        """Writes this broker to the tree and to the metadata, as a broker and as the controller."""
        coordination, broker_id = self._coordination, self._config.int("broker.id")
        await self._write_cluster_id()
        for path in PERSISTENT_PATHS:
            if await coordination.exists(path) is None:
                await coordination.create(path)
        await coordination.create(broker_path(broker_id), self._registration(now_ms).to_json(), ephemeral=True)
        controller = ControllerRegistration(broker_id, now_ms)
        await coordination.create(CONTROLLER, controller.to_json(), ephemeral=True)
        if await coordination.exists(CONTROLLER_EPOCH) is None:
            await coordination.create(CONTROLLER_EPOCH, encode_controller_epoch(FIRST_CONTROLLER_EPOCH))
        self._update_metadata()
        self._metadata.controller_id = broker_id

    async def update(self, *, now_ms: int) -> None:
        """Writes the present addresses."""
        await self._coordination.set(broker_path(self._config.int("broker.id")), self._registration(now_ms).to_json())
        self._update_metadata()

    def _registration(self, now_ms: int) -> BrokerRegistration:
        protocols = {listener.name: listener.protocol for listener in self._config.listeners.bound}
        advertised = {listener.name: listener for listener in self._config.listeners.advertised}
        endpoints = []
        for name, (host, port) in self._endpoints.items():
            if name in protocols:
                known = advertised.get(name)
                address = (host, port) if known is None else (known.host or host, known.port or port)
                endpoints.append(Endpoint(name, protocols[name], *address))
        return BrokerRegistration(tuple(endpoints), now_ms, self._config.optional_str("broker.rack"))

    def _update_metadata(self) -> None:
        broker_id = self._config.int("broker.id")
        host, port = next(iter(self._endpoints.values()))
        self._metadata.nodes[broker_id] = Node(broker_id, host, port, self._config.optional_str("broker.rack"))

    async def _write_cluster_id(self) -> None:
        """Writes the id that the data folders have. They are locked, and their ids were compared with each other."""
        content = ClusterId(self._metadata.cluster_id).to_json()
        try:
            await self._coordination.create(CLUSTER_ID, content, make_parents=True)
            self.is_new_tree = True
        except NodeExistsError:
            await self._coordination.set(CLUSTER_ID, content)
