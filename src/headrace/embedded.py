"""Runs a broker inside this process, for tests, notebooks and small programs.

::

    with Broker() as broker:
        ...  # any Kafka client, at broker.bootstrap_servers

With ``with`` the broker runs on its own thread, with ``async with`` on the running event loop. Without ``data`` the
broker's folder is temporary, and is removed when the broker stops. Settings have Kafka's names:
``Broker(config={"num.partitions": 3})``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import TracebackType

from headrace.broker.broker import Broker as _Broker
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.event_loop import new_event_loop
from headrace.log.disk import Disk
from headrace.runtime.clock import Clock

#: Defaults for a broker that lives as long as a test: new groups wait for no further members, and the files of a
#: deleted topic are removed at once. The user's settings replace them.
_DEFAULTS = {"group.initial.rebalance.delay.ms": "0", "log.segment.delete.delay.ms": "0"}


class Broker:
    def __init__(
        self,
        *,
        data: Path | str | None = None,
        listen: str = "127.0.0.1:0",
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._data = None if data is None else Path(data)
        self._listen = listen
        self._properties = {name: _text(value) for name, value in (config or {}).items()}
        self._clock = clock
        self._disk = disk
        self._temporary: Path | None = None
        self._broker: _Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<headrace broker at {self.bootstrap_servers}>" if self._broker else "<headrace broker, stopped>"

    @property
    def core(self) -> _Broker:
        """The broker itself. It runs on another thread, unless you used ``async with``."""
        if self._broker is None:
            raise RuntimeError("the broker is not running: use it as a context manager, or call start()")
        return self._broker

    @property
    def host(self) -> str:
        return next(iter(self.core.endpoints.values()))[0]

    @property
    def port(self) -> int:
        return next(iter(self.core.endpoints.values()))[1]

    @property
    def bootstrap_servers(self) -> str:
        """The address for a client's ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    # -- async

    async def __aenter__(self) -> Broker:
        if self._data is None:
            self._temporary = Path(mkdtemp(prefix="headrace-"))
        try:
            broker = _Broker(self._config(), clock=self._clock, disk=self._disk)
            await broker.start()
        except BaseException:
            self._remove_temporary()
            raise
        self._broker = broker
        return self

    async def __aexit__(self, *_: object) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.stop()
        self._remove_temporary()

    # -- sync

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Runs the broker on a thread. Returns when the broker serves."""
        assert self._thread is None, "the broker is started already"
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="headrace", daemon=True)
        self._thread.start()
        try:
            self._loop = started.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def stop(self) -> None:
        """Stops the broker. Returns when everything is on disk."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        self._loop = None

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._stopping = asyncio.Event()
        try:
            await self.__aenter__()
        except BaseException as error:  # noqa: BLE001  raised where start() was called
            started.set_exception(error)
            return
        started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        await self.__aexit__()

    def _config(self) -> BrokerConfig:
        folder = self._data or self._temporary
        assert folder is not None
        return BrokerConfig.load(
            {
                **_DEFAULTS,
                "listeners": f"PLAINTEXT://{self._listen}",
                "log.dirs": str(folder),
                **self._properties,
            }
        )

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
