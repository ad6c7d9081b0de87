"""Three nodes of Apache Kafka, each broker and controller, that are killed and come back at the same addresses."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

NODES = 3
_JAVA = ("java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: A dead broker is noticed within three seconds, not nine.
_SETTINGS = """
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
controller.quorum.election.timeout.ms=500
controller.quorum.fetch.timeout.ms=1000
default.replication.factor=3
group.initial.rebalance.delay.ms=0
min.insync.replicas=2
offsets.topic.num.partitions=6
offsets.topic.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=3
transaction.state.log.replication.factor=3
"""


class ApacheCluster:
    def __init__(self, jars: Path, folder: Path) -> None:
        self._classes, self._folder = f"{jars}/*", folder
        self._ports, self._controller_ports = _free_ports(NODES), _free_ports(NODES)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def servers(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self._ports]

    def __enter__(self) -> Self:
        for node in range(NODES):
            self._properties(node).write_text(self._settings(node))
            self._run("kafka.tools.StorageTool", "format", "-t", "headrace-clients-00000", "-c", self._properties(node))
        self._processes = [self._started(node) for node in range(NODES)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def kill(self, node: int, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends a node; nodes are numbered from 0, and their ids from 1."""
        self._processes[node].send_signal(how)
        self._processes[node].wait()

    def start(self, node: int) -> None:
        self._processes[node] = self._started(node)

    def _properties(self, node: int) -> Path:
        return self._folder / f"node{node}.properties"

    def _settings(self, node: int) -> str:
        client, controller = self._ports[node], self._controller_ports[node]
        voters = ",".join(f"{at + 1}@127.0.0.1:{port}" for at, port in enumerate(self._controller_ports))
        return f"""
process.roles=broker,controller
node.id={node + 1}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={self._folder}/node{node}
{_SETTINGS}"""

    def _run(self, *arguments: object) -> None:
        command = [*_JAVA, "-cp", self._classes, *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def _started(self, node: int) -> subprocess.Popen[bytes]:
        command = [*_JAVA, "-cp", self._classes, "kafka.Kafka", str(self._properties(node))]
        with (self._folder / f"node{node}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
