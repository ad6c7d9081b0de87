"""Moving a log to another log dir while it is being written and read.

The copy grows in ``<dest>/<topic>-<partition>.<uuid>-future``. Closed segments never change, and of the active one
only the end does, so most of the bytes are copied on a thread, round after round: :meth:`Relocation.plan` (on the
thread that owns the log) says which bytes are missing, :meth:`Relocation.copy` (on any thread) brings and syncs them,
:meth:`Relocation.note` remembers that. A segment that retention drops or compaction replaces meanwhile is another
object afterwards; its copy is dropped, and made anew where there is a new one. So is that of a segment that a follower
has cut, to agree with its leader. When little is missing, the owner's
thread does the rest at one go: the last bytes, indexes, producers and epochs (:meth:`Relocation.complete`), then the
renames (:meth:`headrace.log.log_manager.LogManager.replace_with_copy`).

What a crash leaves, and what the next start makes of it:

- ``-future``: not complete; removed.
- ``-moved`` (the complete copy's name before it takes the log's) beside the old folder: removed, the old one holds.
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
_BELONGINGS = (INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
_MAX_NAME = 255
_CHUNK_BYTES = 1 << 20


class Missing(NamedTuple):
    """Bytes of a segment that the copy does not have yet."""

    segment: Segment
    start: int
    end: int
    is_closed: bool
    cuts: int


class _Copied(NamedTuple):
    segment: Segment
    size_bytes: int
    was_closed: bool
    cuts: int


class Relocation:
    def __init__(self, log: PartitionLog, log_dir: LogDir) -> None:
        """
        :raises InvalidTopic: if the topic's name leaves no room for the suffix, as in Kafka.
        """
        self.log = log
        self.log_dir = log_dir
        name = f"{log.topic}-{log.partition}.{uuid4().hex}{FUTURE_SUFFIX}"
        if len(name) > _MAX_NAME:
            raise InvalidTopic(f"the name of {log.topic} is too long for a folder {name}")
        self.folder = f"{log_dir.path}/{name}"
        #: Set by anybody: the copy is not wanted any more.
        self.cancelled = Event()
        #: By base offset. What was closed when it was copied came with all that belongs to it.
        self._copied: dict[int, _Copied] = {}
        self._is_begun = False

    @property
    def size_bytes(self) -> int:
        return sum(copied.size_bytes for copied in self._copied.values())

    @property
    def next_offset(self) -> int:
        """Up to where the copy is whole, as far as segments tell."""
        for segment in self.log.segments:
            copied = self._copied.get(segment.base_offset)
            if copied is None or copied.segment is not segment or copied.size_bytes < segment.size_bytes:
                return segment.base_offset
        return self.log.next_offset

    # -- the owner's thread

    def plan(self) -> list[Missing]:
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
                missing.append(Missing(segment, start, segment.size_bytes, is_closed, segment.cuts))
        return missing

    def note(self, copied: list[Missing]) -> None:
        for segment, _, end, is_closed, cuts in copied:
            self._copied[segment.base_offset] = _Copied(segment, end, is_closed, cuts)

    def complete(self) -> None:
        """The rest, while nobody writes. Afterwards the copy has all that the log has."""
        log = self.log
        self.note(self.copy(self.plan()))
        try:
            log.active.finish()
            log.take_snapshot()
        except OSError as error:
            raise log.log_dir.take_offline(error) from error
        if log.active.base_offset not in self._copied:
            self._bring(log.active, 0, 0, lambda _: None)
        self._copy_what_belongs_to(log.active)
        self._copy_file(f"{segment_name(log.next_offset)}{SNAPSHOT}")
        self._copy_file(leader_epochs.FILE_NAME)
        self._copy_file(partition_metadata.FILE_NAME)
        self.log_dir.disk.fsync_directory(self.folder)

    def discard(self) -> None:
        """The copy is not wanted; its files go soon."""
        if self._is_begun:
            self.log_dir.pending_deletes.add(self.folder, 0)

    def _drop(self, base_offset: int) -> None:
        del self._copied[base_offset]
        for suffix in (LOG, *_BELONGINGS):
            try:
                self.log_dir.disk.unlink(f"{self.folder}/{segment_name(base_offset)}{suffix}")
            except FileNotFoundError:
                continue

    # -- any thread

    def copy(self, missing: list[Missing], pace: Callable[[int], object] = lambda _: None) -> list[Missing]:
        """Brings bytes and syncs them; what was brought. A segment that is gone meanwhile is passed over.

        :raises OSError: of the dir that is written to.
        :raises StorageError: if the dir that is read from fails.
        """
        if not self._is_begun:
            self.log_dir.disk.mkdir(self.folder)
            self._is_begun = True
        done = []
        for part in missing:
            if self._bring(part.segment, part.start, part.end, pace):
                if part.is_closed:
                    self._copy_what_belongs_to(part.segment)
                done.append(part)
            if self.cancelled.is_set():
                break
        return done

    def _bring(self, segment: Segment, start: int, end: int, pace: Callable[[int], object]) -> bool:
        """Whether all of it was brought: not if the segment is gone, or the move."""
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
        """Bytes of the old log; none if the file is gone."""
        log_dir = self.log.log_dir
        try:
            with log_dir.disk.opened(path, os.O_RDONLY) as fd:
                return log_dir.disk.pread(fd, size_bytes, position)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise log_dir.take_offline(error) from error

    def _copy_what_belongs_to(self, segment: Segment) -> None:
        """Its indexes, and the producers as they were where it begins."""
        for suffix in _BELONGINGS:
            self._copy_file(f"{segment_name(segment.base_offset)}{suffix}")

    def _copy_file(self, name: str) -> None:
        """A small file, if it is there."""
        log_dir = self.log.log_dir
        try:
            data = log_dir.disk.read_file(f"{self.log.folder}/{name}")
        except OSError as error:
            raise log_dir.take_offline(error) from error
        if data is not None:
            self.log_dir.disk.write_file(f"{self.folder}/{name}", data)
