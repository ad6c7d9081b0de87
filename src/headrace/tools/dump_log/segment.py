"""Prints a ``.log`` file for ``headrace dump-log``: its batches and, with ``--deep-iteration``, their records.

The command computes the checksum of a batch in pieces, and loads a batch into memory only if the checksum is right. So
a wrong length costs no memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.crc import crc32c
from headrace.log.disk import Disk
from headrace.protocol.errors import KafkaError
from headrace.protocol.record_body import ControlKind, Record, decode_records, read_control_kind
from headrace.protocol.records import (
    CRC_STARTS_AT,
    HEADER_BYTES,
    MAGIC,
    NO_SEQUENCE,
    BatchHeader,
    Codec,
    read_header,
)
from headrace.tools.dump_log.decoders import Decoder
from headrace.tools.dump_log.output import DumpOutput, Fields, OptionalLong

_CRC_CHUNK_BYTES = 1 << 20
_MAX_SEQUENCE = 0x7FFFFFFF
NO_LIMIT_BYTES = 2**31 - 1
#: Control records of Kafka's Raft quorum, which occur in Kafka's metadata log only.
_QUORUM_RECORDS = ("LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
_FIRST_QUORUM_RECORD = 2


class SegmentView(NamedTuple):
    """Which parts of a segment are printed."""

    max_bytes: int = NO_LIMIT_BYTES
    shows_records: bool = False
    #: None: do not print keys and values.
    decoder: Decoder | None = None
    #: False: do not print offsets, times and sizes of records, and no control records.
    shows_metadata: bool = True


def dump_segment(
    path: Path, base_offset: int, view: SegmentView, out: DumpOutput, moved_to: Callable[[float], None]
) -> None:
    """
    :param moved_to: called with the position in the file, for progress.
    """
    with OpenLog(path) as log:
        out.say(f"Log starting offset: {base_offset}")
        next_offset, end = base_offset, 0
        for position, header in log.headers(view.max_bytes):
            end = position + header.size_bytes
            is_valid = log.crc_of(position, header) == header.crc
            out.entry("batch", _batch_fields(header, position, is_valid))
            if not is_valid:
                out.fault(f"the batch at position {position} does not match its crc")
            elif header.base_offset < next_offset:
                out.fault(f"offset {header.base_offset} at position {position} follows {next_offset - 1}")
            if is_valid and view.shows_records:
                _dump_records(log.read(position, header), position, view, out)
            next_offset = header.next_offset
            moved_to(end)
        if log.stopped_because and end < view.max_bytes:
            out.fault(log.stopped_because)


class OpenLog:
    """A .log file, read in pieces."""

    def __init__(self, path: Path) -> None:
        self._disk = Disk()
        self._fd = self._disk.open(str(path), os.O_RDONLY)
        self._size_bytes = os.fstat(self._fd).st_size
        self.stopped_because = ""

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._fd)

    def headers(self, max_bytes: int = NO_LIMIT_BYTES) -> Iterator[tuple[int, BatchHeader]]:
        """Yields positions and headers of complete batches. ``stopped_because`` says why the iteration ended."""
        position, size_bytes = 0, self._size_bytes
        while position < min(size_bytes, max_bytes):
            header = self.header_at(position)
            if header is None:
                rest_bytes = size_bytes - position
                self.stopped_because = f"{rest_bytes} invalid bytes at the end, from position {position} on"
                return
            if header.magic != MAGIC:
                self.stopped_because = f"the batch at position {position} has magic {header.magic}, only 2 is read"
                return
            yield position, header
            position += header.size_bytes

    def header_at(self, position: int) -> BatchHeader | None:
        """The header of the batch at a position; None if no complete batch begins there."""
        head = self._disk.pread(self._fd, HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return None
        header = read_header(head)
        return header if HEADER_BYTES <= header.size_bytes <= self._size_bytes - position else None

    def crc_of(self, position: int, header: BatchHeader) -> int:
        crc, end = 0, position + header.size_bytes
        position += CRC_STARTS_AT
        while position < end:
            chunk = self._disk.pread(self._fd, min(_CRC_CHUNK_BYTES, end - position), position)
            if not chunk:
                break
            crc = crc32c(chunk, crc)
            position += len(chunk)
        return crc

    def read(self, position: int, header: BatchHeader) -> bytes:
        return self._disk.pread(self._fd, header.size_bytes, position)


def _batch_fields(header: BatchHeader, position: int, is_valid: bool) -> Fields:
    codec = header.codec_number
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": OptionalLong(header.base_timestamp if header.has_delete_horizon else None),
        "position": position,
        _time_name(header): header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": Codec(codec).name if codec in tuple(Codec) else f"unknown({codec})",
        "crc": header.crc,
        "isvalid": is_valid,
    }


def _time_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _dump_records(batch: bytes, position: int, view: SegmentView, out: DumpOutput) -> None:
    header = read_header(batch)
    try:
        records = decode_records(batch)
    except KafkaError as error:
        out.fault(f"the records of the batch at position {position} cannot be read: {error}")
        return
    for record in records:
        fields: dict[str, object] = {}
        if view.shows_metadata:
            fields |= _record_fields(header, record)
        if header.is_control:
            fields |= _control_fields(record) if view.shows_metadata else {}
        elif view.decoder is not None:
            decoded = view.decoder(record)
            fields |= {name: content for name, content in decoded._asdict().items() if content is not None}
        if fields:
            out.entry("record", fields)


def _record_fields(header: BatchHeader, record: Record) -> Fields:
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = (sequence + record.offset - header.base_offset) & _MAX_SEQUENCE
    return {
        "offset": record.offset,
        _time_name(header): record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name for name, _ in record.headers],
    }


def _control_fields(record: Record) -> Fields:
    try:
        kind = read_control_kind(record.key)
    except KafkaError:
        return {"controlType": "UNKNOWN"}
    if kind in tuple(ControlKind) and record.value is not None and len(record.value) >= 6:
        coordinator_epoch = int.from_bytes(record.value[2:6], "big", signed=True)
        return {"endTxnMarker": ControlKind(kind).name.upper(), "coordinatorEpoch": coordinator_epoch}
    names = dict(enumerate(_QUORUM_RECORDS, _FIRST_QUORUM_RECORD))
    return {"controlType": f"{names.get(kind, 'UNKNOWN')}({kind})"}
