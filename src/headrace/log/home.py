"""What the logs of one log dir share: its disk, its pools of open files, its rubbish, and whether it still works.

The first ``OSError`` takes the whole dir offline, as Kafka does: a disk that failed once is not asked again before a
restart. Every log of the dir looks at ``error`` before it does anything.

What is deleted is first renamed and thrown into the :class:`Trash`, and unlinked later (``file.delete.delay.ms``) by
whoever runs :meth:`Trash.empty`, on any thread. After a crash the renamed files are found by their suffix.
"""

import os
import resource
from collections.abc import Callable
from errno import EMFILE, ENFILE
from logging import getLogger
from pathlib import Path
from threading import Lock

from headrace.log.disk import Disk
from headrace.log.file_region import Pool
from headrace.protocol.errors import StorageError
from headrace.runtime.clock import Clock

logger = getLogger(__name__)

MAX_OPEN_FILES = 4000
MAX_LOADED_INDEXES = 256


def max_open_files() -> int:
    """How many segment files to hold open: sockets and indexes need descriptors too."""
    return min(MAX_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class Trash:
    __slots__ = ("_due", "_lock")

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due_ms: int) -> None:
        with self._lock:
            self._due.append((due_ms, path))

    def forget_below(self, folder: str) -> None:
        """A folder was renamed: what was to be removed inside will go with it."""
        with self._lock:
            self._due = [due for due in self._due if not due[1].startswith(folder + "/")]

    def empty(self, disk: Disk, now_ms: int) -> None:
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


class Home:
    __slots__ = ("_on_offline", "clock", "disk", "error", "files", "indexes", "path", "trash")

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
        self.trash = Trash()
        self.error: OSError | None = None
        self._on_offline = on_offline

    def fail(self, error: OSError) -> StorageError:
        """Take the dir offline; what to raise at whoever was using it.

        Having no descriptor left is the process's trouble and not the disk's: that fails the one operation only.
        """
        if error.errno in (EMFILE, ENFILE):
            return StorageError(f"too many open files: {error}")
        if self.error is None:
            self.error = error
            logger.error("log dir %s is offline: %s", self.path, error)
            if self._on_offline is not None:
                self._on_offline(Path(self.path), error)
        return self.offline()

    def offline(self) -> StorageError:
        return StorageError(f"log dir {self.path} is offline: {self.error}")
