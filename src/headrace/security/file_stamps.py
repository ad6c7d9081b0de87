"""Notices that a file has changed, without reading the file: by its number, its size and its time of modification."""

from __future__ import annotations

import os

#: Inode, size and time of modification of a file; None if there is no such file.
Stamp = tuple[int, int, int] | None


def stamp_of(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
