"""Drops old segments from the front of a log.

A segment is dropped when the high watermark has passed its end and one of these holds: its newest record is older than
``retention.ms``; the log without it still has ``retention.bytes``; all of it is below ``log_start_offset``. Time and
size count only if ``cleanup.policy`` has ``delete``. Before the last segment is dropped, an empty one is created, so
that the log keeps its end offset.

A call drops a bounded number of segments, because the files of each are renamed on the event loop. A topic whose
retention was shortened may have thousands of old segments. The caller calls again, until nothing is dropped.

The ``.log`` file is renamed first. A crash in between leaves index files without a log, which loading removes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.log.segment import DELETED, INDEX, LOG, TIMEINDEX, TXNINDEX
from headrace.log.snapshots import SNAPSHOT
from headrace.protocol.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

#: The most segments that one call drops. It takes 0.1 ms per segment, and longer if the disk is busy.
MOST_AT_ONCE = 16
#: The .log file comes first: index files without a log are removed by loading.
_SEGMENT_FILES = (LOG, INDEX, TIMEINDEX, TXNINDEX)


def enforce(log: PartitionLog) -> int:
    """Drops at most ``MOST_AT_ONCE`` segments, and returns how many."""
    dropped = 0
    if log.config.is_deleted:
        dropped += _drop_while(log, _too_old(log), MOST_AT_ONCE)
        dropped += _drop_while(log, _too_much(log), MOST_AT_ONCE - dropped)
    return dropped + _drop_below_start(log, MOST_AT_ONCE - dropped)


def _drop_below_start(log: PartitionLog, at_most: int) -> int:
    start_offset = log.log_start_offset
    return _drop_while(log, lambda _, end_offset: end_offset <= start_offset, at_most, keep_active=True)


def _too_old(log: PartitionLog) -> Callable[[Segment, int], bool]:
    retention_ms, now_ms = log.config.retention_ms, log.log_dir.clock.wall_ms()
    return lambda segment, _: retention_ms >= 0 and now_ms - segment.largest_timestamp_ms() > retention_ms


def _too_much(log: PartitionLog) -> Callable[[Segment, int], bool]:
    surplus_bytes = log.size_bytes - log.config.retention_bytes

    def is_surplus(segment: Segment, _: int) -> bool:
        nonlocal surplus_bytes
        surplus_bytes -= segment.size_bytes
        return surplus_bytes >= 0

    return is_surplus if log.config.retention_bytes >= 0 else lambda *_: False


def _drop_while(
    log: PartitionLog, is_due: Callable[[Segment, int], bool], at_most: int, *, keep_active: bool = False
) -> int:
    due = 0
    for number, segment in enumerate(log.segments[:at_most]):
        is_active = segment is log.active
        end_offset = log.next_offset if is_active else log.segments[number + 1].base_offset
        if is_active and (keep_active or not segment.size_bytes):
            break
        if log.high_watermark < end_offset or not is_due(segment, end_offset):
            break
        due += 1
    if due:
        drop_first(log, due)
    return due


def drop_first(log: PartitionLog, count: int) -> None:
    """Drops segments from the front. The log then starts where the first remaining segment begins."""
    if count == len(log.segments):
        log.roll()
    dropped = log.segments[:count]
    del log.segments[:count]
    log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
    log.recovery_point = max(log.recovery_point, log.log_start_offset)
    discard(log, dropped)
    log.epochs.cut_start(log.log_start_offset)


def discard(log: PartitionLog, segments: Sequence[Segment], *, keeps_snapshots: bool = False) -> None:
    """Renames the files of segments that are no longer part of the log. They are unlinked later.

    :param keeps_snapshots: the producer snapshots at the base offsets of the segments are still needed.
    """
    due_ms = log.log_dir.clock.wall_ms() + log.config.file_delete_delay_ms
    disk = log.log_dir.disk
    for segment in segments:
        log.size_bytes -= segment.size_bytes
        for suffix in _SEGMENT_FILES if keeps_snapshots else (*_SEGMENT_FILES, SNAPSHOT):
            path = segment.path(suffix)
            try:
                disk.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            log.log_dir.pending_deletes.add(path + DELETED, due_ms)
        segment.close_files()


def advance_log_start(log: PartitionLog, offset: int) -> None:
    """Deletes the records below an offset. Of many segments, the later ones stay until the next :func:`enforce`."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(f"offset {offset} is above the high watermark {log.high_watermark}")
    if offset <= log.log_start_offset:
        return
    log.log_start_offset = offset
    log.epochs.cut_start(offset)
    _drop_below_start(log, MOST_AT_ONCE)
