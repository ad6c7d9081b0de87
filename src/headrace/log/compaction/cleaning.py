"""The slow part of compaction: reads closed segments and writes cleaned segments. It runs on any thread, and changes no
log.

``key_map.py`` reads the dirty part of the log and notes, for each key, the last offset that has it. Then all batches
from the log's start are read, and these records are copied into ``.cleaned`` files:

- the last record of each key; no record without a key;
- a tombstone until the delete horizon of its batch. The first cleaning writes that time into the batch,
  ``delete.retention.ms`` from then on (KIP-534). The first cleaning after that time drops the tombstone;
- no record of an aborted transaction. ``transactions.py`` says which markers stay; a marker has a horizon too.

A batch keeps its offsets, producer, sequence and epoch, so sequences still detect duplicates; its offset deltas get
gaps. A batch without remaining records is dropped, with two exceptions: if it holds the last sequence or epoch of an
active producer, or the last offset of the cleaned part, then its header stays. Batches that need no change are copied
unchanged.

Segments are joined: the next one follows the kept batches of those before it, as long as all of it would fit into
``segment.bytes`` and ``segment.index.bytes``. A segment that would not change is not replaced. All files are on disk
(fsync) before the swap. A crash leaves ``.cleaned`` files, which loading removes.
"""

from collections.abc import Mapping

from headrace.log.compaction.cleaned_segment import CleanedSegment
from headrace.log.compaction.key_map import digest, map_keys, read_batches
from headrace.log.compaction.plan import CleanedGroup, CleanedSegments, CleaningPlan, Pace
from headrace.log.compaction.transactions import CleanedTransactions
from headrace.log.disk import Disk
from headrace.log.segment import CLEANED, INDEX, LOG, TIMEINDEX, TXNINDEX
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.batch_building import assemble_batch
from headrace.protocol.record_body import (
    RecordSlice,
    codec_of,
    decompress_body,
    iter_slices,
    slice_records,
)
from headrace.protocol.records import DELETE_HORIZON, NO_TIMESTAMP, BatchHeader, Buffer, Codec
from headrace.protocol.wire.varints import read_varint, write_varint


def build(plan: CleaningPlan, pace: Pace) -> CleanedSegments:
    """Writes the cleaned segments of a plan.

    :raises KafkaError: if a batch cannot be read.
    :raises FileNotFoundError: if a segment was removed meanwhile.
    """
    latest, end_offset = map_keys(plan, pace)
    cleaned = CleanedSegments(plan, end_offset, key_count=len(latest))
    try:
        _clean_segments(plan, _Cleaning(plan, latest, end_offset), cleaned, pace)
    except Exception:
        remove_files(plan.disk, cleaned.groups)
        raise
    cleaned.read_bytes = sum(sum(group.old_sizes_bytes) for group in cleaned.groups)
    cleaned.written_bytes = sum(group.size_bytes for group in cleaned.groups)
    remove_files(plan.disk, [group for group in cleaned.groups if not group.has_changed])
    cleaned.groups = [group for group in cleaned.groups if group.has_changed]
    return cleaned


def remove_files(disk: Disk, groups: list[CleanedGroup]) -> None:
    for group in groups:
        for suffix in (LOG, INDEX, TIMEINDEX, TXNINDEX):
            try:
                disk.unlink(group.old[0].path(suffix) + CLEANED)
            except FileNotFoundError:
                continue


def _clean_segments(plan: CleaningPlan, cleaning: "_Cleaning", cleaned: CleanedSegments, pace: Pace) -> None:
    output: CleanedSegment | None = None
    try:
        for segment, size_bytes in zip(plan.segments, plan.sizes_bytes, strict=True):
            if segment.base_offset >= cleaned.end_offset:
                break
            if output is None or not output.has_room(plan, segment, size_bytes):
                if output is not None:
                    output.finish()
                cleaned.groups.append(group := CleanedGroup([], []))
                output = CleanedSegment(plan, segment, pace)
            group.old.append(segment)
            group.old_sizes_bytes.append(size_bytes)
            group.has_changed |= len(group.old) > 1
            for header, batch in read_batches(plan, segment, size_bytes, pace):
                kept, aborted = cleaning.clean(header, batch)
                group.has_changed |= kept is not batch
                if kept is not None:
                    output.append(kept, aborted)
            group.size_bytes = output.size_bytes
        if output is not None:
            output.finish()
    finally:
        if output is not None:
            output.close()


