"""A server that answers every request at once with 60 bytes. It measures the machine's own time for a round trip.

The server runs as Headrace does: a process of its own with one uvloop. The difference to a broker's latency is the
broker's share. ``python bench/echo.py`` prints its port and serves one connection after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

_ANSWER = (60).to_bytes(4, "big") + bytes(60)


@dataclass
class Echo:
    port: int


@contextlib.contextmanager
def running() -> Iterator[Echo]:
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Echo(int(process.stdout.readline()))
        finally:
            process.terminate()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop.add_reader(client, _answer, loop, client)


def _answer(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    if client.recv(4096):
        client.send(_ANSWER)
    else:
        loop.remove_reader(client)
        client.close()


if __name__ == "__main__":
    uvloop.run(_serve())
