"""A log dir: the folder that holds a part of a broker's logs, and the things that those logs share.

The logs of a dir share its disk, its pools of open files and loaded indexes, its pending deletes, and whether the dir
still works. The first ``OSError`` takes the whole dir offline, as in Kafka: a disk that failed once is not used again
before a restart. Every log of the dir looks at ``error`` before it does anything.

A file or folder that is deleted is first renamed and added to :class:`PendingDeletes`. It is unlinked later
(``file.delete.delay.ms``) by :meth:`PendingDeletes.delete_due`, which may run on any thread. After a crash the renamed
files are found by their suffix.
"""

import os
import resource
from collections.abc import Callable
from errno import EMFILE, ENFILE
from logging import getLogger
from pathlib import Path
from threading import Lock

from headrace.log import meta_properties
from headrace.log.disk import Disk
from headrace.log.file_region import Pool
from headrace.protocol.errors import StorageError
from headrace.runtime.clock import Clock

logger = getLogger(__name__)

MAX_OPEN_FILES = 4000
MAX_LOADED_INDEXES = 256


def max_open_files() -> int:
    """How many segment files to hold open. Half of the process's limit is left for sockets and indexes."""
    return min(MAX_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class PendingDeletes:
    """Renamed files and folders, and when each of them may be unlinked."""

    __slots__ = ("_due", "_lock")

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        with self._lock:
            self._due.append((due_ms, path))

    def cancel_below(self, folder: str) -> None:
        """Removes the entries inside a folder that was renamed: those files will be deleted with the folder."""
        with self._lock:
            self._due = [due for due in self._due if not due[1].startswith(folder + "/")]

    def delete_due(self, disk: Disk, now_ms: int) -> None:
        """Unlinks every entry whose time has come."""
        with self._lock:
            ready = [path for due_ms, path in self._due if due_ms <= now_ms]
            self._due = [due for due in self._due if due[0] > now_ms]
        for path in ready:
            _remove(disk, path)


def _remove(disk: Disk, path: str) -> None:
    try:
        if os.path.isdir(path):
            for entry in disk.list(path):
                disk.unlink(entry.path)
            disk.rmdir(path)
        else:
            disk.unlink(path)
    except FileNotFoundError:
        pass


class LogDir:
    __slots__ = ("_lock_fd", "_on_offline", "clock", "disk", "error", "files", "indexes", "path", "pending_deletes")

    def __init__(
        self,
        path: Path | str,
        *,
        disk: Disk,
        clock: Clock,
        files: Pool | None = None,
        indexes: Pool | None = None,
        on_offline: Callable[[Path, OSError], None] | None = None,
    ) -> None:
        self.path = str(path)
        self.disk = disk
        self.clock = clock
        self.files = files if files is not None else Pool(max_open_files())
        self.indexes = indexes if indexes is not None else Pool(MAX_LOADED_INDEXES)
        self.pending_deletes = PendingDeletes()
        #: The error that took the dir offline; None while the dir works.
        self.error: OSError | None = None
        self._on_offline = on_offline
        self._lock_fd: int | None = None

    def folder_of(self, topic: str, partition: int) -> str:
        """The folder of a log in this dir."""
        return f"{self.path}/{topic}-{partition}"

    def lock(self) -> None:
        """Creates the folder if it is missing, and keeps other processes from using it.

        :raises LogDirError: if another process has the lock.
        """
        self.disk.mkdir(self.path)
        self._lock_fd = meta_properties.lock(self.disk, self.path)

    def unlock(self) -> None:
        """Gives up the lock, if it is held. The lock file stays: to remove it would race with the next owner."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            self.disk.close(fd)

    def take_offline(self, error: OSError) -> StorageError:
        """Takes the dir offline; returns the error to raise to the code that was using the dir.

        A process that has no file descriptor left fails only the one operation: the disk is not to blame.
        """
        if error.errno in (EMFILE, ENFILE):
            return StorageError(f"too many open files: {error}")
        if self.error is None:
            self.error = error
            logger.error("log dir %s is offline, with all its logs, until the broker restarts: %s", self.path, error)
            if self._on_offline is not None:
                self._on_offline(Path(self.path), error)
        return self.offline_error()

    def offline_error(self) -> StorageError:
        """The error for uses of a dir that is offline."""
        return StorageError(f"log dir {self.path} is offline: {self.error}")
