"""The parts of the simulator: its clock, its network, its disk, its crashes."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from headrace.coordination.interface import ConnectionLostError, CoordinationError, SessionState
from headrace.testing.faulty_disk import Crash
from headrace.testing.simulator.broker import SimulatedClock
from headrace.testing.simulator.coordination import SimulatedCoordination, SimulatedTree
from headrace.testing.simulator.disk import SimulatedDisk
from headrace.testing.simulator.loop import Deadlock, SimulatedLoop
from headrace.testing.simulator.network import Network
from headrace.testing.simulator.node import Node


@pytest.fixture
def loop():
    made = SimulatedLoop(Random(1))
    yield made
    made.close()


def test_time_jumps(loop):
    async def wait():
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(wait()) == pytest.approx(3600)


def test_waiting_for_nothing_is_told(loop):
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_what_runs_on_a_thread_takes_a_moment(loop):
    async def run():
        assert await loop.run_in_executor(None, lambda: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await loop.run_in_executor(None, int, "no")
        return loop.time()

    assert 0 < loop.run_until_complete(run()) < 0.1


def test_the_dead_do_nothing(loop):
    done = []

    async def work():
        try:
            await asyncio.sleep(1)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def run():
        node = Node("n")
        with node.running():
            loop.create_task(work())
            loop.call_later(0.9, done.append, "rang")
        await asyncio.sleep(0.5)
        node.crash()
        await asyncio.sleep(10)
        assert done == []
        return node

    node = loop.run_until_complete(run())
    assert len(node.tasks) == 1
    for task in node.tasks:
        task.get_coro().close()


def test_who_is_paused_is_late(loop):
    heard = []

    async def run():
        node = Node("n")
        with node.running():
            loop.call_later(1, lambda: heard.append(loop.time()))
        node.pause()
        await asyncio.sleep(5)
        assert heard == []
        node.resume()
        await asyncio.sleep(0)
        assert heard == [pytest.approx(5)]

    loop.run_until_complete(run())


def test_who_goes_on_is_still_who_it_was(loop):
    """Work that began late ends with the node; a task that was about to run continues."""
    done = []

    async def work():
        await ready
        done.append("woke up")
        loop.call_later(1, done.append, "rang")

    async def run():
        node = Node("n")
        with node.running():
            loop.create_task(work())
            loop.call_later(1, lambda: loop.call_later(1, done.append, "rang late"))
        await asyncio.sleep(0)
        ready.set_result(None)
        node.pause()
        await asyncio.sleep(2)
        node.resume()
        await asyncio.sleep(0.5)
        assert done == ["woke up"]
        node.crash()
        await asyncio.sleep(5)
        assert done == ["woke up"]

    ready = loop.create_future()
    loop.run_until_complete(run())


class _Client(asyncio.Protocol):
    def __init__(self):
        self.received = b""
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        self.received += data

    def connection_lost(self, exc):
        self.ended.set_result(exc)


async def _connected(loop):
    """A client of a server that sends back what it gets."""
    network = Network(loop, Random(2), slowest_s=0.05)
    server = Node("server")

    def accept(sock):
        room = bytearray(100)

        def echo():
            size = sock.recv_into(memoryview(room))
            sock.send(bytes(room[:size]))

        sock.watch(echo, ())

    with server.running():
        network.listen(("server", 9092), accept)
    transport, client = await loop.create_connection(_Client, "server", 9092)
    return network, server, transport, client


def test_bytes_come_in_order_and_late(loop):
    async def run():
        _, _, transport, client = await _connected(loop)
        sent = b"".join(b"%03d " % number for number in range(200))
        for at in range(0, len(sent), 4):
            transport.write(sent[at : at + 4])
        assert client.received == b""
        await asyncio.sleep(1)
        assert client.received == sent

    loop.run_until_complete(run())


def test_nothing_passes_a_link_that_is_cut(loop):
    async def run():
        network, _, transport, client = await _connected(loop)
        network.cut("server", "client")
        transport.write(b"hello")
        await asyncio.sleep(5)
        assert client.received == b""
        network.heal()
        await asyncio.sleep(1)
        assert client.received == b"hello"

    loop.run_until_complete(run())


def test_a_link_that_stays_cut_breaks_its_connections(loop):
    async def run():
        network, _, transport, client = await _connected(loop)
        network.cut("client", "server")
        transport.write(b"hello")
        assert isinstance(await client.ended, ConnectionResetError)

    loop.run_until_complete(run())


def test_a_dead_server_is_noticed(loop):
    async def run():
        _, server, _, client = await _connected(loop)
        server.crash()
        assert isinstance(await client.ended, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(_Client, "server", 9092)

    loop.run_until_complete(run())


class TestTree:
    _TIMEOUT_MS = 1_500

    @pytest.fixture
    def tree(self, loop):
        return SimulatedTree(SimulatedClock(loop), Random(3))

    @pytest.fixture
    def run(self, loop, tree):
        """Runs a story of a client, of which is told what it has heard of its session."""
        network = Network(loop, Random(2))

        def run(story):
            async def told():
                heard = []
                client = SimulatedCoordination(tree, network, "n", Random(1), self._TIMEOUT_MS)
                client.add_session_listener(heard.append)
                await client.create("/a", b"1", ephemeral=True)
                await story(client, heard)
                await client.close()

            loop.run_until_complete(told())

        return run

    def _expiring(self, loop, tree):
        async def expire():
            while True:
                await asyncio.sleep(0.2)
                tree.expire_sessions()

        return loop.create_task(expire())

    def test_without_a_quorum_sessions_go_on(self, loop, tree, run):
        async def story(client, heard):
            expiring, session_id = self._expiring(loop, tree), client.session_id
            tree.has_quorum = False
            with pytest.raises(ConnectionLostError):
                await client.set("/a", b"2")
            reading = loop.create_task(client.get("/a"))
            await asyncio.sleep(10)
            assert not reading.done()
            tree.regain_quorum()
            assert (await reading)[0] == b"1"
            assert client.session_id == session_id
            assert heard == [SessionState.SUSPENDED, SessionState.CONNECTED]
            expiring.cancel()

        run(story)

    def test_who_is_cut_off_from_it_loses_its_session(self, loop, tree, run):
        async def story(client, heard):
            expiring, session_id = self._expiring(loop, tree), client.session_id
            tree.is_cut_off = True
            await asyncio.sleep(3)
            assert tree.tree.exists("/a") is None
            tree.is_cut_off = False
            assert await client.exists("/a") is None
            assert client.session_id != session_id
            assert heard == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
            expiring.cancel()

        run(story)

    def test_what_it_refuses_is_not_done(self, tree, run):
        async def story(client, heard):
            tree.error_share = 1.0
            for ask in (lambda: client.set("/a", b"2"), lambda: client.create("/b"), lambda: client.get("/a")):
                with pytest.raises(CoordinationError, match="SYSTEMERROR"):
                    await ask()
            tree.error_share = 0.0
            assert (await client.get("/a"))[0] == b"1"
            assert await client.exists("/b") is None
            assert heard == []

        run(story)


class TestDisk:
    def _written(self, path, *, flushed: int, written: int):
        node = Node("n")
        disk = SimulatedDisk(node)
        fd = disk.open(str(path))
        for number in range(written):
            if number == flushed:
                disk.fsync(fd)
            disk.write(fd, [b"%08d" % number], number * 8, 8)
        node.crash()
        return disk

    def test_a_killed_process_leaves_what_it_wrote(self, tmp_path):
        disk = self._written(tmp_path / "log", flushed=2, written=5)
        assert (tmp_path / "log").read_bytes() == b"".join(b"%08d" % number for number in range(5))
        with pytest.raises(Crash):
            disk.open(str(tmp_path / "log"))

    def test_without_power_what_was_not_flushed_may_go_from_its_end(self, tmp_path):
        whole = b"".join(b"%08d" % number for number in range(5))
        sizes = set()
        for seed in range(60):
            path = tmp_path / f"log-{seed}"
            self._written(path, flushed=2, written=5).lose_power(Random(seed))
            left = path.read_bytes()
            assert len(left) >= 16
            assert left == whole[: len(left)]
            sizes.add(len(left))
        assert {16, 24, 32, 40} <= sizes
        assert any(size % 8 for size in sizes), "a write is torn now and then"

    def test_what_was_overwritten_comes_back(self, tmp_path):
        path = tmp_path / "file"
        path.write_bytes(b"before!!")
        for seed in range(20):
            node = Node("n")
            disk = SimulatedDisk(node)
            fd = disk.open(str(path), os.O_RDWR)
            disk.write(fd, [b"after"], 0, 5)
            node.crash()
            disk.lose_power(Random(seed))
            assert path.read_bytes() in (b"before!!", b"aftere!!")
            path.write_bytes(b"before!!")
