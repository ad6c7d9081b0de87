"""Starts the two brokers that the benchmarks compare, each in a process of its own.

Maven fetches Apache Kafka at the first use into ``.cache/apache-kafka-VERSION``. Apache Kafka runs as its own scripts
run it: one KRaft node, a heap of 1 GiB, G1. Headrace runs as users run it: ``headrace start``.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil
from confluent_kafka.admin import AdminClient

from headrace.testing.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.3.0"
KAFKA_JARS = ROOT / ".cache" / f"apache-kafka-{KAFKA_VERSION}"
JVM_OPTIONS = [
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
]  # fmt: skip
_START_SECONDS = 180.0
_POM = """<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{0}</version></dependency>
</dependencies></project>"""


#: No settings but those that a broker needs to start.
NOTHING: Mapping[str, str] = MappingProxyType({})
#: The ports of further listeners, by name.
Listeners = Mapping[str, int]
NO_LISTENERS: Listeners = MappingProxyType({})


@dataclass
class Server:
    name: str
    port: int
    process: psutil.Process
    #: When the process was started, by ``time.perf_counter``.
    started: float
    #: From then to its first answer to a Metadata request.
    start_seconds: float
    #: Further settings of clients, by librdkafka's names.
    client_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return times.user + times.system

    @property
    def memory_mb(self) -> float:
        return self.process.memory_info().rss / 1e6


def fetch_apache() -> Path:
    """The folder with Apache Kafka's jars."""
    if not KAFKA_JARS.exists():
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                sys.exit(f"{tool} is not installed: the benchmarks run Apache Kafka beside Headrace")
        print(f"fetching Apache Kafka {KAFKA_VERSION} by Maven ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pom.xml").write_text(_POM.format(KAFKA_VERSION))
            jars = Path(folder, "jars")
            command = ["mvn", "-q", "-f", folder, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            subprocess.run(command, check=True, timeout=600)
            KAFKA_JARS.parent.mkdir(exist_ok=True)
            shutil.copytree(jars, KAFKA_JARS)
    return KAFKA_JARS


def java(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    return ["java", *options, "-cp", f"{fetch_apache()}/*", main_class, *arguments]


@contextlib.contextmanager
def apache(
    data: Path, settings: Mapping[str, str] = NOTHING, *, listeners: Listeners = NO_LISTENERS
) -> Iterator[Server]:
    """Apache Kafka on that folder, which is formatted if it is empty."""
    port, controller_port = free_port(), free_port()
    addresses = _addresses({"PLAINTEXT": port, **listeners})
    data.mkdir(parents=True, exist_ok=True)
    properties = data.parent / f"{data.name}.properties"
    properties.write_text(
        "\n".join(
            [
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
                f"listeners={addresses},CONTROLLER://127.0.0.1:{controller_port}",
                f"advertised.listeners={addresses}",
                "controller.listener.names=CONTROLLER",
                f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{_protocols(listeners)}",
                f"log.dirs={data}",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                *(f"{name}={value}" for name, value in settings.items()),
            ]
        )
    )
    if not any(data.iterdir()):
        format_command = java("kafka.tools.StorageTool", "format", "-t", "bench-cluster-0000000", "-c", str(properties))
        subprocess.run(format_command, check=True, capture_output=True, timeout=120)
    command = java("kafka.Kafka", str(properties), options=tuple(JVM_OPTIONS))
    with _running("Apache Kafka", command, port) as server:
        yield server


@contextlib.contextmanager
def headrace(
    data: Path, settings: Mapping[str, str] = NOTHING, *, root: Path = ROOT, listeners: Listeners = NO_LISTENERS
) -> Iterator[Server]:
    """
    :param root: the checkout whose broker is started, with the packages of this virtual environment.
    """
    compileall.compile_dir(root / "src", quiet=1)  # as an installed package is, whatever PYTHONDONTWRITEBYTECODE says
    port = free_port()
    command = [str(Path(sys.executable).parent / "headrace"), "start", "--data", str(data)]
    command += ["-o", f"listeners={_addresses({'PLAINTEXT': port, **listeners})}", "--log-level", "warning"]
    if listeners:
        command += ["-o", f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT{_protocols(listeners)}"]
    for name, value in settings.items():
        command += ["-o", f"{name}={value}"]
    with _running("Headrace", command, port, {"PYTHONPATH": str(root / "src")}) as server:
        yield server


def _addresses(listeners: Listeners) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items())


def _protocols(listeners: Listeners) -> str:
    """Entries of the protocol map. A listener without the name of a protocol has TLS."""
    return "".join(f",{name}:{name if name.startswith('SASL') else 'SSL'}" for name in listeners)


@contextlib.contextmanager
def _running(name: str, command: list[str], port: int, variables: Mapping[str, str] = NOTHING) -> Iterator[Server]:
    started = time.perf_counter()
    environment = {**os.environ, **variables}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        seconds = _until_metadata(port, process, started)
        yield Server(name, port, psutil.Process(process.pid), started, seconds)
    finally:
        process.terminate()
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_metadata(port: int, process: subprocess.Popen[bytes], started: float) -> float:
    """Asks for metadata, with a bare socket so that no client's back-off is measured, until there is an answer."""
    # Metadata v1, correlation id 7, no client id, all topics.
    request = bytes.fromhex("0000000e 0003 0001 00000007 ffff ffffffff".replace(" ", ""))
    while time.perf_counter() - started < _START_SECONDS:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended with {process.returncode} before it served")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                sock.settimeout(10)
                sock.sendall(request)
                if len(sock.recv(8)) == 8:
                    return time.perf_counter() - started
        except OSError:
            time.sleep(0.002)
    raise RuntimeError(f"no answer within {_START_SECONDS} s")


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.address, **server.client_settings})


def machine() -> str:
    """Describes the machine on which the numbers were measured."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown CPU",
    )
    return f"{os.cpu_count()} cores ({model}), {psutil.virtual_memory().total / 2**30:.0f} GiB"
