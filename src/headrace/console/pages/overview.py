"""The page Overview: the brokers, their disks, and whether all partitions are well."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from headrace.client.admin.types import LogDir, TopicDescription
from headrace.client.errors import BrokerError, HeadraceError
from headrace.client.types import Node
from headrace.console.broker_metrics.measured import Measured
from headrace.console.cluster.health import Health, health_of
from headrace.console.cluster.reader import ClusterReader
from headrace.console.history.series import Series
from headrace.console.pages.page import Page
from headrace.console.pages.span import SPAN
from headrace.console.request import ConsoleRequest


@dataclass(frozen=True)
class Disk:
    """A log dir of a broker. Sizes are None if the broker does not tell them."""

    path: str
    used_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: int
    error: str


@dataclass(frozen=True)
class BrokerRow:
    """A broker.

    :ivar leaders: the partitions that the broker leads, of those that the user may see.
    :ivar version: its software; None if its metrics are not read.
    :ivar problem: why its disks are not known.
    """

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    version: str | None
    leaders: int
    replicas: int
    disks: tuple[Disk, ...]
    problem: str


@dataclass(frozen=True)
class Traffic:
    """Holds the numbers of the brokers' metrics. Numbers are None if they are not known.

    :ivar has_source: whether the console knows where the metrics are.
    :ivar requests_per_second: of all brokers.
    :ivar produce_p99_ms, fetch_p99_ms: of the slowest broker; the time of a Fetch contains its waiting for records.
    :ivar problems: the addresses that did not answer, and why.
    """

    has_source: bool
    requests_per_second: float | None
    produce_p99_ms: float | None
    fetch_p99_ms: float | None
    bytes_in_per_second: float | None
    bytes_out_per_second: float | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Overview:
    """The cluster at a glance. The lines are empty as long as there are no samples.

    :ivar metadata_version: the finalized ``metadata.version``; None of a cluster with ZooKeeper.
    """

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerRow, ...]
    racks: tuple[str, ...]
    topics: int
    internal_topics: int
    health: Health
    metadata_version: int | None
    traffic: Traffic
    lines: tuple[Series, ...]


async def read(request: ConsoleRequest) -> Overview:
    """The brokers with their racks and disks, the controller, and the partitions that are not well."""
    cluster = request.cluster
    found, topics, features = await asyncio.gather(cluster.cluster(), cluster.topics(), cluster.features())
    log_dirs = await cluster.log_dirs()
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in topics.values():
        for partition in topic.partitions:
            leaders[partition.leader_id] = leaders.get(partition.leader_id, 0) + 1
            for broker_id in partition.replicas:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    controller_id = None if found.controller is None else found.controller.id
    measured = request.services.history.measured
    versions = {} if measured is None else measured.versions
    version = features.finalized.get("metadata.version")
    return Overview(
        found.cluster_id,
        controller_id,
        tuple(
            _broker_row(
                node,
                controller_id,
                versions.get(node.id),
                leaders.get(node.id, 0),
                replicas.get(node.id, 0),
                log_dirs.get(node.id),
            )
            for node in found.brokers
        ),
        tuple(sorted({node.rack for node in found.brokers if node.rack})),
        sum(not topic.is_internal for topic in topics.values()),
        sum(topic.is_internal for topic in topics.values()),
        health_of(topics.values(), await _min_isr(cluster, topics)),
        None if version is None else version.highest,
        _traffic(measured, has_source=request.services.settings.metrics.is_given),
        await request.services.history.cluster_lines(request.text("span")),
    )


async def _min_isr(cluster: ClusterReader, topics: dict[str, TopicDescription]) -> dict[str, int]:
    """``min.insync.replicas`` by topic; empty if the user may not see settings."""
    try:
        return await cluster.min_isr(topics.values())
    except BrokerError:
        return {}


def _traffic(measured: Measured | None, *, has_source: bool) -> Traffic:
    totals = {} if measured is None else measured.totals
    return Traffic(
        has_source,
        totals.get("requests"),
        totals.get("produce_p99"),
        totals.get("fetch_p99"),
        totals.get("bytes_in"),
        totals.get("bytes_out"),
        () if measured is None else measured.problems,
    )


def _broker_row(
    node: Node,
    controller_id: int | None,
    version: str | None,
    leaders: int,
    replicas: int,
    found: dict[str, LogDir] | HeadraceError | None,
) -> BrokerRow:
    disks: tuple[Disk, ...] = ()
    problem = ""
    if isinstance(found, HeadraceError):
        problem = str(found)
    elif found is not None:
        disks = tuple(_disk(log_dir) for log_dir in found.values())
    is_controller = node.id == controller_id
    return BrokerRow(
        node.id, node.host, node.port, node.rack, is_controller, version, leaders, replicas, disks, problem
    )


def _disk(log_dir: LogDir) -> Disk:
    return Disk(
        log_dir.path,
        sum(replica.size_bytes for replica in log_dir.replicas.values()),
        None if log_dir.total_bytes < 0 else log_dir.total_bytes,
        None if log_dir.usable_bytes < 0 else log_dir.usable_bytes,
        len(log_dir.replicas),
        "" if log_dir.error is None else str(log_dir.error),
    )


PAGE = Page("/", "Overview", read, "overview.html", query=(SPAN,), navigation="Overview", live_seconds=5)
