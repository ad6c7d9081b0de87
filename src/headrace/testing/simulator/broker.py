"""A broker of the simulated cluster: the real broker's code on the simulated network, disk and znode tree."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from headrace.broker.broker import Broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.network.answer_parts import FilePart, Part, Parts, read_whole
from headrace.broker.network.channel import Channel
from headrace.broker.network.connection import Connection
from headrace.broker.network.listener import Listener
from headrace.broker.network.plain_channel import PlainChannel
from headrace.broker.network.request import Request
from headrace.coordination.interface import Coordination
from headrace.protocol.api import Api
from headrace.protocol.wire.encoder import Message
from headrace.protocol.wire.server_codec import EncodedReply
from headrace.testing.simulator.coordination import SimulatedCoordination, SimulatedTree
from headrace.testing.simulator.disk import SimulatedDisk
from headrace.testing.simulator.loop import SimulatedLoop
from headrace.testing.simulator.network import Network, SimulatedSocket
from headrace.testing.simulator.node import Node

PORT = 9092
#: The wall clock at the begin of a simulation.
_BEGIN_MS = 1_700_000_000_000


class SimulatedClock:
    """A clock that shows the loop's time. Its wall clock may be wrong by ``wall_error_ms``."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.wall_error_ms = 0

    def wall_ms(self) -> int:
        return _BEGIN_MS + int(self._loop.time() * 1000) + self.wall_error_ms

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic_ns(self) -> int:
        return self.monotonic_ms() * 1_000_000


class SimulatedConnection(Connection):
    __slots__ = ()

    def answer(self, request: Request, reply: Message | EncodedReply | None) -> None:
        channel = cast(SimulatedChannel, self._channel)
        network = _network_of(channel.loop)
        if network.on_fetched is not None and request.api is Api.FETCH and not request.is_from_follower:
            assert isinstance(reply, dict)
            network.on_fetched(self.local_address[0], request.body.isolation_level, reply)
        super().answer(request, reply)


class SimulatedChannel(PlainChannel):
    __slots__ = ()

    def _send_part(self, part: Part, parts: Parts) -> None:
        if not isinstance(part, FilePart):
            super()._send_part(part, parts)
            return
        self._socket.send(read_whole(part.source))
        parts.popleft()


class SimulatedListener(Listener):
    connection_class = SimulatedConnection

    def bind(self) -> tuple[str, int]:
        self._address = (self.address.host, self.address.port or PORT)
        return self._address

    def accept_connections(self) -> None:
        _network_of(self._loop).listen(self._address, self._take)

    def close(self) -> None:
        _network_of(self._loop).unlisten(self._address)

    def make_channel(self, sock: Any) -> Channel:
        return SimulatedChannel(sock, self._loop)

    def _take(self, sock: SimulatedSocket) -> None:
        self._serve(cast(Any, sock), f"{sock.peer}:0")


def _network_of(loop: Any) -> Network:
    network = cast(SimulatedLoop, loop).network
    assert network is not None
    return network


class SimulatedBroker(Broker):
    """A broker on a node. Create and start it in the context of the node."""

    listener_class = SimulatedListener

    def __init__(self, node: Node, config: BrokerConfig, network: Network, tree: SimulatedTree, random: Random) -> None:
        self.node = node
        self._network = network
        self._tree_host = tree
        self._random = random
        self.simulated_disk = SimulatedDisk(node)
        self.simulated_clock = SimulatedClock(network.loop)
        #: The client of the tree; None until the broker has connected.
        self.tree: SimulatedCoordination | None = None
        super().__init__(config, clock=self.simulated_clock, disk=self.simulated_disk)

    async def connect_to_tree(self) -> Coordination:
        timeout_ms = self.config.int("zookeeper.session.timeout.ms")
        self.tree = SimulatedCoordination(self._tree_host, self._network, self.node.name, self._random, timeout_ms)
        return self.tree
