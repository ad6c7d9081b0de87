"""What must hold for a batch that a client sends, and what is done to it where the topic asks for it.

``PartitionLog.append`` looks at a header with one condition; only where that says no is :func:`refuse` asked for the
reason. A topic that takes batches as they are never gets to :func:`rewrite`. What both know is Kafka's: which fields
are wrong in which order, and with which error.
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

#: How many records of a batch are named in its refusal; a batch may have millions.
_MOST_TO_BLAME = 1000


class Origin(Enum):
    """Who wrote a batch, and so how much of it is taken on trust."""

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()


def refuse(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raise what is wrong with a client's batch; return if it is only unusual."""
    if header.size_bytes > config.max_message_bytes:
        raise MessageTooLarge(f"batch of {header.size_bytes} bytes, max.message.bytes is {config.max_message_bytes}")
    _refuse_counts(header)
    _refuse_producer(header)
    if header.codec_number > max(Codec):
        raise UnsupportedCompressionType(f"compression codec {header.codec_number} is not known")
    if header.is_log_append_time:
        raise InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")
    if not config.is_log_append_time and header.max_timestamp > now_ms + config.message_timestamp_after_max_ms:
        ahead_ms = header.max_timestamp - now_ms
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is {ahead_ms} ms ahead of the broker's clock")
    if header.size_bytes > config.segment_bytes:
        raise RecordListTooLarge(f"batch of {header.size_bytes} bytes, segment.bytes is {config.segment_bytes}")


def _refuse_counts(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(f"a produced batch starts at offset 0, not {header.base_offset}")
    if header.record_count < 1:
        raise InvalidRecord(f"batch says that it has {header.record_count} records")
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"batch says {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )


def _refuse_producer(header: BatchHeader) -> None:
    if header.is_control:
        raise InvalidRecord("clients may not write control records")
    if header.has_delete_horizon:
        raise InvalidRecord("clients may not set a delete horizon")
    if header.has_producer and (header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord(
            f"producer id {header.producer_id} with epoch {header.producer_epoch}, sequence {header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer:
        raise InvalidRecord("transactional batch without a producer id")


def rewrite(batch: Buffer, config: LogConfig, now_ms: int) -> Buffer:
    """The batch as the topic wants it, after a look at its records where the topic needs one."""
    if config.is_compacted or config.walk_records or config.message_timestamp_before_max_ms != UNLIMITED:
        _check_records(batch, config, now_ms)
    if config.compression_type != "producer":
        batch = _recompressed(batch, config)
    if config.is_log_append_time:
        batch = _stamped(batch, now_ms)
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(f"batch of {len(batch)} bytes, max.message.bytes is {config.max_message_bytes}")
    if len(batch) > config.segment_bytes:
        raise RecordListTooLarge(f"batch of {len(batch)} bytes, segment.bytes is {config.segment_bytes}")
    return batch


def _check_records(batch: Buffer, config: LogConfig, now_ms: int) -> None:
    from headrace.protocol.record_body import iter_records

    oldest_ms = now_ms - config.message_timestamp_before_max_ms
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    without_key = "a compacted topic takes no record without a key"
    keyless: list[tuple[int, str]] = []
    mistimed: list[tuple[int, str]] = []
    for expected_offset, record in enumerate(iter_records(batch)):
        if record.offset != expected_offset:
            raise InvalidRecord("the offsets inside the batch do not count up from 0")
        if config.is_compacted and record.key is None and len(keyless) < _MOST_TO_BLAME:
            keyless.append((record.offset, without_key))
        if config.is_log_append_time or record.timestamp_ms == NO_TIMESTAMP:
            continue
        if not oldest_ms <= record.timestamp_ms <= newest_ms and len(mistimed) < _MOST_TO_BLAME:
            mistimed.append(
                (record.offset, f"timestamp {record.timestamp_ms} is not within [{oldest_ms}, {newest_ms}]")
            )
    _refuse_records(InvalidRecord(without_key), keyless)
    _refuse_records(InvalidTimestamp(f"timestamps must be within [{oldest_ms}, {newest_ms}]"), mistimed)


def _refuse_records(error: KafkaError, to_blame: list[tuple[int, str]]) -> None:
    if to_blame:
        error.record_errors = tuple(to_blame)
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
    """With the broker's time: a bit, the largest timestamp and so the crc; the records stay as they are."""
    stamped = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(stamped, CRC_STARTS_AT)
    _ATTRIBUTES.pack_into(stamped, CRC_STARTS_AT, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, now_ms)
    CRC.pack_into(stamped, CRC_FIELD_AT, compute_crc(stamped, 0, len(stamped)))
    return stamped
