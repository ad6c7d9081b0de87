"""Checks the batches that clients send, and rewrites them where the topic's settings ask for it.

``PartitionLog.append`` checks a header with one condition. Only if that fails, :func:`reject` finds the reason. A topic
that keeps batches unchanged never calls :func:`rewrite`. Both follow Kafka in the order of the checks and in the
errors.
"""

from enum import Enum, auto
from struct import Struct

from headrace.log.config import UNLIMITED, LogConfig
from headrace.protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from headrace.protocol.records import (
    CRC,
    CRC_FIELD_AT,
    CRC_STARTS_AT,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    Codec,
    compute_crc,
    read_header,
)

_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35

#: How many records of a rejected batch the response names. A batch may have millions.
_MAX_RECORD_ERRORS = 1000


class Origin(Enum):
    """The writer of a batch. The writer decides how much of the batch is checked."""

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()


def reject(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raises the error of a client's batch; returns if the batch is unusual, but valid.

    :raises KafkaError: with the code that Kafka has for the first wrong field.
    """
    if header.size_bytes > config.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {header.size_bytes} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    _check_counts(header)
    _check_producer(header)
    if header.codec_number > max(Codec):
        raise UnsupportedCompressionType(f"there is no compression codec with the number {header.codec_number}")
    if header.is_log_append_time:
        raise InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")
    if not config.is_log_append_time and header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        ahead_ms = header.max_timestamp - now_ms
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is {ahead_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        )
    if header.size_bytes > config.segment_bytes:
        raise RecordListTooLarge(f"the batch has {header.size_bytes} bytes; segment.bytes is {config.segment_bytes}")


def _check_counts(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    if header.record_count < 1:
        raise InvalidRecord(f"the batch has {header.record_count} records; it must have at least one")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"the batch has {header.record_count} records, but its last offset delta is {header.last_offset_delta}"
        )


def _check_producer(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("clients may not write control records")
    if header.has_delete_horizon:
        raise InvalidRecord("clients may not set a delete horizon")
    if header.has_producer and (header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"producer id {header.producer_id}, epoch {header.producer_epoch} and sequence {header.base_sequence} "
            "must not be negative"
        )
    if header.is_transactional and not header.has_producer:
        raise InvalidRecord("a transactional batch must have a producer id")


def rewrite(batch: Buffer, config: LogConfig, now_ms: int) -> Buffer:
    """The batch as the topic's settings want it, after a check of its records if the settings need one."""
    if config.is_compacted or config.walk_records or config.message_timestamp_before_max_ms != UNLIMITED:
        _check_records(batch, config, now_ms)
    if config.compression_type != "producer":
        batch = _recompressed(batch, config)
    if config.is_log_append_time:
        batch = _stamped(batch, now_ms)
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(f"the batch has {len(batch)} bytes; max.message.bytes is {config.max_message_bytes}")
    if len(batch) > config.segment_bytes:
        raise RecordListTooLarge(f"the batch has {len(batch)} bytes; segment.bytes is {config.segment_bytes}")
    return batch


def _check_records(batch: Buffer, config: LogConfig, now_ms: int) -> None:
    from headrace.protocol.record_body import iter_checked

    oldest_ms = now_ms - config.message_timestamp_before_max_ms
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    without_key = "a record of a compacted topic must have a key"
    keyless: list[tuple[int, str]] = []
    mistimed: list[tuple[int, str]] = []
    for expected_offset, record in enumerate(iter_checked(batch)):
        if record.offset != expected_offset:
            raise InvalidRecord("the offset deltas inside a batch must be 0, 1, 2, ...")
        if config.is_compacted and record.key is None and len(keyless) < _MAX_RECORD_ERRORS:
            keyless.append((record.offset, without_key))
        if config.is_log_append_time or record.timestamp_ms == NO_TIMESTAMP:
            continue
        if not oldest_ms <= record.timestamp_ms <= newest_ms and len(mistimed) < _MAX_RECORD_ERRORS:
            mistimed.append(
                (record.offset, f"timestamp {record.timestamp_ms} is not within [{oldest_ms}, {newest_ms}]")
            )
    _raise_record_errors(InvalidRecord(without_key), keyless)
    _raise_record_errors(InvalidTimestamp(f"timestamps must be within [{oldest_ms}, {newest_ms}]"), mistimed)


def _raise_record_errors(error: KafkaError, record_errors: list[tuple[int, str]]) -> None:
    if record_errors:
        error.record_errors = tuple(record_errors)
        raise error


def _recompressed(batch: Buffer, config: LogConfig) -> Buffer:
    from headrace.protocol.batch_building import recompress

    name = config.compression_type
    codec = Codec.none if name == "uncompressed" else Codec[name]
    if read_header(batch).codec_number == codec:
        return batch
    levels = {
        Codec.gzip: config.compression_gzip_level,
        Codec.lz4: config.compression_lz4_level,
        Codec.zstd: config.compression_zstd_level,
    }
    return recompress(batch, codec, levels.get(codec))


def _stamped(batch: Buffer, now_ms: int) -> Buffer:
    """The batch with the broker's time. Only a bit, the largest timestamp and the crc change; the records do not."""
    stamped = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(stamped, CRC_STARTS_AT)
    _ATTRIBUTES.pack_into(stamped, CRC_STARTS_AT, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, now_ms)
    CRC.pack_into(stamped, CRC_FIELD_AT, compute_crc(stamped, 0, len(stamped)))
    return stamped
