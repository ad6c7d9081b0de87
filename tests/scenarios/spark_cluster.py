"""A Spark standalone cluster of processes: a master and workers, from the pyspark package that is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark
from views_process import wait_until

from headrace.testing.ports import free_port

_HOME = Path(pyspark.__file__).parent
_PATIENCE_S = 60.0


class _Daemon:
    """``spark-class`` becomes the JVM that it starts, so its process is the one to kill."""

    def __init__(self, log: Path, main_class: str, *arguments: str) -> None:
        self._log = log
        environment = {
            **os.environ, "SPARK_HOME": str(_HOME), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }  # fmt: skip
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [_HOME / "bin" / "spark-class", main_class, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True,
            )  # fmt: skip

    def says(self, words: str) -> None:
        wait_until(
            lambda: self._process.poll() is not None or bool(re.search(words, self._text())), self._text, _PATIENCE_S
        )
        assert self._process.poll() is None, self._text()

    def _text(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def executors(self) -> list[psutil.Process]:
        return [one for one in psutil.Process(self._process.pid).children() if _is_executor(one)]

    def kill(self) -> None:
        """With all that it has started: a machine that goes away."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        self._process.kill()
        self._process.wait()
        for child in children:
            if child.is_running():
                child.kill()


class SparkCluster:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        folder.mkdir()
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._master = _Daemon(folder / "master.log", "org.apache.spark.deploy.master.Master", "--port", str(port))
        self.workers: list[_Daemon] = []
        self._started = 0
        try:
            self._master.says("I have been elected leader")
            for _ in range(workers):
                self.start_worker()
        except BaseException:
            self.close()
            raise

    def start_worker(self) -> None:
        self._started += 1
        name = f"worker-{self._started}"
        worker = _Daemon(
            self._folder / f"{name}.log", "org.apache.spark.deploy.worker.Worker",
            "--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name), self.url,
        )  # fmt: skip
        self.workers.append(worker)
        worker.says("Successfully registered with master")

    def kill_worker(self, index: int) -> None:
        self.workers.pop(index).kill()

    @property
    def executors(self) -> list[psutil.Process]:
        return [executor for worker in self.workers for executor in worker.executors]

    def close(self) -> None:
        for daemon in (*self.workers, self._master):
            daemon.kill()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
