"""Starts the clusters that ``cluster.py`` compares: three brokers each, every broker a process that can be killed.

Apache Kafka: three KRaft nodes that are broker and controller at once, a heap of 1 GiB each, as its own scripts run it.
Headrace: ``headrace start --brokers 3``; or, where nobody may know of a death but by the session that times out
(``headrace_apart``), three ``headrace start`` on a ``headrace zookeeper``.
"""

from __future__ import annotations

import compileall
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import servers
from wire import Asker, quorum_leader

BROKERS = (1, 2, 3)
_READY_SECONDS = 120.0
_HEADRACE = str(Path(sys.executable).parent / "headrace")


@dataclass
class Node:
    id: int
    port: int
    process: psutil.Process
    #: What starts it again, on its data and port.
    command: list[str]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass
class Cluster:
    name: str
    nodes: dict[int, Node]
    #: Processes beside the brokers: who started them, or their ZooKeeper.
    others: list[psutil.Process]
    find_controller: Callable[[Cluster], int]
    _started_again: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if is_alive(node.process)]

    @property
    def controller(self) -> int:
        return self.find_controller(self)

    @property
    def cpu_seconds(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return sum(time.user + time.system for time in times)

    @property
    def memory_mb(self) -> float:
        """Of all its processes; what several of them share counts once (PSS)."""
        return sum(process.memory_full_info().pss for process in self._processes) / 1e6

    @property
    def resident_mb(self) -> float:
        return sum(process.memory_info().rss for process in self._processes) / 1e6

    @property
    def _processes(self) -> list[psutil.Process]:
        return [*(node.process for node in self.alive), *self.others]

    def kill(self, broker_id: int) -> None:
        self.nodes[broker_id].process.send_signal(signal.SIGKILL)

    def stop(self, broker_id: int) -> None:
        """By a controlled shutdown; returns when it has ended."""
        process = self.nodes[broker_id].process
        process.terminate()
        wait_for(lambda: not is_alive(process), f"the end of broker {broker_id}")

    def start_again(self, broker_id: int) -> None:
        """Returns at once."""
        node = self.nodes[broker_id]
        process = _start(node.command)
        self._started_again.append(process)
        node.process = psutil.Process(process.pid)

    def close(self) -> None:
        _end(self._started_again)


Start = Callable[[Path, Mapping[str, str]], AbstractContextManager[Cluster]]


def wait_for(condition: Callable[[], bool], what: str, limit_seconds: float = _READY_SECONDS) -> None:
    until = time.perf_counter() + limit_seconds
    while not condition():
        if time.perf_counter() > until:
            raise TimeoutError(f"not within {limit_seconds:.0f} s: {what}")
        time.sleep(0.01)


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@contextlib.contextmanager
def apache(data: Path, settings: Mapping[str, str] = servers.NOTHING) -> Iterator[Cluster]:
    ports, controller_ports = _free_ports(), _free_ports()
    voters = ",".join(f"{number}@127.0.0.1:{controller_ports[number]}" for number in BROKERS)
    commands: dict[int, list[str]] = {}
    formats: list[list[str]] = []
    data.mkdir(parents=True)
    for number in BROKERS:
        listeners = f"PLAINTEXT://127.0.0.1:{ports[number]},CONTROLLER://127.0.0.1:{controller_ports[number]}"
        properties = data / f"{number}.properties"
        all_settings = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{ports[number]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data / f"broker-{number}"),
            **settings,
        }
        properties.write_text("\n".join(f"{name}={value}" for name, value in all_settings.items()))
        tool = ("kafka.tools.StorageTool", "format", "-t", "bench-cluster-0000000", "-c", str(properties))
        formats.append(servers.java(*tool))
        commands[number] = servers.java("kafka.Kafka", str(properties), options=tuple(servers.JVM_OPTIONS))
    with ThreadPoolExecutor(len(BROKERS)) as pool:
        list(pool.map(partial(subprocess.run, check=True, capture_output=True, timeout=120), formats))
    processes = {number: _start(commands[number]) for number in BROKERS}
    try:
        nodes = {
            number: Node(number, ports[number], psutil.Process(process.pid), commands[number])
            for number, process in processes.items()
        }
        with _serving(Cluster("Apache Kafka", nodes, [], _apache_controller)) as cluster:
            yield cluster
    finally:
        _end(list(processes.values()))


