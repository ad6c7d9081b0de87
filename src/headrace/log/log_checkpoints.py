"""Reads and writes the offsets that a log dir keeps about its logs: where each log starts, up to where it is flushed,
and its high watermark. ``checkpoints.py`` has the format of the files."""

from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from headrace.log.checkpoints import Partition, read_offsets, write_offsets
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"


class CheckpointedOffsets(NamedTuple):
    recovery_points: dict[Partition, int]
    log_starts: dict[Partition, int]
    high_watermarks: dict[Partition, int]


def read_checkpoints(log_dir: LogDir) -> CheckpointedOffsets:
    files = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
    return CheckpointedOffsets(*(read_offsets(log_dir.disk, f"{log_dir.path}/{name}") for name in files))


class LogCheckpoints:
    """Writes the checkpoints. Several threads write high watermarks, so a lock guards them."""

    def __init__(self) -> None:
        self._high_watermarks_lock = Lock()

    def write(self, log_dir: LogDir, logs: Sequence[tuple[Partition, PartitionLog]]) -> None:
        """Writes all three files of a dir. The caller sees to it that no other thread does the same."""
        recovery_points = [(key, log.recovery_point) for key, log in logs]
        write_offsets(log_dir.disk, f"{log_dir.path}/{RECOVERY_POINTS}", recovery_points)
        starts = [(key, log.log_start_offset) for key, log in logs if _starts_inside_segment(log)]
        write_offsets(log_dir.disk, f"{log_dir.path}/{LOG_STARTS}", starts)
        self.write_high_watermarks(log_dir, logs)

    def write_high_watermarks(self, log_dir: LogDir, logs: Sequence[tuple[Partition, PartitionLog]]) -> None:
        """Writes only the high watermarks. May run on any thread."""
        with self._high_watermarks_lock:
            high_watermarks = [(key, log.high_watermark) for key, log in logs]
            write_offsets(log_dir.disk, f"{log_dir.path}/{HIGH_WATERMARKS}", high_watermarks)


def _starts_inside_segment(log: PartitionLog) -> bool:
    """Whether the log needs a line: if not, the name of its first segment says where the log starts."""
    start_offset, first = log.log_start_offset, log.segments[:1]  # none, while the event loop truncates the log fully
    return bool(first) and start_offset > first[0].base_offset
