"""A disk that fails when told to, and a process that dies when told to.

``fail(...)`` arranges an ``OSError`` for an operation on some path, once or from then on; a write may put part of its
bytes down first, as a full disk does. ``crash_at(n)`` raises :class:`Crash` in place of the n-th operation that would
change something, and of every one after it: what is on disk then is what a killed process leaves. Count the
operations of a run with :attr:`FaultyDisk.changes`, then crash at each of them in turn.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.log.disk import Disk
from headrace.protocol.records import Buffer


class Crash(BaseException):
    """The process is gone. Not an ``Exception``, so that no handler of the code under test takes it for an error."""


@dataclass(slots=True)
class _Fault:
    operation: str
    path_part: str
    error_number: int
    skip: int
    is_lasting: bool
    partial_bytes: int


class FaultyDisk(Disk):
    def __init__(self) -> None:
        #: Operations so far that changed the disk: their names and paths.
        self.changes: list[tuple[str, str]] = []
        self._paths: dict[int, str] = {}
        self._faults: list[_Fault] = []
        self._crash_at: int | None = None

    # -- arranging --------------------------------------------------------------------------------------------------

    def fail(
        self,
        operation: str,
        path_part: str = "",
        *,
        error_number: int = errno.EIO,
        skip: int = 0,
        lasting: bool = True,
        partial_bytes: int = 0,
    ) -> None:
        """Make an operation on paths that contain a string fail, after letting ``skip`` of them pass."""
        self._faults.append(_Fault(operation, path_part, error_number, skip, lasting, partial_bytes))

    def heal(self) -> None:
        self._faults.clear()

    def crash_at(self, change: int) -> None:
        """Die in place of the change with this number, counted from 1 and from now."""
        self._crash_at = len(self.changes) + change

    # -- what happens -----------------------------------------------------------------------------------------------

    def _meet(self, operation: str, path: str) -> _Fault | None:
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path:
                if fault.skip:
                    fault.skip -= 1
                    continue
                if not fault.is_lasting:
                    self._faults.remove(fault)
                return fault
        return None

    def _check(self, operation: str, path: str) -> None:
        fault = self._meet(operation, path)
        if fault is not None:
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)

    def _change(self, operation: str, path: str) -> None:
        self._live(operation, path)
        self._check(operation, path)

    def _live(self, operation: str, path: str) -> None:
        if self._crash_at is not None and len(self.changes) + 1 >= self._crash_at:
            raise Crash(f"before {operation} {path}")
        self.changes.append((operation, path))

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if flags & os.O_TRUNC or (flags & os.O_CREAT and not os.path.exists(path)):
            self._change("open", path)
        else:
            self._check("open", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int, size_bytes: int) -> None:
        path = self._paths[fd]
        self._live("write", path)
        fault = self._meet("write", path)
        if fault is not None:
            os.pwrite(fd, b"".join(buffers)[: fault.partial_bytes], position)
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)
        super().write(fd, buffers, position, size_bytes)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._check("pread", self._paths[fd])
        return super().pread(fd, size_bytes, position)

    def fsync(self, fd: int) -> None:
        """May fail, but syncs nothing: the process dies here, the host does not."""
        self._check("fsync", self._paths[fd])

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._change("truncate", self._paths[fd])
        super().truncate(fd, size_bytes)

    def rename(self, old_path: str, new_path: str) -> None:
        self._change("rename", old_path)
        super().rename(old_path, new_path)

    def unlink(self, path: str) -> None:
        self._change("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._change("mkdir", path)
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._change("rmdir", path)
        super().rmdir(path)

    def list(self, path: str) -> "list[os.DirEntry[str]]":
        self._check("list", path)
        return super().list(path)
