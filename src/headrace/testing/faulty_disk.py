"""A disk that fails when a test says so, and that ends the process at a chosen write.

``fail(...)`` makes an operation on some paths raise ``OSError``, once or from then on. A failing write may store a part
of its bytes first, as a full disk does. ``crash_at(n)`` raises :class:`Crash` in place of the n-th operation that would
change the disk, and of every later one: the disk then has what a killed process leaves. To crash at every point of a
run, count its operations with :attr:`FaultyDisk.changes`, then crash at each of them in turn.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.log.disk import Disk
from headrace.protocol.records import Buffer


class Crash(BaseException):
    """The process has crashed. Not an ``Exception``, so that no ``except`` of the code under test catches it."""


@dataclass(slots=True)
class _Fault:
    operation: str
    path_part: str
    error_number: int
    skip: int
    is_lasting: bool
    partial_bytes: int


class FaultyDisk(Disk):
    """Real files, with faults on demand. Pass it as ``Broker(disk=...)``."""

    def __init__(self) -> None:
        #: The operations that have changed the disk: their names and paths.
        self.changes: list[tuple[str, str]] = []
        self._paths: dict[int, str] = {}
        self._faults: list[_Fault] = []
        self._crash_at: int | None = None

    # -- for the test --------------------------------------------------------------------------------------------------

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
        """Makes an operation fail on paths that contain ``path_part``, after ``skip`` operations that succeed.

        :param operation: the name of a method of this class, such as ``write`` or ``fsync``.
        :param lasting: False: only once.
        :param partial_bytes: how many bytes a failing write stores.
        """
        self._faults.append(_Fault(operation, path_part, error_number, skip, lasting, partial_bytes))

    def heal(self) -> None:
        """Ends all faults."""
        self._faults.clear()

    def crash_at(self, change: int) -> None:
        """Raises :class:`Crash` in place of the change with this number; the next change is number 1."""
        self._crash_at = len(self.changes) + change

    # -- the disk ---------------------------------------------------------------------------------------------------

    def _next_fault(self, operation: str, path: str) -> _Fault | None:
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
        fault = self._next_fault(operation, path)
        if fault is not None:
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)

    def _change(self, operation: str, path: str) -> None:
        self._check_alive(operation, path)
        self._check(operation, path)

    def _check_alive(self, operation: str, path: str) -> None:
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
        self._check_alive("write", path)
        fault = self._next_fault("write", path)
        if fault is not None:
            os.pwrite(fd, b"".join(buffers)[: fault.partial_bytes], position)
            raise OSError(fault.error_number, os.strerror(fault.error_number), path)
        super().write(fd, buffers, position, size_bytes)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self._check("pread", self._paths[fd])
        return super().pread(fd, size_bytes, position)

    def fsync(self, fd: int) -> None:
        """May fail, but flushes nothing: this disk simulates crashes of the process, not of the host."""
        self._check("fsync", self._paths[fd])

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._change("truncate", self._paths[fd])
        super().truncate(fd, size_bytes)

    def reserve(self, fd: int, size_bytes: int) -> None:
        self._change("reserve", self._paths[fd])
        super().reserve(fd, size_bytes)

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
