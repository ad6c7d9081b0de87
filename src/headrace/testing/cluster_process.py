"""Runs a cluster of brokers, each in a process of its own, for tests that kill, pause and restart them.

::

    with ClusterProcess(folder) as cluster:         # three brokers, 1 to 3, on our own ZooKeeper
        ...  # clients at cluster.bootstrap_servers
        cluster.kill(2)                             # SIGKILL
        cluster.restart(2)                          # on the same data and port
        cluster.stop(3)                             # SIGTERM: a controlled shutdown

    with LocalClusterProcess(folder) as cluster:    # `headrace start --brokers 3`: one parent process
        cluster.kill_broker(1)
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from headrace.testing.broker_process import BrokerProcess


class Host(NamedTuple):
    """The host on which a process of the cluster runs."""

    address: str = "127.0.0.1"
    #: A command that runs the command that follows it, as in :class:`BrokerProcess`.
    runner: Sequence[str] = ()


_BROKER_LINE = re.compile(r"broker (\d+) is process (\d+) at (\S+)")


class ClusterProcess:
    """Brokers with the ids 1 to N, and a ZooKeeper: Headrace's own, unless an address is given."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        brokers: int = 3,
        zookeeper: str | None = None,
        session_timeout_ms: int = 6_000,
        tick_time_ms: int = 500,
        host_of: Callable[[str], Host] = lambda _: Host(),
        protocol: str = "PLAINTEXT",
    ) -> None:
        """Starts the cluster, and returns when all brokers serve.

        :param arguments: further arguments of each ``headrace start``, such as ``"-o", "num.partitions=3"``.
        :param zookeeper: the address of a ZooKeeper that runs already; if None, ``headrace zookeeper`` is started.
        :param session_timeout_ms: how long after a kill the cluster notices that a broker is dead.
        :param host_of: from ``broker-N`` or ``zookeeper`` to its host; by default all run on 127.0.0.1.
        :param protocol: the security protocol of the one listener of each broker.
        """
        self._protocol = protocol
        self._host_of = host_of
        self._folder = folder
        self._tick_time_ms = tick_time_ms
        self._arguments = ("-o", f"zookeeper.session.timeout.ms={session_timeout_ms}", *arguments)
        self.brokers: dict[int, BrokerProcess] = {}
        self._ended: list[BrokerProcess] = []
        self.zookeeper: BrokerProcess | None = None
        try:
            if zookeeper is None:
                self.zookeeper = self._start_zookeeper()
            self.zookeeper_address = zookeeper or (self.zookeeper.address if self.zookeeper else "")
            with ThreadPoolExecutor(brokers) as pool:
                self.brokers = dict(enumerate(pool.map(self._start, range(1, brokers + 1)), start=1))
        except BaseException:
            self.close()
            raise
        self.addresses = {number: broker.address for number, broker in self.brokers.items()}

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses.values())

    def _start(self, number: int, listen: str | None = None) -> BrokerProcess:
        belongs = ("--zookeeper", self.zookeeper_address, "--broker-id", str(number))
        host = self._host_of(f"broker-{number}").address
        listen = f"{self._protocol}://{listen or f'{host}:0'}"
        return self._process("start", f"broker-{number}", *belongs, *self._arguments, listen=listen)

    def _start_zookeeper(self, listen: str | None = None) -> BrokerProcess:
        return self._process("zookeeper", "zookeeper", "--tick-time", str(self._tick_time_ms), listen=listen)

    def _process(self, command: str, name: str, *arguments: str, listen: str | None) -> BrokerProcess:
        host = self._host_of(name)
        listen = listen or f"{host.address}:0"
        return BrokerProcess(self._folder / name, *arguments, command=command, listen=listen, runner=host.runner)

    def restart_zookeeper(self) -> None:
        """Starts the killed ZooKeeper of this cluster again, on its data and its port."""
        assert self.zookeeper is not None
        assert not self.zookeeper.is_running, "the ZooKeeper still runs; kill it first"
        self.zookeeper.close()
        self.zookeeper = self._start_zookeeper(self.zookeeper_address)

    def kill(self, number: int) -> None:
        """Ends a broker at once, as ``kill -9`` does."""
        self.brokers[number].kill()

    def stop(self, number: int) -> int:
        """Stops a broker by a controlled shutdown; returns its exit code."""
        return self.brokers[number].terminate()

    def pause(self, number: int) -> None:
        self.brokers[number].pause()

    def resume(self, number: int) -> None:
        self.brokers[number].resume()

    def restart(self, number: int) -> None:
        """Starts a broker again that was killed or stopped, on its data and its port."""
        assert not self.brokers[number].is_running, f"broker {number} still runs; kill or stop it first"
        self._ended.append(self.brokers[number])
        self.brokers[number] = self._start(number, self.addresses[number])

    def log(self, number: int) -> str:
        """Returns the text that a broker has written to standard error since its last start."""
        return self.brokers[number].log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills all processes of the cluster."""
        for broker in (*self.brokers.values(), *self._ended):
            broker.close()
        if self.zookeeper is not None:
            self.zookeeper.close()


class LocalClusterProcess(BrokerProcess):
    """``headrace start --brokers N``; ``address`` has the addresses of all brokers."""

    def __init__(self, folder: Path, *arguments: str, brokers: int = 3) -> None:
        super().__init__(folder, "--brokers", str(brokers), *arguments)

    def pid_of(self, number: int) -> int:
        """The process id of a broker; the first broker has the number 1."""
        return next(int(pid) for found, pid, _ in _BROKER_LINE.findall(self.log) if int(found) == number)

    def kill_broker(self, number: int) -> None:
        os.kill(self.pid_of(number), signal.SIGKILL)
