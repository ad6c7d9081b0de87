"""Holds all logs of a broker, over one or several log dirs.

A log dir holds one folder ``<topic>-<partition>`` per log, ``meta.properties`` and ``.lock``, the checkpoints, and
after a clean stop ``.kafka_cleanshutdown``. A start removes that file before it does anything else, and a stop writes
it last: first the logs are flushed, then come producer snapshots, then checkpoints, then this file. If the file
exists, all the rest was written.

A dir in which a file operation fails goes offline, and its logs answer StorageError. The other dirs go on.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

from headrace.log import meta_properties, partition_metadata
from headrace.log.checkpoints import Partition
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.file_region import Pool
from headrace.log.log_checkpoints import LogCheckpoints
from headrace.log.log_dir import MAX_LOADED_INDEXES, LogDir, max_open_files
from headrace.log.log_loading import CLEAN_SHUTDOWN, DELETE_SUFFIX, QUORUM_TOPIC, LogLoader
from headrace.log.meta_properties import LogDirError
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import load_log
from headrace.log.relocation import FUTURE_SUFFIX, MOVED_SUFFIX, Relocation
from headrace.protocol.errors import StorageError
from headrace.runtime.clock import Clock

__all__ = ["MAX_PREFERRED_DIRS", "QUORUM_TOPIC", "LoadReport", "LogDirError", "LogManager"]

logger = getLogger(__name__)

_STRAY_SUFFIX = "-stray"
_MAX_NAME = 255
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
#: A client may prefer a dir for logs that are never created. So only the newest preferences are kept.
MAX_PREFERRED_DIRS = 10_000


class LoadReport:
    def __init__(self) -> None:
        self.logs = 0
        #: How many logs were scanned, because their dir was not stopped cleanly.
        self.recovered = 0
        self.elapsed_ms = 0
        self.offline: list[Path] = []


class LogManager:
    def __init__(
        self,
        directories: Sequence[Path],
        *,
        default_config: LogConfig,
        clock: Clock,
        broker_id: int,
        cluster_id: str,
        config_for: Callable[[str], LogConfig] | None = None,
        disk: Disk | None = None,
        on_offline: Callable[[Path, OSError], None] | None = None,
        open_files_limit: int | None = None,
    ) -> None:
        """
        :param config_for: gives the settings of a topic; without it, all topics have the default settings.
        """
        self._clock = clock
        self._default_config = default_config
        self._config_for = config_for or (lambda _: default_config)
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        disk = disk if disk is not None else Disk()
        files, indexes = Pool(open_files_limit or max_open_files()), Pool(MAX_LOADED_INDEXES)
        self.log_dirs = [
            LogDir(path, disk=disk, clock=clock, files=files, indexes=indexes, on_offline=on_offline)
            for path in directories
        ]
        self._logs: dict[Partition, PartitionLog] = {}
        #: Where to create logs that do not exist yet.
        self._preferred_dirs: dict[Partition, LogDir] = {}
        self._checkpoints = LogCheckpoints()
        #: Held while checkpoints are written, so that an earlier list of logs never replaces a later one.
        self._checkpoint_lock = Lock()

    # -- start ------------------------------------------------------------------------------------------------------

    def load(self, *, threads: int = 1) -> LoadReport:
        """Locks every dir and loads its logs. The logs of a dir that was not stopped cleanly are recovered.

        :raises LogDirError: if a dir belongs to another broker or process, or no dir works.
        """
        started_ms = self._clock.monotonic_ms()
        report = LoadReport()
        loader = LogLoader(self._config_for, self._default_config.file_delete_delay_ms, self._clock)
        try:
            for log_dir in self.log_dirs:
                try:
                    self._load_dir(loader, log_dir, threads, report)
                except OSError as error:
                    log_dir.take_offline(error)
                except StorageError as error:
                    logger.error("log dir %s was not loaded: %s", log_dir.path, error)
            for log in loader.load_moved_copies(self._logs):
                self._add(log)
                report.recovered += 1
        except LogDirError:
            self._unlock()
            raise
        report.offline = [Path(log_dir.path) for log_dir in self.log_dirs if log_dir.error is not None]
        if len(report.offline) == len(self.log_dirs):
            self._unlock()
            errors = "; ".join(str(log_dir.error) for log_dir in self.log_dirs)
            raise LogDirError(f"no log dir works, so the broker cannot start; check log.dirs and the disks: {errors}")
        report.logs = len(self._logs)
        report.elapsed_ms = self._clock.monotonic_ms() - started_ms
        return report

    def _load_dir(self, loader: LogLoader, log_dir: LogDir, threads: int, report: LoadReport) -> None:
        log_dir.lock()
        meta_properties.claim(log_dir.disk, log_dir.path, self._broker_id, self._cluster_id)
        logs, is_recovered = loader.load_dir(log_dir, threads)
        for log in logs:
            self._add(log)
        if is_recovered:
            report.recovered += len(logs)

    def _add(self, log: PartitionLog) -> None:
        key = log.topic, log.partition
        if key in self._logs:
            raise LogDirError(
                f"{log.topic}-{log.partition} is in {self._logs[key].folder} and in {log.folder}: "
                "move one of the two folders out of its log dir"
            )
        self._logs[key] = log

    # -- logs -------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    @property
    def online(self) -> list[Path]:
        return [Path(log_dir.path) for log_dir in self.log_dirs if log_dir.error is None]

    @property
    def offline(self) -> dict[Path, OSError]:
        return {Path(log_dir.path): log_dir.error for log_dir in self.log_dirs if log_dir.error is not None}

    def create(
        self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig | None = None
    ) -> PartitionLog:
        """Creates an empty log in its preferred dir. If none is preferred, or that one is offline, the dir with the
        fewest logs is used.

        :param config: the settings of the topic, if the caller has them: to find them takes as long as to make a file.
        :raises StorageError: if no dir works, or the chosen one just failed.
        """
        assert (topic, partition) not in self._logs
        working = self._working_dirs()
        if not working:
            raise StorageError("every log dir is offline")
        log_dir = self._preferred_dirs.pop((topic, partition), None)
        if log_dir is None or log_dir.error is not None:
            log_dir = working[0] if len(working) == 1 else min(working, key=self._count)
        folder = log_dir.folder_of(topic, partition)
        try:
            log_dir.disk.mkdir(folder)
            if topic_id is not None:
                partition_metadata.write(log_dir.disk, folder, topic_id)
            log = load_log(log_dir, topic, partition, config or self._config_for(topic), is_clean=True)
        except OSError as error:
            raise log_dir.take_offline(error) from error
        self._logs[topic, partition] = log
        return log

    def prefer_dir(self, topic: str, partition: int, log_dir: LogDir) -> None:
        """Sets where to create a log that does not exist yet. The preference lasts until the log is created, or the
        broker stops."""
        if (topic, partition) in self._logs:
            return
        self._preferred_dirs[topic, partition] = log_dir
        if len(self._preferred_dirs) > MAX_PREFERRED_DIRS:
            del self._preferred_dirs[next(iter(self._preferred_dirs))]

    def _count(self, log_dir: LogDir) -> int:
        return sum(log.log_dir is log_dir for log in self._logs.values())

    def delete(self, topic: str, partition: int) -> None:
        """Removes a log at once. Its files are unlinked later, by :meth:`remove_deleted`."""
        log = self._logs.pop((topic, partition))
        renamed = self._rename_away(log, DELETE_SUFFIX)
        if renamed is not None:
            deletes = log.log_dir.pending_deletes
            deletes.cancel_below(log.folder)
            deletes.add(renamed, self._clock.wall_ms() + log.config.file_delete_delay_ms)

    def replace_with_copy(self, relocation: Relocation) -> PartitionLog:
        """Puts the copy of a log, in another dir, in place of the log. The old folder is deleted like any other.

        :raises OSError: if the other dir fails; the old log then goes on unchanged.
        :raises StorageError: if the old log's dir fails.
        """
        with self._checkpoint_lock:
            return self._replace_with_copy(relocation)

    def _replace_with_copy(self, relocation: Relocation) -> PartitionLog:
        old, log_dir = relocation.log, relocation.log_dir
        key = old.topic, old.partition
        relocation.complete()
        # The start of the log must be written in the copy's dir before the copy becomes the log.
        self._checkpoints.write(log_dir, [*self._logs_in(log_dir), (key, old)])
        ready = relocation.folder.removesuffix(FUTURE_SUFFIX) + MOVED_SUFFIX
        log_dir.disk.rename(relocation.folder, ready)
        log_dir.disk.fsync_directory(log_dir.path)
        self.delete(*key)
        try:
            log_dir.disk.rename(ready, log_dir.folder_of(*key))
            start = old.log_start_offset
            log = load_log(log_dir, *key, old.config, is_clean=True, log_start_offset=start)
        except OSError as error:
            raise log_dir.take_offline(error) from error
        log.take_over(old)
        self._logs[key] = log
        return log

    def set_aside(self, topic: str, partition: int) -> None:
        """Removes a log of an unknown topic. Its folder stays, under a name that is not loaded."""
        self._rename_away(self._logs.pop((topic, partition)), _STRAY_SUFFIX)

    def _rename_away(self, log: PartitionLog, suffix: str) -> str | None:
        """The folder's new path; None if its dir is offline."""
        log.close_files()
        log_dir = log.log_dir
        if log_dir.error is not None:
            return None
        suffix = f"-{log.partition}.{uuid4().hex}{suffix}"
        renamed = f"{log_dir.path}/{log.topic[: _MAX_NAME - len(suffix)]}{suffix}"
        try:
            log_dir.disk.rename(log.folder, renamed)
        except OSError as error:
            raise log_dir.take_offline(error) from error
        return renamed

    @property
    def has_deleted(self) -> bool:
        return any(log_dir.pending_deletes for log_dir in self.log_dirs)

    def remove_deleted(self) -> None:
        """Unlinks deleted files whose delay is over. Slow; may run on any thread."""
        for log_dir in self._working_dirs():
            try:
                log_dir.pending_deletes.delete_due(log_dir.disk, self._clock.wall_ms())
            except OSError as error:
                log_dir.take_offline(error)

    def _working_dirs(self) -> list[LogDir]:
        return [log_dir for log_dir in self.log_dirs if log_dir.error is None]

    def _logs_in(self, log_dir: LogDir) -> list[tuple[Partition, PartitionLog]]:
        return [(key, log) for key, log in list(self._logs.items()) if log.log_dir is log_dir]

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def enforce_retention(self) -> int:
        """Deletes segments that are too old or too many, in all logs; returns how many."""
        dropped = 0
        for log in list(self._logs.values()):
            if log.log_dir.error is None:
                try:
                    while count := log.enforce_retention():
                        dropped += count
                except StorageError:
                    continue  # the dir is offline now, and has logged that
        return dropped

    def flush_due(self) -> list[PartitionLog]:
        """The logs to flush now: by ``flush.ms``, or because a finished segment is not on disk yet."""
        now_ms = self._clock.wall_ms()
        return [log for log in self._logs.values() if log.log_dir.error is None and log.is_flush_due(now_ms)]

    def checkpoint(self) -> None:
        """Writes where each log starts, up to where it is flushed, and its high watermark. May run on any thread."""
        with self._checkpoint_lock:
            for log_dir in self._working_dirs():
                try:
                    self._checkpoints.write(log_dir, self._logs_in(log_dir))
                except OSError as error:
                    log_dir.take_offline(error)

    def checkpoint_high_watermarks(self) -> None:
        """Writes only the high watermarks. May run on any thread."""
        for log_dir in self._working_dirs():
            try:
                self._checkpoints.write_high_watermarks(log_dir, self._logs_in(log_dir))
            except OSError as error:
                log_dir.take_offline(error)

    # -- stop -------------------------------------------------------------------------------------------------------

    def close(self, threads: int = 1) -> None:
        """Writes everything to disk, then the file ``.kafka_cleanshutdown``.

        :param threads: how many logs of a dir are closed at the same time.
        """
        if threads == 1:
            for log in self._logs.values():
                _close_log(log)
        else:
            pools = {log_dir: ThreadPoolExecutor(threads, "log-closing") for log_dir in self.log_dirs}
            closing = [pools[log.log_dir].submit(_close_log, log) for log in self._logs.values()]
            for pool in pools.values():
                pool.shutdown()
            for each in closing:
                each.result()
        self.checkpoint()
        for log_dir in self._working_dirs():
            try:
                log_dir.disk.write_file(f"{log_dir.path}/{CLEAN_SHUTDOWN}", _CLEAN_SHUTDOWN_CONTENT, sync=True)
            except OSError as error:
                log_dir.take_offline(error)
        self._unlock()

    def abandon(self) -> None:
        """Closes all files and locks without writing anything: what a kill does, for tests."""
        for log in self._logs.values():
            log.close_files()
        self._unlock()

    def _unlock(self) -> None:
        for log_dir in self.log_dirs:
            log_dir.unlock()


def _close_log(log: PartitionLog) -> None:
    try:
        log.close()
    except StorageError:
        log.close_files()
