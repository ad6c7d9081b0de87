"""Starts the brokers that the request sequences run on: one listener without security, and telemetry."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from acls.session import until
from apache_process import JAVA, apache_process

from headrace import Broker
from headrace.testing.ports import free_port

from .clients import Client

_JAVA = [str(Path(__file__).with_name(name)) for name in ("TelemetryReceiver.java", "TelemetryClients.java")]


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError):
        Client(address, "first").close()
        return True
    return False


def _compile(jars: Path, classes: Path) -> Path:
    (clients,) = jars.glob("kafka-clients-*.jar")
    command = ["javac", "-Xlint:all,-processing", "-Werror", "-d", str(classes), "-cp", str(clients), *_JAVA]
    subprocess.run(command, check=True, timeout=120)
    return classes


def java_clients(jars: Path, folder: Path) -> list[str]:
    """The command of Java's clients that push metrics, once Apache Kafka was started in the folder."""
    return [*JAVA, "-cp", f"{jars}/*:{_classes(folder)}", "interop.TelemetryClients"]


def _classes(folder: Path) -> Path:
    return folder / "classes"


def received_by_apache(folder: Path) -> Path:
    """The file of client ids and metrics that were pushed to Apache Kafka."""
    return folder / "received.txt"


@contextlib.contextmanager
def apache(jars: Path, folder: Path) -> Iterator[str]:
    """Apache Kafka with a plugin that receives metrics. Yields the address."""
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(folder / "apache"),
        "offsets.topic.replication.factor": "1",
        "metric.reporters": "interop.TelemetryReceiver",
        "interop.telemetry.file": str(received_by_apache(folder)),
    }
    address = f"127.0.0.1:{port}"
    with apache_process(jars, folder, settings, classes=_compile(jars, _classes(folder))):
        until(lambda: _answers(address), "Apache Kafka answers", patience_s=300.0)
        yield address


@contextlib.contextmanager
def headrace() -> Iterator[str]:
    with Broker(config={"broker.id": "1"}) as broker:
        yield broker.bootstrap_servers


@contextlib.contextmanager
def headrace_with_metrics() -> Iterator[tuple[str, str]]:
    """Yields the addresses of the broker and of its metrics endpoint."""
    with Broker(config={"headrace.metrics.listener": "127.0.0.1:0"}) as broker:
        assert broker.core.metrics_exporter is not None
        host, port = broker.core.metrics_exporter.endpoint
        yield broker.bootstrap_servers, f"{host}:{port}"
