"""Writes batches behind the last one of a log: the hot path of the broker.

The order of the steps makes an error at any step leave a correct log: check everything; roll if the batch does not fit;
write the bytes, in one call; move the end offset; note the producer's batch; last, add the index entry, which could be
rebuilt. Before all its bytes are written, no part of a batch counts.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from headrace.crc import crc32c
from headrace.log import lookups
from headrace.log.control_marker import end_transaction, read_marker
from headrace.log.producer_state import MAX_SEQUENCE, KeptBatch, ProducerStates
from headrace.log.txn_index import AbortedTxn
from headrace.log.validation import Origin, reject, rewrite
from headrace.protocol.errors import CorruptMessage, OffsetOutOfRange, OutOfOrderSequence
from headrace.protocol.records import (
    ATTRIBUTES_LOW_BYTE_AT,
    CONTROL,
    DELETE_HORIZON,
    HEAD,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_batch,
    size_of_batch,
)

if TYPE_CHECKING:
    from headrace.log.config import LogConfig
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

#: Attribute bits that a client must not set.
_NOT_FROM_CLIENTS = LOG_APPEND_TIME | CONTROL | DELETE_HORIZON
_CODEC_MASK, _LAST_CODEC = 0x07, 4
_MAX_RELATIVE_OFFSET = 2**31 - 1
_MAX_TIMESTAMP, _MAX_TIMESTAMP_AT = Struct(">q"), 35
#: Places in the fields of a header.
_ATTRIBUTES, _COUNT = 5, 12
#: The number of uncompressed records that are checked in a millisecond or two.
_FEW_RECORDS = 1000
#: The bytes of uncompressed records that are checked in 15 ms at most. A header of a record may have two bytes.
_FEW_BYTES = 32 * 1024


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    #: -1 unless the topic's timestamps are LogAppendTime.
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool
    #: ``flush.messages`` is reached: the log must be flushed before the response.
    must_flush: bool


def takes_long(records: Buffer) -> bool:
    """Whether reading the records of a batch may take longer than other requests should wait. A few compressed bytes
    may contain millions of records, and one record thousands of headers."""
    fields = HEADER.unpack_from(records)
    return bool(fields[_ATTRIBUTES] & _CODEC_MASK or fields[_COUNT] > _FEW_RECORDS or len(records) > _FEW_BYTES)


def record_count_of(records: Buffer) -> int:
    """Returns the number of records, as the header of a batch has it."""
    count: int = HEADER.unpack_from(records)[_COUNT]
    return count


def checked_batch(records: Buffer, config: LogConfig, now_ms: int) -> Buffer:
    """Checks a batch as :func:`append_client` does, and returns it as the topic's settings want it. It needs nothing of
    the log, so it may run on another thread before the append.

    :raises KafkaError: if the batch is not valid.
    """
    header = check_batch(records)
    if header.size_bytes != len(records):
        raise CorruptMessage(f"{len(records)} bytes are not one batch of {header.size_bytes}")
    reject(header, config, now_ms)
    return rewrite(records, config, now_ms)


def append_client(log: PartitionLog, records: Buffer, leader_epoch: int, *, checked: Buffer | None = None) -> Appended:
    """Appends one batch, as a producer sent it.

    :param checked: what :func:`checked_batch` has returned for the records, if it was called before.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        raise CorruptMessage(f"{size_bytes} bytes are too few for a record batch")
    fields = HEADER.unpack_from(records)
    zero, length, _, magic, crc, attributes, last_delta, _, max_timestamp, producer_id, epoch, sequence, count = fields
    view = memoryview(records)
    if magic != 2 or length + 12 != size_bytes or (checked is None and crc32c(view[21:]) != crc):
        check_batch(records)
        raise CorruptMessage(f"{size_bytes} bytes are not one batch of {length + 12}")
    config = log.config
    now_ms = log.log_dir.clock.wall_ms()
    if (
        zero
        or attributes & _NOT_FROM_CLIENTS
        or attributes & _CODEC_MASK > _LAST_CODEC
        or count < 1
        or last_delta != count - 1
        or max_timestamp > now_ms + config.message_timestamp_after_max_ms
        or (producer_id != -1 and (producer_id < 0 or epoch < 0 or sequence < 0))
        or (attributes & TRANSACTIONAL and producer_id == -1)
        or size_bytes > config.max_message_bytes
        or size_bytes > config.segment_bytes
    ):
        reject(BatchHeader._make(fields), config, now_ms)
    log_append_time_ms = -1
    if checked is not None or not config.keeps_batches_unchanged:
        view = memoryview(rewrite(records, config, now_ms) if checked is None else checked)
        size_bytes = len(view)
        if view[ATTRIBUTES_LOW_BYTE_AT] & LOG_APPEND_TIME:
            (log_append_time_ms,) = _MAX_TIMESTAMP.unpack_from(view, _MAX_TIMESTAMP_AT)
            max_timestamp = log_append_time_ms
    base_offset = log.next_offset
    batch = None
    if producer_id >= 0:
        last_sequence = (sequence + last_delta) & MAX_SEQUENCE
        is_transactional = attributes & TRANSACTIONAL != 0
        try:
            kept = log.producers.check(producer_id, epoch, sequence, last_sequence, is_transactional)
        except OutOfOrderSequence:
            if not lookups.recall_batches(log, producer_id):
                raise
            kept = log.producers.check(producer_id, epoch, sequence, last_sequence, is_transactional)
        if kept is not None:
            return _duplicate(log, kept)
        batch = KeptBatch(sequence, last_sequence, base_offset, base_offset + last_delta, max_timestamp)
    segment = _write(log, view, size_bytes, base_offset, last_delta, leader_epoch, max_timestamp, now_ms)
    if batch is not None:
        log.producers.note_batch(producer_id, epoch, batch, is_transactional)
    if segment.bytes_since_index > segment.index_interval_bytes:
        segment.add_index_entry(base_offset + last_delta, segment.size_bytes - size_bytes)
    segment.bytes_since_index += size_bytes
    must_flush = log.next_offset - log.recovery_point >= config.flush_messages
    last_offset = base_offset + last_delta
    return Appended(base_offset, last_offset, log_append_time_ms, log.log_start_offset, False, must_flush)


