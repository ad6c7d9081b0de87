"""A disk that fails with its node: after a loss of power, writes that were not flushed may be gone.

Files are real (put them on a memory disk); the page cache is simulated. When a process is killed, its writes stay. When
the host loses power, a random number of the last writes since a file's last fsync is undone. The first undone write may
leave a part of its bytes: a torn write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random

from headrace.log.disk import Disk
from headrace.protocol.records import Buffer
from headrace.testing.faulty_disk import Crash
from headrace.testing.simulator.node import Node


class SimulatedDisk(Disk):
    __slots__ = ("_node", "_paths", "_unflushed")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._paths: dict[int, str] = {}
        #: By path, for each write since the last fsync: its position, the bytes that it replaced, the file's size
        #: before.
        self._unflushed: dict[str, list[tuple[int, bytes, int]]] = {}
        node.on_crash(self._close_all)

    def _check_alive(self) -> None:
        if self._node.is_dead:
            raise Crash(f"{self._node} has crashed and writes nothing")

    def _close_all(self) -> None:
        for fd in list(self._paths):
            self.close(fd)

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        self._check_alive()
        if flags & os.O_TRUNC and os.path.exists(path):
            self._unflushed.pop(path, None)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        # The crash has closed all files of the node; the number may belong to another file now.
        if self._paths.pop(fd, None) is not None:
            super().close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], position: int, size_bytes: int) -> None:
        self._check_alive()
        before = os.fstat(fd).st_size
        overwritten = os.pread(fd, size_bytes, position) if position < before else b""
        self._unflushed.setdefault(self._paths[fd], []).append((position, overwritten, before))
        super().write(fd, buffers, position, size_bytes)

    def fsync(self, fd: int) -> None:
        self._check_alive()
        self._unflushed.pop(self._paths[fd], None)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._check_alive()
        # The file system journals a truncation, so it survives a loss of power.
        self._unflushed.pop(self._paths[fd], None)
        super().truncate(fd, size_bytes)

    def rename(self, old_path: str, new_path: str) -> None:
        self._check_alive()
        super().rename(old_path, new_path)
        if (unflushed := self._unflushed.pop(old_path, None)) is not None:
            self._unflushed[new_path] = unflushed

    def unlink(self, path: str) -> None:
        self._check_alive()
        self._unflushed.pop(path, None)
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._check_alive()
        super().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._check_alive()
        super().rmdir(path)

    def lose_power(self, random: Random) -> None:
        """Undoes some or all writes that were not flushed. Call it after the node has crashed."""
        assert self._node.is_dead, f"{self._node} still runs"
        for path, writes in self._unflushed.items():
            if not os.path.exists(path):
                continue
            kept = random.randint(0, len(writes))
            with open(path, "r+b") as file:
                torn = kept < len(writes) and random.random() < 0.3
                for number in range(len(writes) - 1, kept - 1, -1):
                    position, overwritten, size_bytes = writes[number]
                    is_half_done = torn and number == kept
                    if is_half_done and os.fstat(file.fileno()).st_size > size_bytes:
                        written = os.fstat(file.fileno()).st_size
                        file.truncate(random.randint(size_bytes, written))
                        continue
                    file.seek(position)
                    file.write(overwritten)
                    file.truncate(size_bytes)
        self._unflushed.clear()
