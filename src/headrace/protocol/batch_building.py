"""Builds record batches from records. ``records.py`` and ``record_body.py`` have the layout.

This module builds any batch. Batches that are built by the thousand have faster code: ``keyed_batch.py`` for
coordinators, and the kernels of the clients.
"""

from collections.abc import Iterable

from headrace.protocol.compression import DEFAULT_LIMIT_BYTES, compress
from headrace.protocol.record_body import CONTROL_KEY, CONTROL_VALUE, ControlKind, Headers, Record, decompress_body
from headrace.protocol.records import (
    CONTROL,
    CRC,
    CRC_FIELD_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Codec,
    check_batch,
    compute_crc,
)
from headrace.protocol.wire.varints import write_varint


def build_batch(
    records: Iterable[Record | tuple[int, int, bytes | None, bytes | None, Headers]],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.none,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """A whole batch. The offset deltas follow from the records' offsets, so gaps stay gaps.

    :param last_offset_delta: for a batch that has lost its last records; by default that of the last record.
    """
    rows = list(records)
    base_timestamp = delete_horizon_ms
    if base_timestamp is None:
        base_timestamp = rows[0][1] if rows else NO_TIMESTAMP
    max_timestamp = log_append_time_ms
    if max_timestamp is None:
        max_timestamp = max((row[1] for row in rows), default=NO_TIMESTAMP)
    if last_offset_delta is None:
        last_offset_delta = rows[-1][0] - base_offset if rows else 0
    attributes = (
        (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (CONTROL if is_control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    body = bytearray()
    for row in rows:
        _write_record(body, row, base_offset, base_timestamp)
    header = BatchHeader(
        base_offset=base_offset, batch_length=0, leader_epoch=leader_epoch, magic=MAGIC, crc=0, attributes=attributes,
        last_offset_delta=last_offset_delta, base_timestamp=base_timestamp, max_timestamp=max_timestamp,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence, record_count=len(rows),
    )  # fmt: skip
    return assemble_batch(header, body, codec=codec, level=level)


def assemble_batch(header: BatchHeader, body: Buffer, *, codec: Codec, level: int | None = None) -> bytes:
    """A batch of a header and uncompressed records. Codec, length and crc of the header are filled in.

    A batch without records is not compressed, as in Kafka.
    """
    if header.record_count == 0:
        codec = Codec.none
    packed = compress(codec, body, level)
    size_bytes = HEADER_BYTES + len(packed)
    attributes = header.attributes & ~0x07 | codec
    header = header._replace(batch_length=size_bytes - LENGTH_PREFIX_BYTES, attributes=attributes, crc=0)
    batch = bytearray(HEADER.pack(*header))
    batch += packed
    CRC.pack_into(batch, CRC_FIELD_AT, compute_crc(batch, 0, size_bytes))
    return bytes(batch)


def recompress(
    batch: Buffer, codec: Codec, level: int | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """The same batch in another codec. Its records are not checked."""
    header = check_batch(batch)
    body = decompress_body(header, batch, limit_bytes=limit_bytes)
    return assemble_batch(header, body, codec=codec, level=level)


def control_record(kind: ControlKind, coordinator_epoch: int, *, offset: int = 0, timestamp_ms: int) -> Record:
    """The record that ends a transaction; its batch is built with ``is_control`` and ``is_transactional``."""
    return Record(offset, timestamp_ms, CONTROL_KEY.pack(0, kind), CONTROL_VALUE.pack(0, coordinator_epoch))


def _write_record(
    body: bytearray,
    row: Record | tuple[int, int, bytes | None, bytes | None, Headers],
    base_offset: int,
    base_timestamp: int,
) -> None:
    offset, timestamp_ms, key, value, headers = row
    if not headers and key is not None and value is not None:  # most records; this takes a third of the time
        whole = b"\x00%b%b%b%b%b%b\x00" % (
            write_varint(timestamp_ms - base_timestamp), write_varint(offset - base_offset),
            write_varint(len(key)), key, write_varint(len(value)), value,
        )  # fmt: skip
        body += write_varint(len(whole))
        body += whole
        return
    record = bytearray(1)
    record += write_varint(timestamp_ms - base_timestamp)
    record += write_varint(offset - base_offset)
    _write_bytes(record, key)
    _write_bytes(record, value)
    record += write_varint(len(headers))
    for name, content in headers:
        _write_bytes(record, name.encode("utf-8", "surrogateescape"))
        _write_bytes(record, content)
    body += write_varint(len(record))
    body += record


def _write_bytes(record: bytearray, content: bytes | None) -> None:
    if content is None:
        record.append(1)
    else:
        record += write_varint(len(content))
        record += content