class _Cleaning:
    """Decides what to write for each batch, in the order of offsets."""

    def __init__(self, plan: CleaningPlan, latest: Mapping[bytes, int], end_offset: int) -> None:
        self._plan = plan
        self._latest = latest
        self._end_offset = end_offset
        self._transactions = CleanedTransactions(plan.aborted)
        self._aborted_at = {txn.last_offset: txn for txn in plan.aborted}

    def clean(self, header: BatchHeader, batch: memoryview) -> tuple[Buffer | None, AbortedTxn | None]:
        """Returns the bytes to write for a batch (the batch itself if it does not change), and the entry for the
        transaction index."""
        aborted: AbortedTxn | None = None
        if header.is_control:
            is_needless, aborted = self._transactions.end(header, batch)
        else:
            is_needless = self._transactions.is_aborted(header)
        if header.last_offset >= self._end_offset:
            return batch, self._aborted_at.get(header.last_offset) if header.is_control else None
        if is_needless and (not header.is_control or self._is_past_horizon(header)):
            return self._emptied(header), None
        if header.record_count == 0:
            return (batch if self._must_stay(header) else None), None
        body = decompress_body(header, batch)
        if header.is_control:
            needs_horizon = is_needless and not header.has_delete_horizon
            slices = slice_records(header, body)
            return (self._with_horizon(header, body, slices) if needs_horizon else batch), aborted
        return self._filtered(header, batch, body), None

    def _filtered(self, header: BatchHeader, batch: memoryview, body: bytes) -> Buffer | None:
        keeps_tombstones = not self._is_past_horizon(header)
        latest = self._latest
        kept = [
            part
            for part in iter_slices(header, body)  # not a list: a few kilobytes may hold millions of records
            if part.key is not None
            and latest.get(digest(part.key), -1) <= part.offset
            and (keeps_tombstones or part.has_value)
        ]
        if not kept:
            return self._emptied(header)
        if not header.has_delete_horizon and not all(part.has_value for part in kept):
            return self._with_horizon(header, body, kept)
        if len(kept) == header.record_count:
            return batch
        return _with_records(header, body, kept)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._plan.now_ms

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the header of a batch without records is still needed."""
        if header.next_offset == self._end_offset:
            return True
        last = self._plan.last_of_producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.last_data_offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.last_data_offset

    def _emptied(self, header: BatchHeader) -> bytes | None:
        if not self._must_stay(header):
            return None
        attributes = header.attributes & ~DELETE_HORIZON
        empty = header._replace(record_count=0, base_timestamp=NO_TIMESTAMP, attributes=attributes)
        return assemble_batch(empty, b"", codec=Codec.none)

    def _with_horizon(self, header: BatchHeader, body: bytes, kept: list[RecordSlice]) -> bytes:
        """The batch with these records, whose timestamps count from the delete horizon. The rest of a record stays as
        it is: one record may have millions of headers, which must not become objects."""
        horizon_ms = self._plan.now_ms + self._plan.config.delete_retention_ms
        records = bytearray()
        for part in kept:
            _, attributes_at = read_varint(body, part.start)
            _, rest_at = read_varint(body, attributes_at + 1)
            delta = write_varint(part.timestamp_ms - horizon_ms)
            records += write_varint(1 + len(delta) + part.end - rest_at)
            records.append(body[attributes_at])
            records += delta
            records += body[rest_at : part.end]
        attributes = header.attributes | DELETE_HORIZON
        return _assembled(header._replace(base_timestamp=horizon_ms, attributes=attributes), records, kept)


def _with_records(header: BatchHeader, body: bytes, kept: list[RecordSlice]) -> bytes:
    """The batch with fewer records. Base offset and base timestamp do not change, nor do the bytes of the records."""
    return _assembled(header, b"".join([body[part.start : part.end] for part in kept]), kept)


def _assembled(header: BatchHeader, records: Buffer, kept: list[RecordSlice]) -> bytes:
    max_timestamp = header.max_timestamp if header.is_log_append_time else max(part.timestamp_ms for part in kept)
    header = header._replace(record_count=len(kept), max_timestamp=max_timestamp)
    return assemble_batch(header, records, codec=codec_of(header))
