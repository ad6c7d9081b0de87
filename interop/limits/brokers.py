"""Starts the brokers that the scenes run on: one listener without security, and telemetry."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from acls.session import until
from apache_process import apache_process

from headrace import Broker
from headrace.testing.ports import free_port

from .clients import Client

_RECEIVER = Path(__file__).with_name("TelemetryReceiver.java")


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError):
        Client(address, "first").close()
        return True
    return False


def _compile_receiver(jars: Path, classes: Path) -> Path:
    (clients,) = jars.glob("kafka-clients-*.jar")
    command = ["javac", "-Xlint:all,-processing", "-Werror", "-d", str(classes), "-cp", str(clients), str(_RECEIVER)]
    subprocess.run(command, check=True, timeout=120)
    return classes


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
        "metric.reporters": "interop.TelemetryReceiver",
        "interop.telemetry.file": str(received_by_apache(folder)),
    }
    address = f"127.0.0.1:{port}"
    with apache_process(jars, folder, settings, classes=_compile_receiver(jars, folder / "classes")):
        until(lambda: _answers(address), "Apache Kafka answers", patience_s=300.0)
        yield address


@contextlib.contextmanager
def headrace() -> Iterator[str]:
    with Broker(config={"broker.id": "1"}) as broker:
        yield broker.bootstrap_servers