@contextlib.contextmanager
def headrace(data: Path, settings: Mapping[str, str] = servers.NOTHING) -> Iterator[Cluster]:
    """As one command starts it: the parent looks after the brokers and serves their tree."""
    compileall.compile_dir(servers.ROOT / "src", quiet=1)
    first = _three_ports()
    command = [_HEADRACE, "start", "--brokers", str(len(BROKERS)), "--data", str(data), "--log-level", "warning"]
    parent = _start([*command, "--listen", f"127.0.0.1:{first}", *_overrides(settings)])
    try:
        process = psutil.Process(parent.pid)
        wait_for(lambda: len(process.children()) == len(BROKERS), "the brokers' processes")
        nodes: dict[int, Node] = {}
        for child in process.children():
            wait_for(lambda child=child: "--broker-id" in child.cmdline(), "a broker's process")  # type: ignore[misc]
            line = child.cmdline()
            number = int(line[line.index("--broker-id") + 1])
            nodes[number] = Node(number, first + number - 1, child, line)
        with _serving(Cluster("Headrace", dict(sorted(nodes.items())), [process], _headrace_controller)) as cluster:
            yield cluster
    finally:
        _end([parent])


@contextlib.contextmanager
def headrace_apart(data: Path, settings: Mapping[str, str] = servers.NOTHING) -> Iterator[Cluster]:
    """Nobody looks after the brokers; a death is known when the session has timed out."""
    tree_port, ports = servers.free_port(), _free_ports()
    tree = _start([_HEADRACE, "zookeeper", "--data", str(data / "zookeeper"), "--listen", f"127.0.0.1:{tree_port}"])
    processes = [tree]
    try:
        nodes: dict[int, Node] = {}
        for number in BROKERS:
            command = [_HEADRACE, "start", "--data", str(data / f"broker-{number}"), "--broker-id", str(number)]
            command += ["--zookeeper", f"127.0.0.1:{tree_port}", "--listen", f"127.0.0.1:{ports[number]}"]
            command += ["--log-level", "warning", *_overrides(settings)]
            process = _start(command)
            processes.append(process)
            nodes[number] = Node(number, ports[number], psutil.Process(process.pid), command)
        with _serving(Cluster("Headrace", nodes, [psutil.Process(tree.pid)], _headrace_controller)) as cluster:
            yield cluster
    finally:
        _end(processes)


@contextlib.contextmanager
def _serving(cluster: Cluster) -> Iterator[Cluster]:
    """When every broker knows of all."""
    try:
        for node in cluster.nodes.values():
            wait_for(partial(knows_all, node), f"broker {node.id} of {cluster.name} to serve")
        wait_for(lambda: cluster.controller in cluster.nodes, "a controller")
        yield cluster
    finally:
        cluster.close()


def knows_all(node: Node) -> bool:
    try:
        with Asker(node.address) as asker:
            return len(asker.metadata([]).brokers) == len(BROKERS)
    except OSError:
        return False


def _apache_controller(cluster: Cluster) -> int:
    """Its Metadata names any broker, as each passes on what is for the controller; the quorum knows the real one."""
    return quorum_leader(cluster.alive[0].address)


def _headrace_controller(cluster: Cluster) -> int:
    with Asker(cluster.alive[0].address) as asker:
        return int(asker.metadata([]).controller_id)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """At once: what they hold is thrown away afterwards. The brokers of a parent that is killed die with it."""
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def _overrides(settings: Mapping[str, str]) -> list[str]:
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _free_ports() -> dict[int, int]:
    return {number: servers.free_port() for number in BROKERS}


def _three_ports() -> int:
    """The first of three free ports in a row."""
    while True:
        first = servers.free_port()
        if all(_is_free(first + further) for further in range(1, len(BROKERS))):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True
