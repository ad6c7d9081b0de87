"""All logs of a broker, over one or several log dirs.

A log dir holds a folder ``<topic>-<partition>`` a log, ``meta.properties`` and ``.lock``, the checkpoints, and after a
clean stop ``.kafka_cleanshutdown``. That mark is removed before anything else is done, so that it is only ever found
if everything before it was written: logs synced, snapshots, checkpoints, then the mark.

A dir in which an operation fails goes offline and its logs answer StorageError; the other dirs go on.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

from headrace.log import checkpoints, meta_properties, partition_metadata
from headrace.log.checkpoints import Partition
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.file_region import Pool
from headrace.log.home import MAX_LOADED_INDEXES, Home, max_open_files
from headrace.log.meta_properties import LogDirError
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import load_log
from headrace.log.relocation import FUTURE_SUFFIX, MOVED_SUFFIX, Relocation
from headrace.protocol.errors import StorageError
from headrace.runtime.clock import Clock

__all__ = ["LoadReport", "LogDirError", "LogManager"]

logger = getLogger(__name__)

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MOVED_FOLDER = re.compile(rf"{_FOLDER.pattern}\.[0-9a-f]{{32}}{MOVED_SUFFIX}")
_DELETE_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_MAX_NAME = 255
#: The log of Apache Kafka's own quorum. It is no topic: in a dir that was Apache's it is left as it is.
QUORUM_TOPIC = "__cluster_metadata"
#: Logs may be wished for that never come: then the oldest wishes are forgotten.
MAX_WISHES = 10_000


@dataclass(slots=True)
class LoadReport:
    logs: int = 0
    #: Logs that were scanned, as their dir was not stopped cleanly.
    recovered: int = 0
    elapsed_ms: int = 0
    offline: list[Path] = field(default_factory=list)


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
        :param config_for: of a topic; of all of them the default, if it is not given.
        """
        self._clock = clock
        self._disk = disk if disk is not None else Disk()
        self._default_config = default_config
        self._config_for = config_for or (lambda _: default_config)
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        files, indexes = Pool(open_files_limit or max_open_files()), Pool(MAX_LOADED_INDEXES)
        self.homes = [
            Home(path, disk=self._disk, clock=clock, files=files, indexes=indexes, on_offline=on_offline)
            for path in directories
        ]
        self._logs: dict[Partition, PartitionLog] = {}
        self._locks: dict[str, int] = {}
        #: Copies of logs that were complete when a crash came, see relocation.py.
        self._moved: list[tuple[Home, str, Partition]] = []
        self._log_starts: dict[Partition, int] = {}
        #: Where logs are to be made that are not there yet.
        self._wishes: dict[Partition, Home] = {}
        #: High watermarks are written by the loop and by threads.
        self._high_watermarks_lock = Lock()

    # -- start ------------------------------------------------------------------------------------------------------

    def load(self, *, threads: int = 1) -> LoadReport:
        """Lock every dir and open its logs; recover those of a dir that was not stopped cleanly.

        :raises LogDirError: a dir belongs to somebody else, or none is left that works.
        """
        started_ms = self._clock.monotonic_ms()
        report = LoadReport()
        try:
            for home in self.homes:
                try:
                    self._load_dir(home, threads, report)
                except OSError as error:
                    home.fail(error)
                except StorageError as error:
                    logger.error("log dir %s was not loaded: %s", home.path, error)
            self._settle_moved(report)
        except LogDirError:
            self._unlock()
            raise
        report.offline = [Path(home.path) for home in self.homes if home.error is not None]
        if len(report.offline) == len(self.homes):
            self._unlock()
            raise LogDirError(f"no log dir works: {'; '.join(str(home.error) for home in self.homes)}")
        report.logs = len(self._logs)
        report.elapsed_ms = self._clock.monotonic_ms() - started_ms
        return report

    def _load_dir(self, home: Home, threads: int, report: LoadReport) -> None:
        disk, path = home.disk, home.path
        disk.mkdir(path)
        self._locks[path] = meta_properties.lock(disk, path)
        meta_properties.claim(disk, path, self._broker_id, self._cluster_id)
        folders = self._folders(home)
        is_clean = disk.read_file(f"{path}/{CLEAN_SHUTDOWN}") is not None
        if is_clean:
            disk.unlink(f"{path}/{CLEAN_SHUTDOWN}")
        recovery_points = checkpoints.read_offsets(disk, f"{path}/{checkpoints.RECOVERY_POINTS}")
        log_starts = checkpoints.read_offsets(disk, f"{path}/{checkpoints.LOG_STARTS}")
        self._log_starts |= {key: max(start, self._log_starts.get(key, 0)) for key, start in log_starts.items()}
        high_watermarks = checkpoints.read_offsets(disk, f"{path}/{checkpoints.HIGH_WATERMARKS}")
        configs = {topic: self._config_for(topic) for topic in {topic for topic, _ in folders}}

        def load_one(key: Partition) -> PartitionLog:
            log = load_log(
                home,
                f"{path}/{key[0]}-{key[1]}",
                key[0],
                key[1],
                configs[key[0]],
                is_clean=is_clean,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=log_starts.get(key, 0),
            )
            log.high_watermark = min(max(high_watermarks.get(key, 0), log.log_start_offset), log.next_offset)
            return log

        if threads > 1 and not is_clean:
            with ThreadPoolExecutor(threads, "log-recovery") as pool:
                logs = list(pool.map(load_one, folders))
        else:
            logs = [load_one(key) for key in folders]
        for log in logs:
            self._add(log)
        if not is_clean:
            report.recovered += len(logs)

    def _folders(self, home: Home) -> list[Partition]:
        found: list[Partition] = []
        for entry in home.disk.list(home.path):
            if entry.name.endswith(_DELETE_SUFFIX):
                home.trash.add(entry.path, self._clock.wall_ms() + self._default_config.file_delete_delay_ms)
            elif entry.name.endswith(FUTURE_SUFFIX):
                home.trash.add(entry.path, 0)
            elif match := _MOVED_FOLDER.fullmatch(entry.name):
                self._moved.append((home, entry.path, (match["topic"], int(match["partition"]))))
            elif (match := _FOLDER.fullmatch(entry.name)) and match["topic"] != QUORUM_TOPIC and entry.is_dir():
                found.append((match["topic"], int(match["partition"])))
        return found

    def _add(self, log: PartitionLog) -> None:
        key = log.topic, log.partition
        if key in self._logs:
            raise LogDirError(f"{log.topic}-{log.partition} is in {self._logs[key].folder} and in {log.folder}")
        self._logs[key] = log

    def _settle_moved(self, report: LoadReport) -> None:
        """A crash came while a log was about to be replaced by its copy in another dir."""
        for home, path, key in self._moved:
            if key in self._logs:
                home.trash.add(path, 0)
                continue
            folder = f"{home.path}/{key[0]}-{key[1]}"
            try:
                home.disk.rename(path, folder)
                start = self._log_starts.get(key, 0)
                log = load_log(home, folder, *key, self._config_for(key[0]), is_clean=False, log_start_offset=start)
            except OSError as error:
                home.fail(error)
                continue
            self._add(log)
            report.recovered += 1

    # -- logs -------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def all(self) -> Iterable[PartitionLog]:
        return self._logs.values()

    @property
    def online(self) -> list[Path]:
        return [Path(home.path) for home in self.homes if home.error is None]

    @property
    def offline(self) -> dict[Path, OSError]:
        return {Path(home.path): home.error for home in self.homes if home.error is not None}

    def create(
        self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig | None = None
    ) -> PartitionLog:
        """An empty log, in the dir that was wished for it or, if there is none or it does not work, in that with the
        fewest.

        :param config: where it is known; to find it takes as long as to make a file.
        :raises StorageError: no dir works, or this one just failed.
        """
        assert (topic, partition) not in self._logs
        homes = [home for home in self.homes if home.error is None]
        if not homes:
            raise StorageError("every log dir is offline")
        home = self._wishes.pop((topic, partition), None)
        if home is None or home.error is not None:
            home = homes[0] if len(homes) == 1 else min(homes, key=self._count)
        folder = f"{home.path}/{topic}-{partition}"
        try:
            home.disk.mkdir(folder)
            if topic_id is not None:
                partition_metadata.write(home.disk, folder, topic_id)
            log = load_log(home, folder, topic, partition, config or self._config_for(topic), is_clean=True)
        except OSError as error:
            raise home.fail(error) from error
        self._logs[topic, partition] = log
        return log

    def prefer(self, topic: str, partition: int, home: Home) -> None:
        """Where the log is to be made, if it is not there yet. Known until it is made, or the broker stops."""
        if (topic, partition) in self._logs:
            return
        self._wishes[topic, partition] = home
        if len(self._wishes) > MAX_WISHES:
            del self._wishes[next(iter(self._wishes))]

    def _count(self, home: Home) -> int:
        return sum(log.home is home for log in self._logs.values())

    def delete(self, topic: str, partition: int) -> None:
        """The log is gone at once; its files go later, by :meth:`remove_deleted`."""
        log = self._logs.pop((topic, partition))
        renamed = self._rename_away(log, _DELETE_SUFFIX)
        if renamed is not None:
            log.home.trash.forget_below(log.folder)
            log.home.trash.add(renamed, self._clock.wall_ms() + log.config.file_delete_delay_ms)

    def swap_in(self, relocation: Relocation) -> PartitionLog:
        """Put a log's copy in another dir in its place; the old folder goes as if deleted.

        :raises OSError: of the other dir; the old log then goes on as it was.
        :raises StorageError: if the old log's dir fails.
        """
        old, home = relocation.log, relocation.home
        key = old.topic, old.partition
        relocation.complete()
        # Where the log starts must be known beside the copy before the copy is the log.
        self._checkpoint_dir(home, [*((each, log) for each, log in self._logs.items() if log.home is home), (key, old)])
        ready = relocation.folder.removesuffix(FUTURE_SUFFIX) + MOVED_SUFFIX
        home.disk.rename(relocation.folder, ready)
        home.disk.fsync_directory(home.path)
        self.delete(*key)
        folder = f"{home.path}/{old.topic}-{old.partition}"
        try:
            home.disk.rename(ready, folder)
            start = old.log_start_offset
            log = load_log(home, folder, *key, old.config, is_clean=True, log_start_offset=start)
        except OSError as error:
            raise home.fail(error) from error
        log.take_over(old)
        self._logs[key] = log
        return log

    def put_aside(self, topic: str, partition: int) -> None:
        """The log belongs to no topic that anybody knows; its folder is kept, under a name that is not loaded."""
        self._rename_away(self._logs.pop((topic, partition)), _STRAY_SUFFIX)

    def _rename_away(self, log: PartitionLog, suffix: str) -> str | None:
        """The folder's new path; None if its dir is offline."""
        log.release()
        home = log.home
        if home.error is not None:
            return None
        suffix = f"-{log.partition}.{uuid4().hex}{suffix}"
        renamed = f"{home.path}/{log.topic[: _MAX_NAME - len(suffix)]}{suffix}"
        try:
            home.disk.rename(log.folder, renamed)
        except OSError as error:
            raise home.fail(error) from error
        return renamed

    @property
    def has_deleted(self) -> bool:
        return any(home.trash for home in self.homes)

    def remove_deleted(self) -> None:
        """Unlink what is due. Slow; may run on any thread."""
        for home in self._working():
            try:
                home.trash.empty(home.disk, self._clock.wall_ms())
            except OSError as error:
                home.fail(error)

    def _working(self) -> list[Home]:
        return [home for home in self.homes if home.error is None]

    # -- upkeep -----------------------------------------------------------------------------------------------------

    def enforce_retention(self) -> int:
        dropped = 0
        for log in list(self._logs.values()):
            if log.home.error is None:
                try:
                    dropped += log.enforce_retention()
                except StorageError:
                    continue  # the dir is offline now, and that was said
        return dropped

    def flush_due(self) -> list[PartitionLog]:
        """Logs to flush now: by ``flush.ms``, or because a segment was finished and is not yet synced."""
        now_ms = self._clock.wall_ms()
        return [log for log in self._logs.values() if log.home.error is None and log.is_flush_due(now_ms)]

    def checkpoint(self) -> None:
        """Write where each log starts, is flushed to, and is committed to."""
        for home in self._working():
            logs = [(key, log) for key, log in self._logs.items() if log.home is home]
            try:
                self._checkpoint_dir(home, logs)
            except OSError as error:
                home.fail(error)

    def _checkpoint_dir(self, home: Home, logs: list[tuple[Partition, PartitionLog]]) -> None:
        disk, path = home.disk, home.path
        recovery_points = [(key, log.recovery_point) for key, log in logs]
        checkpoints.write_offsets(disk, f"{path}/{checkpoints.RECOVERY_POINTS}", recovery_points)
        # A start that the first segment's name tells needs no line.
        starts = [
            (key, log.log_start_offset) for key, log in logs if log.log_start_offset > log.segments[0].base_offset
        ]
        checkpoints.write_offsets(disk, f"{path}/{checkpoints.LOG_STARTS}", starts)
        self._checkpoint_high_watermarks(home, logs)

    def checkpoint_high_watermarks(self) -> None:
        """Only those. May run on any thread."""
        for home in self._working():
            logs = [(key, log) for key, log in list(self._logs.items()) if log.home is home]
            try:
                self._checkpoint_high_watermarks(home, logs)
            except OSError as error:
                home.fail(error)

    def _checkpoint_high_watermarks(self, home: Home, logs: list[tuple[Partition, PartitionLog]]) -> None:
        with self._high_watermarks_lock:
            high_watermarks = [(key, log.high_watermark) for key, log in logs]
            checkpoints.write_offsets(home.disk, f"{home.path}/{checkpoints.HIGH_WATERMARKS}", high_watermarks)

    # -- stop -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Everything to disk, then the mark that says so."""
        for log in self._logs.values():
            try:
                log.close()
            except StorageError:
                log.release()
        self.checkpoint()
        for home in self._working():
            try:
                home.disk.write_file(f"{home.path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":-1}', sync=True)
            except OSError as error:
                home.fail(error)
        self._unlock()

    def abandon(self) -> None:
        """Let go of all files and locks and write nothing: what a kill does, for tests."""
        for log in self._logs.values():
            log.release()
        self._unlock()

    def _unlock(self) -> None:
        for fd in self._locks.values():
            self._disk.close(fd)
        self._locks.clear()
