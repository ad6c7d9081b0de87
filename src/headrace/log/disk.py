"""Does every file operation of the log, so that a test can make any of them fail.

This module decides nothing. An ``OSError`` goes to the caller, which takes the log dir offline. Each write names its
position. So after a write that failed half way, the next write starts at the same place.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.protocol.records import Buffer


class Disk:
    __slots__ = ()

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int, size_bytes: int) -> None:
        """Writes all of the buffers, whose sizes add up to ``size_bytes``."""
        written_bytes = os.pwritev(fd, buffers, position)
        if written_bytes != size_bytes:
            self._write_rest(fd, b"".join(buffers), position, written_bytes)

    def _write_rest(self, fd: int, data: bytes, position: int, written_bytes: int) -> None:
        rest = memoryview(data)
        while written_bytes < len(data):
            written_bytes += os.pwrite(fd, rest[written_bytes:], position + written_bytes)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        return os.pread(fd, size_bytes, position)

    def fsync(self, fd: int) -> None:
        os.fdatasync(fd)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def reserve(self, fd: int, size_bytes: int) -> None:
        """Reserves space for a file of this size. The size of the file does not change."""
        from headrace.log.space_reservation import reserve

        reserve(fd, size_bytes)

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, old_path: str, new_path: str) -> None:
        os.replace(old_path, new_path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Creates a folder, and its missing parents. Does nothing if the folder exists."""
        try:
            os.mkdir(path)
        except OSError:
            os.makedirs(path, exist_ok=True)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def list(self, path: str) -> list[os.DirEntry[str]]:
        with os.scandir(path) as entries:
            return list(entries)

    def fsync_directory(self, path: str) -> None:
        fd = self.open(path, os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    @contextmanager
    def opened(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
        fd = self.open(path, flags)
        try:
            yield fd
        finally:
            self.close(fd)

    def read_file(self, path: str) -> bytes | None:
        """The content of a small file; None if there is no such file."""
        try:
            fd = self.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            parts = []
            position = 0
            while part := self.pread(fd, 1 << 20, position):
                parts.append(part)
                position += len(part)
            return b"".join(parts)
        finally:
            self.close(fd)

    def write_file(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Replaces a file. If the process dies at any moment, the file has either the old or the new content, complete.
        With ``sync`` this also holds if the host dies."""
        temporary = path + ".tmp"
        with self.opened(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as fd:
            self.write(fd, (data,), 0, len(data))
            if sync:
                self.fsync(fd)
        self.rename(temporary, path)
        if sync:
            self.fsync_directory(os.path.dirname(path))

    def append_file(self, path: str, data: bytes, position: int) -> None:
        """Opens a file, writes bytes at a position, and closes the file."""
        with self.opened(path) as fd:
            self.write(fd, (data,), position, len(data))
