"""The clients of ``fairness.py``. Each runs as a process of its own: ``fairness_loads.py CLIENT PORT TOPIC ...``.

They send frames that are encoded once, over bare sockets, so that they cost little beside the broker. A client prints
``ready`` when its connections are open. Then it sends until its time is over, or until its process is ended, and prints
one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import struct
import sys
import time
from collections.abc import Awaitable, Callable

from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.testing.raw_client import encode_request

_LENGTH = struct.Struct(">i")
_HUGE_VALUE_BYTES = 900_000
HUGE_PARTITIONS = 10
_IN_FLIGHT = 5


def produce_frame(topic: str, value: bytes, partitions: int = 1) -> bytes:
    """A Produce request with one record per partition, acks=all."""
    records = build_batch([Record(0, time.time_ns() // 1_000_000, None, value, ())])
    data = [{"index": index, "records": records} for index in range(partitions)]
    topic_data = [{"name": topic, "partition_data": data}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": topic_data}
    return _framed(encode_request(Api.PRODUCE, 9, 1, "fairness", **fields))


def _framed(request: bytes) -> bytes:
    return _LENGTH.pack(len(request)) + request


class Peer:
    """A connection to the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, frame: bytes) -> None:
        self._writer.write(frame)
        await self._writer.drain()

    async def receive(self) -> bytes:
        (size_bytes,) = _LENGTH.unpack(await self._reader.readexactly(4))
        return await self._reader.readexactly(size_bytes)


async def ordinary(port: int, topic: str, seconds: float, clients: int, per_second: float) -> dict[str, float]:
    """Ordinary clients: each sends a record of 100 bytes so often per second, and waits for its acknowledgement."""
    frame = produce_frame(topic, b"x" * 100)
    peers = [await Peer.connect(port) for _ in range(clients)]
    waits_ms: list[float] = []
    print("ready", flush=True)
    end = time.perf_counter() + seconds

    async def send_regularly(peer: Peer, number: int) -> None:
        due = time.perf_counter() + number / clients / per_second
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            await peer.send(frame)
            await peer.receive()
            waits_ms.append((time.perf_counter() - sent) * 1000)
            due = max(due + 1 / per_second, time.perf_counter())

    await asyncio.gather(*(send_regularly(peer, number) for number, peer in enumerate(peers)))
    percentiles = statistics.quantiles(waits_ms, n=1000)
    return {"acks": len(waits_ms), "p50": percentiles[499], "p99": percentiles[989], "p999": percentiles[998]}


async def fast(port: int, topic: str) -> None:
    """One client at full speed: five Produce requests of 16 KB in flight."""
    frame = produce_frame(topic, b"x" * 16_000)
    peer = await Peer.connect(port)
    await peer.send(frame * _IN_FLIGHT)
    print("ready", flush=True)
    while True:
        await peer.receive()
        await peer.send(frame)


async def huge(port: int, topic: str) -> None:
    """One client with requests of 9 MB."""
    frame = produce_frame(topic, b"x" * _HUGE_VALUE_BYTES, HUGE_PARTITIONS)
    peer = await Peer.connect(port)
    print("ready", flush=True)
    while True:
        await peer.send(frame)
        await peer.receive()


async def crowd(port: int, topic: str, connections: int) -> None:
    """One client with thousands of connections. Each asks for the topic's metadata once per second."""
    limit = max(connections + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, max(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    fields = {
        "topics": [{"topic_id": None, "name": topic}],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    frame = _framed(encode_request(Api.METADATA, 11, 1, "fairness-crowd", **fields))
    peers = [await Peer.connect(port) for _ in range(connections)]
    print("ready", flush=True)

    async def ask(peer: Peer, number: int) -> None:
        await asyncio.sleep(number / connections)
        while True:
            await peer.send(frame)
            await peer.receive()
            await asyncio.sleep(1)

    await asyncio.gather(*(ask(peer, number) for number, peer in enumerate(peers)))


_CLIENTS: dict[str, Callable[..., Awaitable[object]]] = {
    "ordinary": ordinary,
    "fast": fast,
    "huge": huge,
    "crowd": crowd,
}


async def _main(name: str, port: str, topic: str, *numbers: str) -> None:
    arguments = [float(number) if "." in number else int(number) for number in numbers]
    print(json.dumps(await _CLIENTS[name](int(port), topic, *arguments)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
