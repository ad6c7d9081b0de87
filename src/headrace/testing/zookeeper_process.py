"""Runs Apache ZooKeeper in a process of its own, for tests. The jars come with pyspark; Java must be installed.

::

    with ZookeeperProcess(folder) as zookeeper:     # ZooKeeper serves when this line is reached
        ...  # clients at zookeeper.address
        zookeeper.kill()                            # SIGKILL
        zookeeper.start()                           # on the same data and port

    with ZookeeperEnsemble(folder, 3) as ensemble:
        ...  # clients at ensemble.address
        ensemble.servers[0].kill()
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from headrace.testing.ports import free_port

_ALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_IN_ENSEMBLE = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_START_TIMEOUT_S, _STOP_TIMEOUT_S, _POLL_S = 60.0, 20.0, 0.05


class ZookeeperMissing(Exception):
    """ZooKeeper cannot be started on this machine; the message says why."""


class ZookeeperProcess:
    """One server: alone, or a member of an ensemble."""

    def __init__(
        self,
        folder: Path,
        *,
        tick_time_ms: int = 1_000,
        number: int | None = None,
        peers: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Starts the server, and returns when it serves. Session timeouts are between 2 and 20 ticks.

        :param number: the server's number among ``peers`` (from 1), if it is a member of an ensemble. A member serves
            only together with others, so this does not wait for it.
        :param settings: further lines of zoo.cfg.
        :param java_options: further options of the Java process, such as properties.
        :raises ZookeeperMissing: if there is no Java or no jar, or if the server does not start.
        """
        self._java = shutil.which("java")
        if self._java is None:
            raise ZookeeperMissing("there is no java on the path; install a Java runtime, 17 or newer")
        self._jars = _jars()
        self._folder = folder
        self._java_options = java_options
        self._is_alone = number is None
        (folder / "data").mkdir(parents=True, exist_ok=True)
        if number is not None:
            (folder / "data" / "myid").write_text(f"{number}\n")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._config = folder / "zoo.cfg"
        self._config.write_text(
            f"tickTime={tick_time_ms}\ndataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\nforceSync=no\ninitLimit=20\nsyncLimit=10\n"
            + "".join(f"server.{index}={peer}\n" for index, peer in enumerate(peers, 1))
            + "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert self._java is not None
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*"]
        options += self._java_options
        main_class = _ALONE if self._is_alone else _IN_ENSEMBLE
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._java, *options, main_class, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if self._is_alone:
            self.wait()

    def wait(self) -> None:
        """Waits until the server serves."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._serves():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ZookeeperMissing(f"ZooKeeper does not start; the end of its log:\n{self.log[-2_000:]}")
            time.sleep(_POLL_S)

    def _serves(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), 1.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode: " in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspends the server with SIGSTOP. Its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(_STOP_TIMEOUT_S)

    def close(self) -> None:
        self._end(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ZookeeperEnsemble:
    """Several servers that replicate one tree."""

    def __init__(self, folder: Path, count: int = 3, *, tick_time_ms: int = 1_000) -> None:
        """Starts the ensemble, and returns when all servers serve."""
        peers = [f"127.0.0.1:{free_port()}:{free_port()}" for _ in range(count)]
        self.servers: list[ZookeeperProcess] = []
        try:
            for number in range(1, count + 1):
                self.servers.append(
                    ZookeeperProcess(folder / str(number), tick_time_ms=tick_time_ms, number=number, peers=peers)
                )
            for server in self.servers:
                server.wait()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ZookeeperMissing(
            "ZooKeeper's jars come with pyspark, which is not installed; run pip install 'headrace[spark]'"
        )
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    if not any(folder.glob("zookeeper-[0-9]*.jar")):
        raise ZookeeperMissing(f"there is no zookeeper-*.jar in {folder}")
    return folder
