"""Holds the open files of segments, and the regions of files that are being sent to a socket.

An :class:`OpenFile` closes its descriptor when nothing refers to it any more: neither its segment, nor a
:class:`FileRegion` that is being sent. So a segment may be evicted, replaced, renamed or unlinked while its bytes are
still being sent. The descriptor is closed after the last region was sent.

A :class:`Pool` limits how many files are open. It evicts by second chance: a user of an entry only sets its ``used``
mark, which is one store on the hot path. A full pool skips, once, the entries that were used since its last search.
"""

import os
from collections import OrderedDict
from threading import Lock
from typing import Protocol

from headrace.log.disk import Disk


class OpenFile:
    __slots__ = ("_disk", "fd")

    def __init__(self, disk: Disk, path: str) -> None:
        self.fd = -1
        self._disk = disk
        # Without O_CREAT: a segment that was dropped must not come back as an empty file.
        self.fd = disk.open(path, os.O_RDWR)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)


class FileRegion:
    """A range of bytes of a segment file, to be sent with ``os.sendfile``."""

    __slots__ = ("_disk", "_file", "position", "size_bytes")

    def __init__(self, disk: Disk, file: OpenFile, position: int, size_bytes: int) -> None:
        self._disk = disk
        self._file = file
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int:
        return self._file.fd

    def read(self) -> bytes:
        return self._disk.pread(self._file.fd, self.size_bytes, self.position)

    def __len__(self) -> int:
        return self.size_bytes


class Evictable(Protocol):
    used: bool

    def evict(self) -> None:
        """Releases the resource that the pool counts. The next use opens it again."""
        ...


class Pool:
    """Limits how many entries hold a resource at the same time."""

    __slots__ = ("_entries", "_limit", "_lock")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[int, Evictable] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Evictable) -> None:
        with self._lock:
            self._entries[id(entry)] = entry
            looked_at = 0
            while len(self._entries) > self._limit and looked_at <= 2 * self._limit:
                looked_at += 1
                key, oldest = self._entries.popitem(last=False)
                if oldest is entry or (oldest.used and looked_at <= self._limit):
                    oldest.used = False
                    self._entries[key] = oldest
                else:
                    oldest.evict()

    def discard(self, entry: Evictable) -> None:
        with self._lock:
            self._entries.pop(id(entry), None)