def _duplicate(log: PartitionLog, kept: KeptBatch) -> Appended:
    time_ms = kept.timestamp_ms if log.config.is_log_append_time else -1
    return Appended(kept.base_offset, kept.last_offset, time_ms, log.log_start_offset, True, False)


def append_trusted(log: PartitionLog, records: Buffer, leader_epoch: int, origin: Origin) -> Appended:
    """Appends batches of a coordinator of this broker, which get their offsets here, or of a leader, which have
    them."""
    batches = _split(memoryview(records), origin, log.next_offset, leader_epoch)
    if origin is Origin.COORDINATOR:
        for header, view in batches:
            marker = read_marker(view) if header.is_control else None
            if marker is not None:
                log.producers.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
    now_ms = log.log_dir.clock.wall_ms()
    for header, view in batches:
        producers = log.producers if header.has_producer else None
        segment = _write(
            log, view, header.size_bytes, header.base_offset, header.last_offset_delta,
            header.leader_epoch, header.max_timestamp, now_ms,
        )  # fmt: skip
        if producers is not None:
            note_producer(segment, producers, header, view)
        if segment.bytes_since_index > segment.index_interval_bytes:
            segment.add_index_entry(header.last_offset, segment.size_bytes - header.size_bytes)
        segment.bytes_since_index += header.size_bytes
    first = batches[0][0].base_offset if batches else log.next_offset
    must_flush = log.next_offset - log.recovery_point >= log.config.flush_messages
    return Appended(first, log.next_offset - 1, -1, log.log_start_offset, False, must_flush)


def _write(
    log: PartitionLog,
    view: memoryview,
    size_bytes: int,
    base_offset: int,
    last_delta: int,
    leader_epoch: int,
    max_timestamp_ms: int,
    now_ms: int,
) -> Segment:
    """Writes a batch behind the last one and moves the log's end; returns the segment that has the batch."""
    if leader_epoch != log.noted_epoch:
        log.begin_epoch(leader_epoch, base_offset)
    last_offset = base_offset + last_delta
    segment = log.active
    if segment.offset_index is None:
        segment.load()
    if _must_roll(log, segment, size_bytes, last_offset, max_timestamp_ms, now_ms):
        segment = log.roll(base_offset)
    head = HEAD.pack(base_offset, size_bytes - 12, leader_epoch)
    if log.early_write is None:
        segment.write([head, view[16:]], size_bytes)
    else:
        log.early_write.complete(segment, head, view, size_bytes)
    position = segment.size_bytes
    if not position:
        segment.first_timestamp_ms = max_timestamp_ms
    segment.size_bytes = position + size_bytes
    log.size_bytes += size_bytes
    log.next_offset = last_offset + 1
    segment.positions.remember(base_offset, position, last_offset + 1)
    if max_timestamp_ms > segment.max_timestamp_ms:
        segment.max_timestamp_ms = max_timestamp_ms
        segment.offset_of_max_timestamp = last_offset
    return segment


def _must_roll(
    log: PartitionLog, segment: Segment, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int
) -> bool:
    config = log.config
    if segment.size_bytes + size_bytes > config.segment_bytes:
        return True
    if last_offset - segment.base_offset > _MAX_RELATIVE_OFFSET:
        return True
    if segment.created_ms < 0:
        segment.created_ms = now_ms
    if segment.size_bytes:
        first_ms = segment.first_timestamp_ms
        if first_ms < 0:
            first_ms = segment.rolls_since_ms()
        waited_ms = max_timestamp_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
        if waited_ms > config.roll_ms - segment.jitter_ms(config.segment_jitter_ms):
            return True
    return segment.is_index_full(config.segment_index_bytes)


def note_producer(segment: Segment, producers: ProducerStates, header: BatchHeader, batch: Buffer) -> None:
    """Updates the producers' states with a batch of the log, and the segment's index with an aborted transaction."""
    if not header.is_control:
        producers.note_batch(header.producer_id, header.producer_epoch, KeptBatch.of(header), header.is_transactional)
        return
    ended = end_transaction(producers, header, batch)
    if ended is not None and ended.is_aborted:
        stable = producers.first_open_offset()
        stable = header.last_offset + 1 if stable is None else stable
        segment.aborted().append(AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, stable))


def _split(
    view: memoryview, origin: Origin, next_offset: int, leader_epoch: int
) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of a buffer, with the offsets and epochs that they will have. An incomplete last one is left out."""
    batches: list[tuple[BatchHeader, memoryview]] = []
    position = 0
    while len(view) - position >= HEADER_BYTES:
        if origin is Origin.REPLICATION and size_of_batch(view, position) > len(view) - position:
            break
        header = check_batch(view, position)
        batch = view[position : position + header.size_bytes]
        position += header.size_bytes
        if origin is Origin.REPLICATION:
            if header.base_offset < next_offset:
                raise OffsetOutOfRange(
                    f"a replicated batch begins at offset {header.base_offset}; the log ends at {next_offset}"
                )
        else:
            header = header._replace(base_offset=next_offset, leader_epoch=leader_epoch)
        next_offset = header.next_offset
        batches.append((header, batch))
    return batches
