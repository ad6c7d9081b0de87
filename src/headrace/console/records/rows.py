"""Makes the rows that pages, JSON answers, the tail and downloads show. Everything that leaves goes through here."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.protection.audit import HIDDEN
from headrace.console.records.batches import RawRecord
from headrace.console.records.decoding import Decoder, Shown, harmless
from headrace.protocol.errors import KafkaError
from headrace.protocol.record_body import codec_of

#: The most characters of a key or a value in a list, and on the page of one record.
IN_LIST, ALONE = 2_000, 10_000
_LONGEST_HEADER = 500


@dataclass(frozen=True)
class HeaderRow:
    """A header of a record."""

    name: str
    value: Shown


@dataclass(frozen=True)
class ProducerRow:
    """The batch that a record was sent in.

    :ivar producer_id: None if the producer was not idempotent; then it has no epoch and sequences either.
    :ivar sequence: the sequence of the record itself.
    """

    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    is_transactional: bool
    compression: str
    leader_epoch: int
    first_offset: int
    last_offset: int
    size_bytes: int


@dataclass(frozen=True)
class RecordRow:
    """A record.

    :ivar timestamp_type: ``create`` if the producer set the time, ``append`` if the broker did.
    :ivar control: ``commit`` or ``abort`` if the record ends a transaction; else empty.
    :ivar header_count: how many headers there are; the list is cut.
    :ivar problem: why the records of the batch cannot be read.
    """

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: Shown
    value: Shown
    headers: tuple[HeaderRow, ...]
    header_count: int
    size_bytes: int
    control: str
    batch: ProducerRow
    problem: str


def row_of(
    record: RawRecord, decoder: Decoder, key_format: str = "auto", value_format: str = "auto", longest: int = IN_LIST
) -> RecordRow:
    """
    :param longest: the most characters of the key and of the value.
    """
    is_control = record.batch.is_control
    return RecordRow(
        record.partition,
        record.offset,
        record.timestamp_ms,
        "append" if record.batch.is_log_append_time else "create",
        decoder.show(record.key, "hex" if is_control else key_format, longest),
        decoder.show(record.value, "hex" if is_control else value_format, longest),
        tuple(header_row(name, value, decoder) for name, value in record.headers),
        record.header_count,
        record.size_bytes,
        record.control,
        _batch_row(record),
        harmless(record.problem),
    )


def header_row(name: str, value: bytes | None, decoder: Decoder) -> HeaderRow:
    shown_name = harmless(name[:_LONGEST_HEADER])
    if decoder.masks.hides(name) and value is not None:
        return HeaderRow(shown_name, Shown("hidden", HIDDEN, len(value)))
    return HeaderRow(shown_name, decoder.show(value, "auto", _LONGEST_HEADER))


def _batch_row(record: RawRecord) -> ProducerRow:
    batch = record.batch
    try:
        compression = codec_of(batch).name
    except KafkaError:
        compression = f"codec {batch.codec_number}"
    sequence = None
    if batch.base_sequence >= 0:
        # Sequences wrap to 0 after 2**31 - 1.
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
    return ProducerRow(
        batch.producer_id if batch.has_producer else None,
        batch.producer_epoch if batch.has_producer else None,
        sequence,
        batch.is_transactional,
        compression,
        batch.leader_epoch,
        batch.base_offset,
        batch.last_offset,
        batch.size_bytes,
    )
