"""A cluster of brokers, each in a process of its own, for tests that kill, pause and restart them.

::

    with ClusterProcess(folder) as cluster:         # three brokers, 1 to 3, on our own ZooKeeper
        ...  # clients at cluster.bootstrap_servers
        cluster.kill(2)                             # SIGKILL
        cluster.restart(2)                          # again, on the same data and port
        cluster.stop(3)                             # by a controlled shutdown

    with LocalClusterProcess(folder) as cluster:    # `headrace start --brokers 3`: one parent looks after all
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
    """Where one of them runs."""

    address: str = "127.0.0.1"
    #: See :class:`BrokerProcess`.
    runner: Sequence[str] = ()


_BROKER_LINE = re.compile(r"broker (\d+) is process (\d+) at (\S+)")


class ClusterProcess:
    def __init__(
        self,
        folder: Path,
        *arguments: str,
        brokers: int = 3,
        zookeeper: str | None = None,
        session_timeout_ms: int = 6_000,
        tick_time_ms: int = 500,
        host_of: Callable[[str], Host] = lambda _: Host(),
    ) -> None:
        """Returns when all serve, and know of each other.

        :param arguments: for each ``headrace start``.
        :param zookeeper: the address of one that runs already; else ours is started.
        :param host_of: where ``broker-N`` and ``zookeeper`` are to run; all on 127.0.0.1 if it is not given.
        """
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
        return self._process("start", f"broker-{number}", *belongs, *self._arguments, listen=listen)

    def _start_zookeeper(self, listen: str | None = None) -> BrokerProcess:
        return self._process("zookeeper", "zookeeper", "--tick-time", str(self._tick_time_ms), listen=listen)

    def _process(self, command: str, name: str, *arguments: str, listen: str | None) -> BrokerProcess:
        host = self._host_of(name)
        listen = listen or f"{host.address}:0"
        return BrokerProcess(self._folder / name, *arguments, command=command, listen=listen, runner=host.runner)

    def restart_zookeeper(self) -> None:
        """Starts ours again after it was killed, on its data and its port."""
        assert self.zookeeper is not None
        assert not self.zookeeper.is_running, "it still runs"
        self.zookeeper.close()
        self.zookeeper = self._start_zookeeper(self.zookeeper_address)

    def kill(self, number: int) -> None:
        """Ends a broker at once, as ``kill -9`` does."""
        self.brokers[number].kill()

    def stop(self, number: int) -> int:
        """Stops one by a controlled shutdown; its exit code."""
        return self.brokers[number].terminate()

    def pause(self, number: int) -> None:
        self.brokers[number].pause()

    def resume(self, number: int) -> None:
        self.brokers[number].resume()

    def restart(self, number: int) -> None:
        """Starts one that was ended, on its data and its port."""
        assert not self.brokers[number].is_running, "it still runs"
        self._ended.append(self.brokers[number])
        self.brokers[number] = self._start(number, self.addresses[number])

    def log(self, number: int) -> str:
        """What a broker has said since it was last started."""
        return self.brokers[number].log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all of them at once."""
        for broker in (*self.brokers.values(), *self._ended):
            broker.close()
        if self.zookeeper is not None:
            self.zookeeper.close()


class LocalClusterProcess(BrokerProcess):
    """``headrace start --brokers N``; ``address`` has all of them."""

    def __init__(self, folder: Path, *arguments: str, brokers: int = 3) -> None:
        super().__init__(folder, "--brokers", str(brokers), *arguments)

    def pid_of(self, number: int) -> int:
        """The process of a broker, from 1 on."""
        return next(int(pid) for found, pid, _ in _BROKER_LINE.findall(self.log) if int(found) == number)

    def kill_broker(self, number: int) -> None:
        os.kill(self.pid_of(number), signal.SIGKILL)
