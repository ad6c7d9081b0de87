"""Replaces segments by the compacted ones that were made from them. After a crash the log has either the old or the
new.

1. The cleaner writes ``<base>.log.cleaned`` and its indexes, and syncs them.
2. All are renamed to ``.swap``, the highest base offset first, and the folder is synced. From here on the new ones
   count.
3. The old ones are renamed to ``.deleted``.
4. The suffix ``.swap`` is removed from the names.

Loading (:func:`finish_interrupted`) removes ``.cleaned`` files. It also removes every ``.swap`` file at or above the
lowest base offset of those: step 2 was not complete, and the old segments are all there. Other ``.swap`` files mean
that step 3 or 4 was not complete: the old segments that they cover are removed, and the new ones get their final names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.log.disk import Disk
from headrace.log.retention import discard
from headrace.log.segment import CLEANED, INDEX, LOG, SWAP, TIMEINDEX, TXNINDEX, Segment

if TYPE_CHECKING:
    from headrace.log.log_dir import LogDir
    from headrace.log.partition_log import PartitionLog

#: The .log file comes last: while it has the old suffix, the whole segment counts as not renamed.
_SUFFIXES = (INDEX, TIMEINDEX, TXNINDEX, LOG)


def replace_segments(log: PartitionLog, cleaned: Sequence[Segment], old: Sequence[Segment]) -> None:
    disk = log.log_dir.disk
    first = log.segments.index(old[0])
    assert log.segments[first : first + len(old)] == list(old)
    assert log.active not in old
    for segment in reversed(cleaned):
        _rename(disk, segment, CLEANED, SWAP)
    disk.fsync_directory(log.folder)
    new_offsets = {segment.base_offset for segment in cleaned}
    discard(log, [segment for segment in old if segment.base_offset not in new_offsets])
    # A cleaned segment needs the producer snapshot at its base offset, which the old segment there had too.
    discard(log, [segment for segment in old if segment.base_offset in new_offsets], keeps_snapshots=True)
    for segment in cleaned:
        _rename(disk, segment, SWAP, "")
        log.size_bytes += segment.size_bytes
    log.segments[first : first + len(old)] = cleaned


def _rename(disk: Disk, segment: Segment, old: str, new: str) -> None:
    for suffix in _SUFFIXES:
        path = segment.path(suffix)
        try:
            disk.rename(path + old, path + new)
        except FileNotFoundError:
            continue


def finish_interrupted(log_dir: LogDir, folder: str) -> None:
    """Completes or undoes a swap that a crash has interrupted."""
    disk = log_dir.disk
    names = {entry.name for entry in disk.list(folder) if entry.name.partition(".")[0].isdigit()}
    cleaned = {name for name in names if name.endswith(CLEANED)}
    lowest_cleaned = min(map(_base_of, cleaned), default=None)
    swaps = {name for name in names if name.endswith(SWAP)}
    undone = {name for name in swaps if lowest_cleaned is not None and _base_of(name) >= lowest_cleaned}
    for name in cleaned | undone:
        disk.unlink(f"{folder}/{name}")
    logs = sorted(_base_of(name) for name in swaps - undone if name.endswith(LOG + SWAP))
    for base_offset in logs:
        _complete(log_dir, folder, base_offset, names)


def _base_of(name: str) -> int:
    return int(name.partition(".")[0])


def _complete(log_dir: LogDir, folder: str, base_offset: int, names: set[str]) -> None:
    swap_path = f"{folder}/{base_offset:020d}{LOG}{SWAP}"
    end_offset = _end_offset(log_dir, swap_path, base_offset)
    for name in names:
        if name.endswith(LOG) and base_offset <= _base_of(name) < max(end_offset, base_offset + 1):
            for suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX):
                old = name[: -len(LOG)] + suffix
                if old in names:
                    log_dir.disk.unlink(f"{folder}/{old}")
    for suffix in _SUFFIXES:
        name = f"{base_offset:020d}{suffix}"
        if name + SWAP in names:
            log_dir.disk.rename(f"{folder}/{name}{SWAP}", f"{folder}/{name}")


def _end_offset(log_dir: LogDir, swap_path: str, base_offset: int) -> int:
    """The offset behind the last batch of a segment that still has the suffix ``.swap``."""
    segment = _RenamedSegment(log_dir, swap_path, base_offset)
    end_offset = base_offset
    for _, header in segment.headers(0):
        end_offset = header.next_offset
    segment.close_files()
    return end_offset


class _RenamedSegment(Segment):
    """A segment whose file has another name than its base offset gives."""

    __slots__ = ("_path",)

    def __init__(self, log_dir: LogDir, path: str, base_offset: int) -> None:
        super().__init__(log_dir, "", base_offset, log_dir.disk.size_of(path), 4096)
        self._path = path

    def path(self, suffix: str = LOG) -> str:
        return self._path if suffix == LOG else self._path + suffix
