"""Moves a log to another log dir, while producers write it and consumers read it.

The copy grows in ``<dest>/<topic>-<partition>.<uuid>-future``. Closed segments never change, and the active one changes
only at its end. So most bytes are copied on another thread, in rounds. :meth:`Relocation.plan`, on the thread that owns
the log, says which bytes are missing. :meth:`Relocation.copy`, on any thread, copies and syncs them.
:meth:`Relocation.note` remembers what was copied.

A segment may change during the copy: retention drops it, compaction replaces it, or a follower cuts it to agree with
its leader. Then its copy is dropped, and the new segment, if there is one, is copied from its start.

When only few bytes are missing, the owner's thread does the rest in one step: the last bytes, indexes, producers and
epochs (:meth:`Relocation.complete`), then the renames
(:meth:`headrace.log.log_manager.LogManager.replace_with_copy`).

What a crash leaves, and what the next start does:

- ``-future``: an incomplete copy. It is removed.
- ``-moved`` (the name of a complete copy before it takes the log's name) beside the old folder: the old folder is the
  log, and the copy is removed.
- ``-moved`` without the old folder, which has been renamed to ``-delete``: the copy is the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event
from typing import NamedTuple
from uuid import uuid4

from headrace.log import leader_epochs, partition_metadata
from headrace.log.log_dir import LogDir
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import INDEX, LOG, TIMEINDEX, TXNINDEX, Segment, segment_name
from headrace.log.snapshots import SNAPSHOT
from headrace.protocol.errors import InvalidTopic

FUTURE_SUFFIX, MOVED_SUFFIX = "-future", "-moved"
#: A segment's indexes, and the producer snapshot at its base offset.
_SIDE_FILES = (INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
_MAX_NAME = 255
_CHUNK_BYTES = 1 << 20


class MissingBytes(NamedTuple):
    """Bytes of a segment that the copy does not have yet."""

    segment: Segment
    start: int
    end: int
    is_closed: bool
    cuts: int


class _CopiedSegment(NamedTuple):
    """How much of a segment the copy has."""

    segment: Segment
    size_bytes: int
    was_closed: bool
    cuts: int


class Relocation:
    def __init__(self, log: PartitionLog, log_dir: LogDir) -> None:
        """
        :raises InvalidTopic: if the topic's name is too long for a folder with the suffix, as in Kafka.
        """
        self.log = log
        self.log_dir = log_dir
        name = f"{log.topic}-{log.partition}.{uuid4().hex}{FUTURE_SUFFIX}"
        if len(name) > _MAX_NAME:
            raise InvalidTopic(f"the name of topic {log.topic} is too long to move it: a folder {name} has no room")
        self.folder = f"{log_dir.path}/{name}"
        #: Any thread may set this, to stop the copying.
        self.cancelled = Event()
        #: By base offset. A segment that was closed when it was copied has its side files too.
        self._copied: dict[int, _CopiedSegment] = {}
        self._is_begun = False

    @property
    def size_bytes(self) -> int:
        return sum(copied.size_bytes for copied in self._copied.values())

    @property
    def next_offset(self) -> int:
        """Up to where the copy is complete, in whole segments."""
        for segment in self.log.segments:
            copied = self._copied.get(segment.base_offset)
            if copied is None or copied.segment is not segment or copied.size_bytes < segment.size_bytes:
                return segment.base_offset
        return self.log.next_offset

    # -- the owner's thread

    def plan(self) -> list[MissingBytes]:
        segments = {segment.base_offset: segment for segment in self.log.segments}
        for base_offset, copied in list(self._copied.items()):
            if segments.get(base_offset) is not copied.segment or copied.cuts != copied.segment.cuts:
                self._drop(base_offset)
        missing = []
        for base_offset, segment in segments.items():
            is_closed = segment is not self.log.active
            start, was_closed = 0, False
            if base_offset in self._copied:
                _, start, was_closed, _ = self._copied[base_offset]
            if start < segment.size_bytes or (is_closed and not was_closed):
                missing.append(MissingBytes(segment, start, segment.size_bytes, is_closed, segment.cuts))
        return missing

    def note(self, copied: list[MissingBytes]) -> None:
        for segment, _, end, is_closed, cuts in copied:
            self._copied[segment.base_offset] = _CopiedSegment(segment, end, is_closed, cuts)

    def complete(self) -> None:
        """Copies the rest, while nobody writes. Afterwards the copy has all that the log has."""
        log = self.log
        self.note(self.copy(self.plan()))
        try:
            log.active.finish()
            log.take_snapshot()
        except OSError as error:
            raise log.log_dir.take_offline(error) from error
        if log.active.base_offset not in self._copied:
            self._copy_bytes(log.active, 0, 0, lambda _: None)
        self._copy_side_files(log.active)
        self._copy_file(f"{segment_name(log.next_offset)}{SNAPSHOT}")
        self._copy_file(leader_epochs.FILE_NAME)
        self._copy_file(partition_metadata.FILE_NAME)
        self.log_dir.disk.fsync_directory(self.folder)

    def discard(self) -> None:
        """Deletes the copy, which is not needed any more."""
        if self._is_begun:
            self.log_dir.pending_deletes.add(self.folder, 0)

    def _drop(self, base_offset: int) -> None:
        del self._copied[base_offset]
        for suffix in (LOG, *_SIDE_FILES):
            try:
                self.log_dir.disk.unlink(f"{self.folder}/{segment_name(base_offset)}{suffix}")
            except FileNotFoundError:
                continue

    # -- any thread

    def copy(self, missing: list[MissingBytes], pace: Callable[[int], object] = lambda _: None) -> list[MissingBytes]:
        """Copies bytes and syncs them; returns what was copied. A segment that was dropped meanwhile is skipped.

        :raises OSError: if the dir of the copy fails.
        :raises StorageError: if the dir of the log fails.
        """
        if not self._is_begun:
            self.log_dir.disk.mkdir(self.folder)
            self._is_begun = True
        done = []
        for part in missing:
            if self._copy_bytes(part.segment, part.start, part.end, pace):
                if part.is_closed:
                    self._copy_side_files(part.segment)
                done.append(part)
            if self.cancelled.is_set():
                break
        return done

    def _copy_bytes(self, segment: Segment, start: int, end: int, pace: Callable[[int], object]) -> bool:
        """Returns whether all bytes were copied. They were not if the segment is gone, or the move was cancelled."""
        path = f"{self.folder}/{segment_name(segment.base_offset)}{LOG}"
        target = self.log_dir.disk
        with target.opened(path, os.O_RDWR | os.O_CREAT | (0 if start else os.O_TRUNC)) as fd:
            while start < end and not self.cancelled.is_set():
                chunk = self._read(segment.path(), min(_CHUNK_BYTES, end - start), start)
                if not chunk:
                    return False
                target.write(fd, (chunk,), start, len(chunk))
                start += len(chunk)
                pace(len(chunk))
            target.fsync(fd)
        return start == end

    def _read(self, path: str, size_bytes: int, position: int) -> bytes:
        """Reads bytes of the log; none if the file is gone."""
        log_dir = self.log.log_dir
        try:
            with log_dir.disk.opened(path, os.O_RDONLY) as fd:
                return log_dir.disk.pread(fd, size_bytes, position)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise log_dir.take_offline(error) from error

    def _copy_side_files(self, segment: Segment) -> None:
        """Copies the indexes of a segment, and the producer snapshot at its base offset."""
        for suffix in _SIDE_FILES:
            self._copy_file(f"{segment_name(segment.base_offset)}{suffix}")

    def _copy_file(self, name: str) -> None:
        """Copies a small file, if it exists."""
        log_dir = self.log.log_dir
        try:
            data = log_dir.disk.read_file(f"{self.log.folder}/{name}")
        except OSError as error:
            raise log_dir.take_offline(error) from error
        if data is not None:
            self.log_dir.disk.write_file(f"{self.folder}/{name}", data)
