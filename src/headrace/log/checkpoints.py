"""Reads and writes Kafka's small text files: a line with the version, a line with the count, then one line per entry.

Each log dir has ``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint`` and
``replication-offset-checkpoint`` with lines ``topic partition offset``. Each partition has ``leader-epoch-checkpoint``
with lines ``epoch offset``. A file is always replaced as a whole. A file that cannot be read counts as empty, with a
warning; the logs themselves then give the offsets that the file held.
"""

from collections.abc import Iterable
from logging import getLogger

from headrace.log.disk import Disk

logger = getLogger(__name__)

Partition = tuple[str, int]


def write_lines(disk: Disk, path: str, lines: list[str], *, sync: bool) -> None:
    disk.write_file(path, "\n".join(["0", str(len(lines)), *lines, ""]).encode(), sync=sync)


def read_lines(disk: Disk, path: str) -> list[list[str]]:
    """The entries, each split at its spaces; none if there is no file, or it is damaged."""
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
