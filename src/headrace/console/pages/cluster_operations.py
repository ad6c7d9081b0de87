"""The page Cluster: log dirs, moves of partitions, preferred leaders, and which brokers may be stopped."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.client.admin.types import LogDir, Reassignment, Results, TopicDescription
from headrace.client.errors import HeadraceError
from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import LIST_SECONDS
from headrace.console.cluster.reassignments import bytes_copied
from headrace.console.cluster.restart_readiness import Readiness, readiness_of
from headrace.console.pages.page import Page
from headrace.console.pages.part import attempt
from headrace.console.problems import Problem
from headrace.console.request import ConsoleRequest

_MOST_MOVES = 200
_MOST_NAMED = 20


@dataclass(frozen=True)
class LogDirRow:
    """A log dir of a broker. Sizes are None if the broker does not tell them.

    :ivar moving: replicas that are being copied to this log dir.
    :ivar error: why the log dir is offline; empty if it is well.
    """

    broker_id: int
    path: str
    used_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: int
    moving: int
    error: str


@dataclass(frozen=True)
class Move:
    """A partition that is being moved.

    :ivar copied_bytes, whole_bytes: what the new replicas have and are to have; None if that is not known.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_bytes: int | None
    whole_bytes: int | None


@dataclass(frozen=True)
class ClusterOperations:
    """The facts that an operator needs before and while brokers restart or partitions move.

    :ivar unpreferred: partitions whose leader is not their first replica; the first are in ``unpreferred_named``.
    :ivar disks_problem, moves_problem, min_isr_problem: why a part is not known.
    """

    log_dirs: tuple[LogDirRow, ...]
    disks_problem: Problem | None
    silent_brokers: dict[int, str]
    moves: tuple[Move, ...]
    move_count: int
    moves_problem: Problem | None
    unpreferred: int
    unpreferred_named: tuple[TopicPartition, ...]
    readiness: tuple[Readiness, ...]
    min_isr_problem: Problem | None


async def read(request: ConsoleRequest) -> ClusterOperations:
    """The log dirs of each broker, the partitions that move, and the brokers that may be stopped."""
    cluster = request.cluster
    brokers = [node.id for node in (await cluster.cluster()).brokers]
    topics = await cluster.topics()
    empty: Results[int, dict[str, LogDir]] = Results()
    log_dirs, disks_problem = await attempt(cluster.log_dirs(), empty)
    moves, moves_problem = await attempt(
        cluster.kept("reassignments", LIST_SECONDS, cluster.admin.list_partition_reassignments), {}
    )
    min_isr, min_isr_problem = await attempt(cluster.numbers("min.insync.replicas", sorted(topics)), {})
    unpreferred = _unpreferred(topics)
    return ClusterOperations(
        tuple(
            _log_dir(broker_id, log_dir)
            for broker_id, found in sorted(log_dirs.ok.items())
            for log_dir in found.values()
        ),
        disks_problem,
        {broker_id: str(error) for broker_id, error in log_dirs.items() if isinstance(error, HeadraceError)},
        tuple(_move(at, each, log_dirs) for at, each in sorted(moves.items())[:_MOST_MOVES]),
        len(moves),
        moves_problem,
        len(unpreferred),
        tuple(unpreferred[:_MOST_NAMED]),
        readiness_of(brokers, topics.values(), min_isr),
        min_isr_problem,
    )


def _unpreferred(topics: dict[str, TopicDescription]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, each.partition)
        for topic in topics.values()
        for each in topic.partitions
        if each.replicas and each.leader_id >= 0 and each.leader_id != each.replicas[0]
    ]


def _log_dir(broker_id: int, found: LogDir) -> LogDirRow:
    return LogDirRow(
        broker_id,
        found.path,
        sum(replica.size_bytes for replica in found.replicas.values()),
        None if found.total_bytes < 0 else found.total_bytes,
        None if found.usable_bytes < 0 else found.usable_bytes,
        len(found.replicas),
        sum(replica.is_future for replica in found.replicas.values()),
        "" if found.error is None else str(found.error),
    )


def _move(at: TopicPartition, moving: Reassignment, log_dirs: Results[int, dict[str, LogDir]]) -> Move:
    copied, whole = bytes_copied(at, moving, log_dirs) or (None, None)
    return Move(
        at.topic, at.partition, moving.replicas, moving.adding_replicas, moving.removing_replicas, copied, whole
    )


PAGE = Page(
    "/cluster",
    "Cluster operations",
    read,
    "cluster_operations.html",
    navigation="Cluster",
    live_seconds=5,
)
