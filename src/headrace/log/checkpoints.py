"""Kafka's small text files: a version, a count, a line an entry.

``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``, ``replication-offset-checkpoint`` (one each a
log dir, lines ``topic partition offset``) and ``leader-epoch-checkpoint`` (one a partition, lines ``epoch offset``).
They are replaced whole. One that cannot be read counts as empty, and that is said: what it held is then found by
looking at the logs.
"""

from collections.abc import Iterable
from logging import getLogger

from headrace.log.disk import Disk

logger = getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"

Partition = tuple[str, int]


def write_lines(disk: Disk, path: str, lines: list[str], *, sync: bool) -> None:
    disk.write_file(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_lines(disk: Disk, path: str) -> list[list[str]]:
    data = disk.read_file(path)
    if data is None:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
        if int(version) == 0 and int(count) == len(lines):
            return [line.split() for line in lines]
    except ValueError:
        pass
    logger.warning("checkpoint %s is damaged and counts as empty", path)
    return []


def write_offsets(disk: Disk, path: str, offsets: Iterable[tuple[Partition, int]]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets]
    write_lines(disk, path, lines, sync=True)


def read_offsets(disk: Disk, path: str) -> dict[Partition, int]:
    offsets: dict[Partition, int] = {}
    for line in read_lines(disk, path):
        try:
            topic, partition, offset = line
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            logger.warning("checkpoint %s has a damaged line: %s", path, " ".join(line))
    return offsets
