"""A proxy between a client and a server. Tests can cut its connections, or hold the answers."""

import asyncio
from contextlib import suppress


class NetworkProxy:
    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self.is_dead = False
        #: Connections that were refused while the proxy was cut for good.
        self.refused_count = 0

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hold_answers(self) -> None:
        self._answers_flow.clear()

    def let_answers_go(self) -> None:
        self._answers_flow.set()

    def say(self, data: bytes) -> None:
        """Sends data to the clients as if it came from the server."""
        for writer in self._writers:
            writer.write(data)

    def cut(self, *, for_good: bool = False) -> None:
        """Ends all connections; with ``for_good`` also new ones, until ``mend``."""
        self.is_dead = for_good
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self.is_dead = False

    async def close(self) -> None:
        self._server.close()
        self.cut(for_good=True)
        self.let_answers_go()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.is_dead:
                self.refused_count += 1
            else:
                await self._carry(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
            answers = asyncio.create_task(self._pass_on(from_server, writer, self._answers_flow))
            await self._pass_on(reader, to_server, None)
            to_server.transport.abort()
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_flow: asyncio.Event | None
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if may_flow is not None:
                    await may_flow.wait()
                writer.write(data)
        writer.transport.abort()
