"""Cuts off the end of a log. A follower does so with records that its leader does not have.

Files are cut and renamed from the last one to the first. So a crash in between leaves a longer valid prefix, which the
follower cuts again after its restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.log.retention import discard
from headrace.log.segment import Segment
from headrace.log.snapshots import delete_snapshots

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog


def truncate_to(log: PartitionLog, offset: int) -> None:
    log.end_early_write()
    if offset >= log.next_offset:
        # This broker may have led an epoch that began at the log's end and got no record, and follows a leader now.
        log.cut_epochs(log.next_offset)
        return
    if offset <= log.segments[0].base_offset:
        truncate_fully(log, offset)
        return
    keep = log.segment_at(offset)
    if log.segments[keep].base_offset == offset:
        keep -= 1
    dropped = log.segments[keep + 1 :]
    del log.segments[keep + 1 :]
    discard(log, dropped[::-1])
    last = log.active = log.segments[-1]
    size_bytes = last.size_bytes
    cut_offset = last.truncate(offset)
    log.size_bytes -= size_bytes - last.size_bytes
    # The log ends behind its last batch. That is below the given offset if the offset lay inside a batch or in a gap.
    _end_at(log, cut_offset)


def truncate_fully(log: PartitionLog, offset: int) -> None:
    log.end_early_write()
    dropped = list(log.segments)
    log.segments.clear()
    discard(log, dropped[::-1])
    log.log_start_offset = offset
    log.active = Segment.create(log.log_dir, log.folder, offset, log.config)
    log.segments.append(log.active)
    delete_snapshots(log.log_dir.disk, log.folder, above=-1)
    log.cut_epochs(-1)
    _end_at(log, offset)


def _end_at(log: PartitionLog, offset: int) -> None:
    log.next_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    delete_snapshots(log.log_dir.disk, log.folder, above=offset)
    log.unload_producers()
    log.cut_epochs(offset)
