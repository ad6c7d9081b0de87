"""Runs a Spark standalone cluster for tests: a master and workers, each in a process of its own, on this machine.

::

    with SparkCluster(folder) as cluster:       # two workers are registered when this line is reached
        ...  # a driver with the master cluster.url
        cluster.kill_executor(cluster.executors[0])
        cluster.kill_worker(0)
        cluster.start_worker()

Spark comes from the package pyspark that is installed, and Java must be installed. Executors use the Python of this
program, and find this package. ``spark-class`` becomes the JVM that it starts, so the process of a daemon is the JVM.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from headrace.testing.ports import free_port

_START_TIMEOUT_S, _POLL_S = 60.0, 0.05
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """A cluster whose workers and executors tests may kill."""

    def __init__(self, folder: Path, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        """Starts the processes, and returns when all workers are registered.

        :param folder: for logs, and for the files of the executors. It must not exist.
        :param cores: of each worker.
        :param memory: what each worker may give to executors.
        """
        self._folder, self._cores, self._memory = folder, cores, memory
        folder.mkdir()
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._started = 0
        self._workers: list[_Daemon] = []
        self._master = _Daemon(folder / "master.log", _MASTER, "--port", str(port))
        try:
            self._master.wait_for("I have been elected leader")
            for _ in range(workers):
                self.start_worker()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start_worker(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        work = str(self._folder / name)
        limits = ("--cores", str(self._cores), "--memory", self._memory)
        worker = _Daemon(self._folder / f"{name}.log", _WORKER, *limits, "--work-dir", work, self.url)
        self._workers.append(worker)
        worker.wait_for("Successfully registered with master")

    @property
    def worker_count(self) -> int:
        return len(self._workers)

    def kill_worker(self, index: int) -> None:
        """Kills a worker and everything that it has started, as when a machine goes away."""
        self._workers.pop(index).kill()

    @property
    def executors(self) -> list[int]:
        """The process ids of the executors."""
        return [each for worker in self._workers for each in worker.children() if _EXECUTOR in _command(each)]

    def kill_executor(self, executor: int) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(executor, signal.SIGKILL)

    def close(self) -> None:
        for daemon in (*self._workers, self._master):
            daemon.kill()


class _Daemon:
    def __init__(self, log: Path, main_class: str, *arguments: str) -> None:
        self._log = log
        found = find_spec("pyspark")
        assert found is not None, "pyspark is not installed"
        (home,) = map(Path, found.submodule_search_locations or ())
        environment = {
            **os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(_packages()),
        }  # fmt: skip
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [home / "bin" / "spark-class", main_class, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True,
            )  # fmt: skip

    def wait_for(self, words: str) -> None:
        """Waits until these words are in the log."""
        give_up_s = time.monotonic() + _START_TIMEOUT_S
        while not re.search(words, text := self._log.read_text(errors="replace")):
            assert self._process.poll() is None, f"{self._log.stem} ended: {text}"
            assert time.monotonic() < give_up_s, f"{self._log.stem} did not start in {_START_TIMEOUT_S:.0f} s: {text}"
            time.sleep(_POLL_S)

    def children(self) -> list[int]:
        return _children(self._process.pid)

    def kill(self) -> None:
        """Kills the daemon and everything that it has started."""
        found = [self._process.pid]
        for each in found:  # which grows meanwhile
            found += _children(each)
        self._process.kill()
        self._process.wait()
        for each in found[1:]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


def _packages() -> list[str]:
    """Returns the folders in which executors find this package. The package may not be installed in their Python."""
    return [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]


def _children(parent: int) -> list[int]:
    """The processes that any thread of a process has started."""
    found: list[int] = []
    for tasks in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, tasks.read_text().split())
    return sorted(found)


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
