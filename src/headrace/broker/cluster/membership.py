"""Who we are in the cluster, by the tree: the cluster's id, our broker id, and that we live (``/brokers/ids/N``).

The registration is ephemeral: it goes with our session, and the controller notices. The zxid that made it is the
broker's epoch (KIP-380): another one after every restart and every lost session, so that requests meant for an earlier
life of ours are told from those for this one.

A broker that was killed is still registered until its session times out. The session's id is therefore kept in the
first data folder, which only one process uses at a time: what a session in there has registered is of an earlier life
of ours, which has ended, and is removed at once. What another session has registered under our id is waited for as long
as a session lasts; if somebody answers at its address, or it stays, there are two brokers with one id, and this one
does not start.
"""

from __future__ import annotations

import asyncio
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
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

#: In the first data folder.
SESSION_FILE = ".zookeeper-session"
_PROBE_TIMEOUT_S = 2.0
_EVERYWHERE = ("", "0.0.0.0", "::")


class Membership:
    def __init__(self, broker: Broker, coordination: Coordination) -> None:
        self._broker = broker
        self._coordination = coordination
        #: The zxid of our registration; -1 while there is none.
        self.broker_epoch = -1

    async def settle(self) -> None:
        """Finds out, or decides, the cluster's id and ours.

        :raises StartError: if the data folders are another cluster's, or another broker has our id.
        """
        broker = self._broker
        await self._make_persistent_paths()
        broker.cluster_id = await self._settle_cluster_id()
        if broker.config.broker_id is None:
            broker.config.settle_broker_id(await self._choose_broker_id())
        broker.broker_id = broker.config.int("broker.id")
        await self._refuse_if_alive(broker_path(broker.broker_id))

    async def _make_persistent_paths(self) -> None:
        stats = await asyncio.gather(*map(self._coordination.exists, PERSISTENT_PATHS))
        for path, stat in zip(PERSISTENT_PATHS, stats, strict=True):
            if stat is None:
                with suppress(NodeExistsError):  # another broker starts as well
                    await retried_changes.create_persistent(self._coordination, path, b"")

    async def _settle_cluster_id(self) -> str:
        known = self._broker.known_cluster_id
        try:
            found = await self._stored_cluster_id()
        except NoNodeError:
            with suppress(NodeExistsError):
                new = ClusterId(encode_uuid(random_uuid()))
                await retried_changes.create_persistent(self._coordination, CLUSTER_ID, new.to_json())
            found = await self._stored_cluster_id()
        if known is not None and known != found:
            raise StartError(
                f"{self._broker.directories[0]} belongs to cluster {known}, and the ZooKeeper is that of cluster "
                f"{found}: wrong --data or wrong zookeeper.connect"
            )
        return found

    async def _stored_cluster_id(self) -> str:
        data, _ = await self._coordination.get(CLUSTER_ID)
        return ClusterId.from_json(data).cluster_id

    async def _choose_broker_id(self) -> int:
        if self._broker.known_broker_id is not None:
            return self._broker.known_broker_id
        config = self._broker.config
        if not config.bool("broker.id.generation.enable"):
            raise StartError("broker.id is not set, and broker.id.generation.enable is false")
        # Whoever sets it gets a version that nobody else has.
        stat = await retried_changes.set_data(self._coordination, BROKER_SEQUENCE_ID, b"")
        return stat.version + config.int("reserved.broker.max.id")

    # -- the registration

    async def register(self) -> None:
        """Says that we live.

        :raises NodeExistsError: if another session says so of our id.
        """
        path = broker_path(self._broker.broker_id)
        self._remember_session()
        await retried_changes.create_ephemeral(self._coordination, path, self._registration().to_json())
        stat = await self._coordination.exists(path)
        if stat is None or stat.ephemeral_owner != self._coordination.session_id:
            raise NoNodeError(f"{path} went as soon as it was made")
        self.broker_epoch = stat.czxid
        logger.info("registered as broker %d with epoch %d", self._broker.broker_id, stat.czxid)

    def _registration(self) -> BrokerRegistration:
        broker = self._broker
        endpoints = []
        for advertised in broker.config.listeners.advertised:
            host, port = broker.endpoints[advertised.name]
            host, port = advertised.host or host, advertised.port or port
            endpoints.append(
                Endpoint(advertised.name, advertised.protocol, getfqdn() if host in _EVERYWHERE else host, port)
            )
        return BrokerRegistration(tuple(endpoints), broker.clock.wall_ms(), broker.config.optional_str("broker.rack"))

    def _remember_session(self) -> None:
        folder = self._broker.directories[0]
        folder.mkdir(parents=True, exist_ok=True)
        self._broker.disk.write_file(str(folder / SESSION_FILE), f"{self._coordination.session_id:#x}\n".encode())

    def _remembered_session(self) -> int | None:
        try:
            data = self._broker.disk.read_file(str(self._broker.directories[0] / SESSION_FILE))
            return None if data is None else int(data, 16)
        except (OSError, ValueError):
            return None

    # -- whoever has our id

    async def end_earlier_life(self) -> None:
        """What an earlier life of ours has registered goes. The data folders are locked by now.

        :raises StartError: if it is not ours, and stays.
        """
        path = broker_path(self._broker.broker_id)
        gone = asyncio.Event()

        def changed(_: WatchEvent) -> None:
            gone.set()

        stat = await self._coordination.exists(path, watch=changed)
        if stat is None:
            return
        if stat.ephemeral_owner == self._remembered_session():
            await self._remove(path, stat)
            return
        timeout_ms = self._broker.config.int("zookeeper.session.timeout.ms")
        logger.info("%s is still there; waiting up to %d ms for its session to end", path, timeout_ms)
        with suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), timeout_ms / 1000)
        if await self._coordination.exists(path) is not None:
            raise StartError(f"another broker with the id {self._broker.broker_id} is registered")

    async def _remove(self, path: str, stat: Stat) -> None:
        """What we left when we were killed: as controller first, so that nobody takes it for a live one's."""
        logger.info("removing what session %#x of an earlier life has left", stat.ephemeral_owner)
        controller = await self._coordination.exists(CONTROLLER)
        if controller is not None and controller.ephemeral_owner == stat.ephemeral_owner:
            with suppress(NoNodeError):
                await retried_changes.delete(self._coordination, CONTROLLER)
        with suppress(NoNodeError):
            await retried_changes.delete(self._coordination, path)

    async def _refuse_if_alive(self, path: str) -> None:
        try:
            data, _ = await self._coordination.get(path)
        except NoNodeError:
            return
        ours = set(self._broker.endpoints.values())
        for endpoint in BrokerRegistration.from_json(data).endpoints:
            if (endpoint.host, endpoint.port) not in ours and await _answers(endpoint.host, endpoint.port):
                raise StartError(
                    f"another broker with the id {self._broker.broker_id} runs at {endpoint.host}:{endpoint.port}"
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
