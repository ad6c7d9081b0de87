"""The three kinds of trees, with the same interface for tests: in this process, served by Headrace, in a real
ZooKeeper.
"""

import asyncio
import struct
from collections.abc import Callable

from network_proxy import NetworkProxy

from headrace.coordination.client.zookeeper_client import ZookeeperCoordination
from headrace.coordination.interface import Coordination
from headrace.coordination.server.service import TreeService
from headrace.coordination.server.tree_server import TreeServer
from headrace.coordination.tree.host import TreeHost
from headrace.runtime.timer import Timer
from headrace.testing import ManualClock
from headrace.testing.expiring_coordination import ExpiringCoordination

PATIENCE_S = 30


async def until(is_so: Callable[[], object]) -> None:
    """Runs the event loop until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  of many things, which have no event
            await asyncio.sleep(0.001)


class LocalTreeHarness:
    def __init__(self) -> None:
        self._host = TreeHost(ManualClock())

    async def client(self) -> ExpiringCoordination:
        return ExpiringCoordination(self._host)

    async def end_session(self, client: ExpiringCoordination) -> None:
        client.expire()

    async def close(self) -> None:
        pass


class RemoteTreeHarness:
    """A server at an address, with a proxy in front of it for each client. A chroot separates tests."""

    def __init__(self, address: str, chroot: str) -> None:
        self.address, self.chroot = address, chroot
        self._proxies: dict[Coordination, NetworkProxy] = {}

    async def client(self, chroot: str | None = None, **options: int) -> ZookeeperCoordination:
        proxy = NetworkProxy(self.address)
        connect = await proxy.open() + (self.chroot if chroot is None else chroot)
        client = await ZookeeperCoordination.connect(connect, **{"session_timeout_ms": 20_000} | options)
        self._proxies[client] = proxy
        return client

    def proxy(self, client: Coordination) -> NetworkProxy:
        return self._proxies[client]

    @staticmethod
    def credentials(client: ZookeeperCoordination) -> tuple[int, bytes]:
        """The id and password of the client's session."""
        return client._transport._client.client_id

    async def end_session(self, client: ZookeeperCoordination, credentials: tuple[int, bytes] | None = None) -> None:
        """Ends a session as its server would: another connection resumes the session and closes it."""
        session_id, password = credentials or self.credentials(client)
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        taken = struct.pack(">iqiq", 0, 0, 20_000, session_id) + struct.pack(">i", len(password)) + password + b"\0"
        writer.write(struct.pack(">i", len(taken)) + taken + struct.pack(">iii", 8, 1, -11))
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()

    async def close(self) -> None:
        for client, proxy in self._proxies.items():
            proxy.mend()
            proxy.let_answers_go()
            await client.close()
            await proxy.close()


class ServedTreeHarness(RemoteTreeHarness):
    def __init__(self, chroot: str) -> None:
        super().__init__("", chroot)
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.service = TreeService.of(TreeHost(self.clock), self.clock, self.timer, secret=b"secret")
        self._server = TreeServer(self.service)

    async def start(self) -> None:
        host, port = await self._server.start("127.0.0.1", 0)
        self.address = f"{host}:{port}"

    async def close(self) -> None:
        await super().close()
        await self._server.stop()
