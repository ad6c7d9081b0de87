"""A broker for the commands of a test module, and what the tests put into it by the bare protocol.

``HEADRACE_TEST_BROKERS=3`` makes it a cluster of three brokers, with ids from 0 on. Tests of a single broker's
output fail there; all others must pass.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NamedTuple

import pytest

from headrace import Admin, Broker
from headrace.protocol.api import Api
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.protocol.wire.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from headrace.testing.cluster_process import LocalClusterProcess
from headrace.testing.raw_client import RawClient
from headrace.tools.main import COMMANDS


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def value(self):
        """What ``--json`` printed."""
        return json.loads(self.out)


Tool = Callable[..., Done]


class Cluster(NamedTuple):
    bootstrap_servers: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker | Cluster]:
    brokers = int(os.environ.get("HEADRACE_TEST_BROKERS", "1"))
    if brokers == 1:
        with Broker() as broker:
            yield broker
        return
    options = ("--broker-id", "0", "-o", "group.initial.rebalance.delay.ms=0")
    with LocalClusterProcess(tmp_path_factory.mktemp("cluster"), *options, brokers=brokers) as cluster:
        yield Cluster(cluster.address)


def _leader_of(broker: Broker | Cluster, topic: str, partition: int) -> str:
    with RawClient(broker.bootstrap_servers.partition(",")[0]) as client:
        told = client.ask(Api.METADATA, 7, topics=[{"name": topic}], allow_auto_topic_creation=True)
    (leader,) = (
        found.leader_id for each in told.topics for found in each.partitions if found.partition_index == partition
    )
    return next(f"{node.host}:{node.port}" for node in told.brokers if node.node_id == leader)


def _coordinator_of(broker: Broker | Cluster, group: str) -> str:
    with RawClient(broker.bootstrap_servers.partition(",")[0]) as client:
        found = client.ask(Api.FIND_COORDINATOR, 2, key=group, key_type=0)
    return f"{found.host}:{found.port}"


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def tool(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs a command in this process, against the module's broker: ``tool("topics", "--list")``."""

    def run(command: str, *arguments: object) -> Done:
        module = import_module(COMMANDS[command][0])
        code = module.main(["--bootstrap-server", broker.bootstrap_servers, *map(str, arguments)])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def produce(broker: Broker) -> Callable[..., None]:
    """Writes values, one per record: ``produce("orders", 0, [b"a"], first_ms=1000, step_ms=1)``."""

    def write(
        topic: str, partition: int, values: Sequence[bytes], *, first_ms: int = 1000, step_ms: int = 1000
    ) -> None:
        records = [Record(at, first_ms + at * step_ms, None, value) for at, value in enumerate(values)]
        batch = bytes(build_batch(records, base_offset=0))
        with RawClient(_leader_of(broker, topic, partition)) as client:
            answer = client.ask(
                Api.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000,
                topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
            )  # fmt: skip
        assert not answer.responses[0].partition_responses[0].error_code.value

    return write


class Member:
    """A member of a classic group, that never sends a heartbeat."""

    def __init__(self, address: str, group: str, topics: Sequence[str], assignment) -> None:
        self.client = RawClient(address, client_id="member-client")
        self.group = group
        subscription = encode_subscription(Subscription(tuple(topics)))
        answer = self.client.ask(
            Api.JOIN_GROUP, 2, group_id=group, session_timeout=30_000, rebalance_timeout=30_000, member_id="",
            protocol_type="consumer", protocols=[{"name": "range", "metadata": subscription}],
        )  # fmt: skip
        assert not answer.error_code.value
        self.member_id = answer.member_id
        synced = self.client.ask(
            Api.SYNC_GROUP, 1, group_id=group, generation_id=answer.generation_id, member_id=self.member_id,
            assignments=[{"member_id": self.member_id, "assignment": encode_assignment(Assignment(tuple(assignment)))}],
        )  # fmt: skip
        assert not synced.error_code.value

    def leave(self) -> None:
        self.client.ask(Api.LEAVE_GROUP, 1, group_id=self.group, member_id=self.member_id)
        self.client.close()


@pytest.fixture
def join(broker: Broker, admin: Admin) -> Iterator[Callable[..., Member]]:
    """Puts the only member into a group: ``join("group", ["orders"], [TopicPartition("orders", 0)])``."""
    members: list[Member] = []

    def make(group: str, topics: Sequence[str], assignment) -> Member:
        admin.describe_groups([group])  # waits until its coordinator is there
        members.append(Member(_coordinator_of(broker, group), group, topics, assignment))
        return members[-1]

    yield make
    for member in members:
        if member.client.socket.fileno() >= 0:
            member.leave()
