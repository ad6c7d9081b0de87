"""Starts the brokers of the ACL matrix: a listener with SASL PLAIN, one without login, ACLs on, one super user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from apache_process import apache_process, write_properties

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.ports import free_port
from headrace.testing.raw_client import ClosedByPeer

from .cells import ADMIN, PASSWORD, Cell
from .session import Addresses, LoginFailed, until

_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: What both brokers are told.
_COMMON = {
    "auto.create.topics.enable": "true",
    "delegation.token.secret.key": "the-secret-key-of-the-matrix",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "super.users": f"User:{ADMIN}",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
}


def _jaas(cells: list[Cell]) -> str:
    users = sorted({cell.user for cell in cells} | {ADMIN})
    listed = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    return f'{_LOGIN_MODULE} required username="{ADMIN}" password="{PASSWORD}" {listed};'


def _answers(addresses: Addresses) -> bool:
    with contextlib.suppress(OSError, ClosedByPeer, LoginFailed):
        addresses.admin().close()
        return True
    return False


@contextlib.contextmanager
def apache(jars: Path, folder: Path, cells: list[Cell]) -> Iterator[Addresses]:
    sasl, plaintext, controller = free_port(), free_port(), free_port()
    jaas = _jaas(cells)
    settings = {
        **_COMMON,
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"SASL://127.0.0.1:{sasl},OPEN://127.0.0.1:{plaintext},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL://127.0.0.1:{sasl},OPEN://127.0.0.1:{plaintext}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OPEN:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "SASL",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "log.dirs": str(folder / "apache"),
    }
    addresses = Addresses(f"127.0.0.1:{sasl}", f"127.0.0.1:{plaintext}")
    with apache_process(jars, folder, settings):
        until(lambda: _answers(addresses), "Apache Kafka answers", patience_s=120.0)
        yield addresses


@contextlib.contextmanager
def headrace(folder: Path, cells: list[Cell], *, is_member: bool = False) -> Iterator[Addresses]:
    """
    :param is_member: a cluster of one broker on our ZooKeeper, instead of a lone broker.
    """
    sasl, plaintext = free_port(), free_port()
    settings = {
        **_COMMON,
        "broker.id": "1",
        "listeners": f"SASL://127.0.0.1:{sasl},OPEN://127.0.0.1:{plaintext}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "SASL",
        "listener.name.sasl.plain.sasl.jaas.config": _jaas(cells),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    }
    with contextlib.ExitStack() as processes:
        if is_member:
            zookeeper = processes.enter_context(BrokerProcess(folder / "zookeeper", command="zookeeper"))
            settings["zookeeper.connect"] = zookeeper.address
        path = write_properties(folder / "headrace.properties", settings)
        arguments = ("--config", str(path), "--log-level", "warning")
        processes.enter_context(BrokerProcess(folder / "headrace", *arguments, listen=None))
        yield Addresses(f"127.0.0.1:{sasl}", f"127.0.0.1:{plaintext}")
