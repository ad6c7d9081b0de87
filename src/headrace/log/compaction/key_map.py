"""The first pass of compaction: finds, for each key of the dirty part of a log, the last offset that has it.

The map is a dict by key, or by a digest of 16 bytes if the key is longer, so that the size of an entry is bounded. The
number of entries is bounded too (``log.cleaner.dedupe.buffer.size``). When the map is full the pass ends, between two
batches, and the next cleaning does the rest.
"""

import os
from collections.abc import Iterator
from hashlib import blake2b

from headrace.log.compaction.plan import CleaningPlan, Pace
from headrace.log.compaction.transactions import CleanedTransactions
from headrace.log.segment import LOG, Segment
from headrace.protocol.record_body import decompress_body, iter_slices
from headrace.protocol.records import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Buffer,
    check_batch,
    read_header,
)

_DIGEST_BYTES = 16


def map_keys(plan: CleaningPlan, pace: Pace) -> tuple[dict[bytes, int], int]:
    """The last offset of each key of the dirty part, and the offset behind the last batch that was read.

    The pass ends early, between batches, when there are more keys than the plan allows.
    """
    latest: dict[bytes, int] = {}
    end_offset = plan.first_dirty_offset
    transactions = CleanedTransactions(plan.aborted)
    for segment, size_bytes in _dirty_segments(plan):
        for header, batch in read_batches(plan, segment, size_bytes, pace):
            if header.last_offset < plan.first_dirty_offset:
                continue
            if header.last_offset >= plan.first_uncleanable_offset or len(latest) >= plan.max_keys:
                return latest, end_offset
            if header.is_control:
                transactions.end(header, batch)
            elif not transactions.is_aborted(header):
                _note_keys(latest, header, batch, plan.first_dirty_offset)
            end_offset = header.next_offset
        # A gap at the end of a segment counts as read.
        end_offset = max(end_offset, min(plan.offset_behind(segment), plan.first_uncleanable_offset))
    return latest, end_offset


def _note_keys(latest: dict[bytes, int], header: BatchHeader, batch: Buffer, from_offset: int) -> None:
    for part in iter_slices(header, decompress_body(header, batch)):
        if part.key is not None and part.offset >= from_offset:
            latest[digest(part.key)] = part.offset


def digest(key: bytes) -> bytes:
    """The entry of a key. Short keys stand for themselves: they are shorter than every digest."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


def _dirty_segments(plan: CleaningPlan) -> Iterator[tuple[Segment, int]]:
    for segment, size_bytes in zip(plan.segments, plan.sizes_bytes, strict=True):
        if plan.offset_behind(segment) > plan.first_dirty_offset:
            yield segment, size_bytes


def read_batches(
    plan: CleaningPlan, segment: Segment, size_bytes: int, pace: Pace
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment file, with its crc checked.

    :raises CorruptMessage: at the first batch that is cut or damaged.
    """
    disk = plan.disk
    with disk.opened(segment.path(LOG), os.O_RDONLY) as fd:
        position = 0
        while position < size_bytes:
            chunk = disk.pread(fd, min(plan.chunk_bytes, size_bytes - position), position)
            if len(chunk) >= HEADER_BYTES and (first_bytes := read_header(chunk).size_bytes) > len(chunk):
                chunk = disk.pread(fd, min(first_bytes, size_bytes - position), position)
            pace(len(chunk))
            view = memoryview(chunk)
            at = 0
            while at == 0 or _holds_batch(chunk, at):
                header = check_batch(chunk, at)
                yield header, view[at : at + header.size_bytes]
                at += header.size_bytes
            position += at


def _holds_batch(chunk: bytes, at: int) -> bool:
    left_bytes = len(chunk) - at
    if left_bytes < LENGTH_PREFIX_BYTES:
        return False
    batch_length = int.from_bytes(chunk[at + 8 : at + LENGTH_PREFIX_BYTES], "big", signed=True)
    return batch_length + LENGTH_PREFIX_BYTES <= left_bytes
