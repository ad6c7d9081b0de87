"""The registration of a broker in ZooKeeper: the cluster's id, the broker's id, and ``/brokers/ids/N``.

The znode ``/brokers/ids/N`` is ephemeral: it disappears with the session, and the controller notices. The zxid that
created it is the broker's epoch (KIP-380). The epoch changes with every restart and every new session, so a broker can
reject requests that were sent to an earlier registration.

A broker that was killed stays registered until its session times out. Therefore the session's id is stored in the first
data folder, which only one process uses at a time. A registration of the stored session belongs to an earlier process
of this broker, which has ended, and is removed at once. If another session has registered this broker's id, the broker
waits for one session timeout. If a process answers at the registered address, or the registration stays, then two
brokers have the same id, and this one does not start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from logging import getLogger
from socket import getfqdn
from typing import TYPE_CHECKING

from headrace.broker.start_error import StartError
from headrace.coordination import retried_changes
from headrace.coordination.interface import Coordination, NodeExistsError, NoNodeError, Stat, WatchEvent
from headrace.coordination.paths import BROKER_SEQUENCE_ID, CLUSTER_ID, CONTROLLER, PERSISTENT_PATHS, broker_path
from headrace.coordination.znodes import BrokerRegistration, ClusterId, Endpoint, encode_uuid, random_uuid

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.data_folders import DataFolders
    from headrace.runtime.clock import Clock

logger = getLogger(__name__)

#: The file in the first data folder that has the id of the last session.
SESSION_FILE = ".zookeeper-session"
_PROBE_TIMEOUT_S = 2.0
_ALL_ADDRESSES = ("", "0.0.0.0", "::")


class ClusterRegistration:
    def __init__(
        self,
        config: BrokerConfig,
        folders: DataFolders,
        endpoints: Mapping[str, tuple[str, int]],
        coordination: Coordination,
        clock: Clock,
    ) -> None:
        """
        :param endpoints: the addresses that the listeners are bound to.
        """
        self._config = config
        self._folders = folders
        self._endpoints = endpoints
        self._coordination = coordination
        self._clock = clock
        #: The zxid of the registration; -1 while there is none.
        self.broker_epoch = -1
        #: Set with the first ``broker_epoch``.
        self.is_registered = asyncio.Event()

    @property
    def _broker_id(self) -> int:
        return self._config.int("broker.id")

    async def identify(self) -> str:
        """Settles the broker's id in the config. Returns the cluster's id.

        :raises StartError: if the data folders belong to another cluster, or another broker has this id.
        """
        await self._make_persistent_paths()
        cluster_id = await self._cluster_id()
        if self._config.broker_id is None:
            self._config.set_broker_id(await self._choose_broker_id())
        await self._reject_if_alive(broker_path(self._broker_id))
        return cluster_id

    async def _make_persistent_paths(self) -> None:
        stats = await asyncio.gather(*map(self._coordination.exists, PERSISTENT_PATHS))
        for path, stat in zip(PERSISTENT_PATHS, stats, strict=True):
            if stat is None:
                with suppress(NodeExistsError):  # another broker starts at the same time
                    await retried_changes.create_persistent(self._coordination, path, b"")

    async def _cluster_id(self) -> str:
        known = self._folders.stored_cluster_id
        try:
            found = await self._stored_cluster_id()
        except NoNodeError:
            with suppress(NodeExistsError):
                new = ClusterId(encode_uuid(random_uuid()))
                await retried_changes.create_persistent(self._coordination, CLUSTER_ID, new.to_json())
            found = await self._stored_cluster_id()
        if known is not None and known != found:
            raise StartError(
                f"{self._folders.first} belongs to cluster {known}, and the ZooKeeper is that of cluster "
                f"{found}: wrong --data or wrong zookeeper.connect"
            )
        return found

    async def _stored_cluster_id(self) -> str:
        data, _ = await self._coordination.get(CLUSTER_ID)
        return ClusterId.from_json(data).cluster_id

    async def _choose_broker_id(self) -> int:
        if self._folders.stored_broker_id is not None:
            return self._folders.stored_broker_id
        config = self._config
        if not config.bool("broker.id.generation.enable"):
            raise StartError("broker.id is not set, and broker.id.generation.enable is false")
        # Each write gets a version of the znode that no other write gets.
        stat = await retried_changes.set_data(self._coordination, BROKER_SEQUENCE_ID, b"")
        return stat.version + config.int("reserved.broker.max.id")

    # -- the registration

    async def register(self) -> None:
        """Writes ``/brokers/ids/N``.

        :raises NodeExistsError: if another session has registered this id.
        """
        path = broker_path(self._broker_id)
        self._store_session()
        await retried_changes.create_ephemeral(self._coordination, path, self._registration().to_json())
        stat = await self._coordination.exists(path)
        if stat is None or stat.ephemeral_owner != self._coordination.session_id:
            raise NoNodeError(f"{path} disappeared as soon as it was created")
        self.broker_epoch = stat.czxid
        self.is_registered.set()
        logger.info("registered as broker %d with epoch %d", self._broker_id, stat.czxid)

    async def update(self) -> None:
        """Writes the present addresses to ``/brokers/ids/N``, if this session has registered the broker. Otherwise the
        next registration has them."""
        path = broker_path(self._broker_id)
        stat = await self._coordination.exists(path)
        if stat is not None and stat.ephemeral_owner == self._coordination.session_id:
            await retried_changes.set_data(self._coordination, path, self._registration().to_json())
            logger.info("registered the addresses of the present listeners")

    def _registration(self) -> BrokerRegistration:
        endpoints = []
        for advertised in self._config.listeners.advertised:
            host, port = self._endpoints[advertised.name]
            host, port = advertised.host or host, advertised.port or port
            endpoints.append(
                Endpoint(advertised.name, advertised.protocol, getfqdn() if host in _ALL_ADDRESSES else host, port)
            )
        return BrokerRegistration(tuple(endpoints), self._clock.wall_ms(), self._config.optional_str("broker.rack"))

    def _store_session(self) -> None:
        folder = self._folders.first
        folder.mkdir(parents=True, exist_ok=True)
        content = f"{self._coordination.session_id:#x}\n".encode()
        self._folders.disk.write_file(str(folder / SESSION_FILE), content)

    def _stored_session(self) -> int | None:
        try:
            data = self._folders.disk.read_file(str(self._folders.first / SESSION_FILE))
            return None if data is None else int(data, 16)
        except (OSError, ValueError):
            return None

    # -- earlier registrations of this id

    async def remove_earlier_registration(self) -> None:
        """Removes what an earlier process of this broker has registered. The data folders must be locked.

        :raises StartError: if another broker has registered this id, and the registration stays.
        """
        path = broker_path(self._broker_id)
        gone = asyncio.Event()

        def changed(_: WatchEvent) -> None:
            gone.set()

        stat = await self._coordination.exists(path, watch=changed)
        if stat is None:
            return
        if stat.ephemeral_owner == self._stored_session():
            await self._remove(path, stat)
            return
        timeout_ms = self._config.int("zookeeper.session.timeout.ms")
        logger.info("%s still exists; waiting up to %d ms for its session to end", path, timeout_ms)
        with suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), timeout_ms / 1000)
        if await self._coordination.exists(path) is not None:
            raise StartError(f"another broker with the id {self._broker_id} is registered")

    async def _remove(self, path: str, stat: Stat) -> None:
        """Removes the znodes of a killed process: ``/controller`` first, so that it does not look active any more."""
        logger.info("removing the registration of session %#x, which an earlier process has left", stat.ephemeral_owner)
        controller = await self._coordination.exists(CONTROLLER)
        if controller is not None and controller.ephemeral_owner == stat.ephemeral_owner:
            with suppress(NoNodeError):
                await retried_changes.delete(self._coordination, CONTROLLER)
        with suppress(NoNodeError):
            await retried_changes.delete(self._coordination, path)

    async def _reject_if_alive(self, path: str) -> None:
        try:
            data, _ = await self._coordination.get(path)
        except NoNodeError:
            return
        ours = set(self._endpoints.values())
        for endpoint in BrokerRegistration.from_json(data).endpoints:
            if (endpoint.host, endpoint.port) not in ours and await _answers(endpoint.host, endpoint.port):
                raise StartError(
                    f"another broker with the id {self._broker_id} runs at {endpoint.host}:{endpoint.port}"
                )


async def _answers(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _PROBE_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
