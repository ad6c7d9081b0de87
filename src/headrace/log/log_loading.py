"""Finds the logs of a log dir and loads them, when a broker starts.

A folder in a log dir is one of these, by its name:

==============================================  ==================================================================
``<topic>-<partition>``                         a log
``<topic>-<partition>.<uuid>-delete``           a log that was deleted; its files are unlinked after a delay
``<topic>-<partition>.<uuid>-future``           an incomplete copy of a log (``relocation.py``); it is removed
``<topic>-<partition>.<uuid>-moved``            a complete copy; it becomes the log if the log itself is gone
``<topic>-<partition>.<uuid>-stray``            a log of an unknown topic; it is left alone
``__cluster_metadata-0``                        the log of Apache Kafka's own quorum; it is left alone
==============================================  ==================================================================
"""

import re
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace.log.checkpoints import Partition
from headrace.log.config import LogConfig
from headrace.log.log_checkpoints import read_checkpoints
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import load_log
from headrace.log.relocation import FUTURE_SUFFIX, MOVED_SUFFIX
from headrace.runtime.clock import Clock

#: The log of Apache Kafka's own quorum. It is not a topic: in a dir that Apache Kafka used before, it stays as it is.
QUORUM_TOPIC = "__cluster_metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MOVED_FOLDER = re.compile(rf"{_FOLDER.pattern}\.[0-9a-f]{{32}}{MOVED_SUFFIX}")


class LoadedDir(NamedTuple):
    logs: list[PartitionLog]
    #: Whether the logs had to be scanned, because the dir was not stopped cleanly.
    is_recovered: bool


class _MovedCopy(NamedTuple):
    """A complete copy of a log in another dir. A crash came before the copy took the log's place."""

    log_dir: LogDir
    folder: str
    partition: Partition


class LogLoader:
    """Loads the logs of one dir after the other, then the moved copies of all dirs."""

    def __init__(self, config_for: Callable[[str], LogConfig], file_delete_delay_ms: int, clock: Clock) -> None:
        self._config_for = config_for
        self._file_delete_delay_ms = file_delete_delay_ms
        self._clock = clock
        self._moved_copies: list[_MovedCopy] = []
        self._log_starts: dict[Partition, int] = {}

    def load_dir(self, log_dir: LogDir, threads: int) -> LoadedDir:
        """Loads the logs of a dir. Recovery uses several threads.

        :raises OSError: if the dir cannot be read.
        """
        disk, path = log_dir.disk, log_dir.path
        partitions = self._find_logs(log_dir)
        is_clean = disk.read_file(f"{path}/{CLEAN_SHUTDOWN}") is not None
        if is_clean:
            disk.unlink(f"{path}/{CLEAN_SHUTDOWN}")
        offsets = read_checkpoints(log_dir)
        self._log_starts |= {key: max(start, self._log_starts.get(key, 0)) for key, start in offsets.log_starts.items()}
        configs = {topic: self._config_for(topic) for topic in {topic for topic, _ in partitions}}

        def load_one(key: Partition) -> PartitionLog:
            log = load_log(
                log_dir,
                *key,
                configs[key[0]],
                is_clean=is_clean,
                recovery_point=offsets.recovery_points.get(key, 0),
                log_start_offset=offsets.log_starts.get(key, 0),
            )
            log.high_watermark = min(max(offsets.high_watermarks.get(key, 0), log.log_start_offset), log.next_offset)
            return log

        if threads > 1 and not is_clean:
            with ThreadPoolExecutor(threads, "log-recovery") as pool:
                return LoadedDir(list(pool.map(load_one, partitions)), True)
        return LoadedDir([load_one(key) for key in partitions], not is_clean)

    def _find_logs(self, log_dir: LogDir) -> list[Partition]:
        found: list[Partition] = []
        for entry in log_dir.disk.list(log_dir.path):
            if entry.name.endswith(DELETE_SUFFIX):
                log_dir.pending_deletes.add(entry.path, self._clock.wall_ms() + self._file_delete_delay_ms)
            elif entry.name.endswith(FUTURE_SUFFIX):
                log_dir.pending_deletes.add(entry.path, 0)
            elif match := _MOVED_FOLDER.fullmatch(entry.name):
                self._moved_copies.append(_MovedCopy(log_dir, entry.path, (match["topic"], int(match["partition"]))))
            elif (match := _FOLDER.fullmatch(entry.name)) and match["topic"] != QUORUM_TOPIC and entry.is_dir():
                found.append((match["topic"], int(match["partition"])))
        return found

    def load_moved_copies(self, loaded: Container[Partition]) -> list[PartitionLog]:
        """Loads each moved copy whose log is gone, and removes the other copies."""
        logs: dict[Partition, PartitionLog] = {}
        for log_dir, copy, key in self._moved_copies:
            if key in loaded or key in logs:
                log_dir.pending_deletes.add(copy, 0)
                continue
            try:
                log_dir.disk.rename(copy, log_dir.folder_of(*key))
                start = self._log_starts.get(key, 0)
                config = self._config_for(key[0])
                logs[key] = load_log(log_dir, *key, config, is_clean=False, log_start_offset=start)
            except OSError as error:
                log_dir.take_offline(error)
        return list(logs.values())
