"""``headrace dump-log``: what is in the files of a partition, in the words of Kafka's own dump tool.

====================  ===============================================================================================
``.log``              a line for each batch; with ``--deep-iteration`` one for each record, with ``--print-data-log``
                      its key and value too
``.index``            each entry, and whether the batch of that offset begins at that position of the .log beside it
``.timeindex``        each entry, and whether the batch of that offset has that timestamp
``.snapshot``         the producers
``.txnindex``         the aborted transactions
====================  ===============================================================================================

Reads Apache Kafka's files as well as ours, also while a broker writes them: an Apache broker gives the indexes of its
active segment their full length at once, so an entry of nothing but zeros is where an index ends.

A damaged file is shown as far as it can be read. What is wrong goes to standard error, one line each, and the exit
code is 1; other files are still shown. A batch is in memory only after its checksum, taken in pieces, was found right,
so a length that lies costs nothing.

``--json`` gives one object a line, with the same names for the same fields, and the file and the kind in each.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.crc import crc32c
from headrace.log import offset_index, time_index, txn_index
from headrace.log.disk import Disk
from headrace.log.producer_state import Producer
from headrace.log.segment import INDEX, LOG, TIMEINDEX, TXNINDEX
from headrace.log.snapshots import SNAPSHOT, decode_snapshot
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
from headrace.tools.dump_output import DumpOutput, Fields, OptionalLong

_CRC_CHUNK_BYTES = 1 << 20
_MAX_SEQUENCE = 0x7FFFFFFF
_INT32_MAX = 2**31 - 1
#: Control records of Kafka's own quorum, which only its metadata log has.
_QUORUM_RECORDS = ("LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS")
_FIRST_QUORUM_RECORD = 2

_EPILOG = """examples:
  headrace dump-log --files headrace-data/orders-0/00000000000000000000.log --print-data-log
  headrace dump-log --files a/00000000000000000000.index,a/00000000000000000000.timeindex --verify-index-only
"""


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    out = DumpOutput(sys.stdout, sys.stderr, as_json=options.json)
    try:
        for path in map(Path, options.files):
            _dump(path, options, out)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if out.faults else 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace dump-log",
        description="Show what is in the files of a partition.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--files", metavar="FILE,FILE,...", type=_file_names, required=True, help="the files to show")
    parser.add_argument("--print-data-log", action="store_true", help="show the records, with key and value")
    parser.add_argument("--deep-iteration", action="store_true", help="show the records, without key and value")
    parser.add_argument(
        "--index-sanity-check", action="store_true", help="only say whether a broker would take an index as it is"
    )
    parser.add_argument(
        "--verify-index-only", action="store_true", help="compare indexes with their log, do not show entries"
    )
    parser.add_argument(
        "--max-bytes", metavar="N", type=int, default=_INT32_MAX, help="read no more of a log than this"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def _file_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError("a file name is empty")
    return names


# ------------------------------------------------------------------------------------------------------------ files


def _dump(path: Path, options: argparse.Namespace, out: DumpOutput) -> None:
    out.begin(path)
    dump = _DUMPERS.get(path.suffix)
    if dump is None:
        out.note(f"unknown kind of file, ignored; known are {', '.join(_DUMPERS)}")
        return
    try:
        dump(path, options, out)
    except FileNotFoundError as error:
        out.fault("there is no such file" if error.filename == str(path) else f"there is no {error.filename} beside it")
    except BrokenPipeError:
        raise
    except OSError as error:
        out.fault(f"cannot be read: {error.strerror}")


def _base_offset(path: Path, out: DumpOutput) -> int | None:
    if path.stem.isdecimal():
        return int(path.stem)
    out.fault("its name is not the offset that it begins with, 20 digits")
    return None


def _read(path: Path) -> bytes:
    data = Disk().read_file(str(path))
    if data is None:
        raise FileNotFoundError(0, "", str(path))
    return data


# -------------------------------------------------------------------------------------------------------------- log


def _dump_log(path: Path, options: argparse.Namespace, out: DumpOutput) -> None:
    with _OpenLog(path) as log:
        base_offset = _base_offset(path, out)
        if base_offset is None:
            return
        out.say(f"Log starting offset: {base_offset}")
        next_offset, end = base_offset, 0
        for position, header in log.headers(options.max_bytes):
            end = position + header.size_bytes
            is_valid = log.crc_of(position, header) == header.crc
            out.entry("batch", _batch_fields(header, position, is_valid))
            if not is_valid:
                out.fault(f"the batch at position {position} does not match its crc")
            elif header.base_offset < next_offset:
                out.fault(f"offset {header.base_offset} at position {position} follows {next_offset - 1}")
            if is_valid and (options.deep_iteration or options.print_data_log):
                _dump_records(log.read(position, header), position, options.print_data_log, out)
            next_offset = header.next_offset
        if log.stopped_because and end < options.max_bytes:
            out.fault(log.stopped_because)


class _OpenLog:
    """A .log file, read in pieces."""

    def __init__(self, path: Path) -> None:
        self._disk = Disk()
        self._fd = self._disk.open(str(path), os.O_RDONLY)
        self._size_bytes = os.fstat(self._fd).st_size
        self.stopped_because = ""

    def __enter__(self) -> _OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._fd)

    def headers(self, max_bytes: int = _INT32_MAX) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the whole batches; why there is no further one stands in ``stopped_because``."""
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
        """None where no whole batch begins."""
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


def _dump_records(batch: bytes, position: int, with_data: bool, out: DumpOutput) -> None:
    header = read_header(batch)
    try:
        records = decode_records(batch)
    except KafkaError as error:
        out.fault(f"the records of the batch at position {position} cannot be read: {error}")
        return
    for record in records:
        out.entry("record", _record_fields(header, record, with_data))


def _record_fields(header: BatchHeader, record: Record, with_data: bool) -> Fields:
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = (sequence + record.offset - header.base_offset) & _MAX_SEQUENCE
    fields: dict[str, object] = {
        "offset": record.offset,
        _time_name(header): record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [name for name, _ in record.headers],
    }
    if header.is_control:
        fields |= _control_fields(record)
    elif with_data:
        fields |= {
            name: content for name, content in (("key", record.key), ("payload", record.value)) if content is not None
        }
    return fields


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


# ---------------------------------------------------------------------------------------------------------- indexes


def _dump_offset_index(path: Path, options: argparse.Namespace, out: DumpOutput) -> None:
    data, base_offset = _read(path), _base_offset(path, out)
    if base_offset is None:
        return
    log_path = path.with_suffix(LOG)
    if options.index_sanity_check:
        log_bytes = log_path.stat().st_size
        _say_sanity(path, offset_index.OffsetIndex(Disk(), str(path)).load(log_bytes), out)
        return
    if not data:
        out.say(f"{path} is empty.")
    _check_length(data, offset_index.ENTRY_BYTES, out)
    with _OpenLog(log_path) as log:
        for relative_offset, position in offset_index.read_entries(data):
            offset = base_offset + relative_offset
            if not options.verify_index_only:
                out.entry("index", {"offset": offset, "position": position})
            header = log.header_at(position)
            if header is None:
                out.fault(f"offset {offset} is said to be at position {position}, where no batch begins")
            elif header.last_offset != offset:
                out.fault(f"offset {offset} is said to be at position {position}, there is {header.last_offset}")


def _dump_time_index(path: Path, options: argparse.Namespace, out: DumpOutput) -> None:
    data, base_offset = _read(path), _base_offset(path, out)
    if base_offset is None:
        return
    if options.index_sanity_check:
        _say_sanity(path, time_index.TimeIndex(Disk(), str(path)).load(), out)
        return
    _check_length(data, time_index.ENTRY_BYTES, out)
    last_timestamp_ms = -1
    with _OpenLog(path.with_suffix(LOG)) as log:
        headers = log.headers()
        header: BatchHeader | None = None
        for timestamp_ms, relative_offset in time_index.read_entries(data):
            offset = base_offset + relative_offset
            if not options.verify_index_only:
                out.entry("timeindex", {"timestamp": timestamp_ms, "offset": offset})
            if timestamp_ms <= last_timestamp_ms:
                out.fault(f"timestamp {timestamp_ms} follows {last_timestamp_ms}")
            last_timestamp_ms = timestamp_ms
            while header is None or header.last_offset < offset:
                _, header = next(headers, (0, None))
                if header is None:
                    out.fault(f"offset {offset} is not in the log")
                    return
            if header.base_offset > offset:
                out.fault(f"offset {offset} is not in the log")
            elif header.max_timestamp != timestamp_ms:
                out.fault(f"offset {offset} is said to have timestamp {timestamp_ms}, it has {header.max_timestamp}")


def _say_sanity(path: Path, is_sane: bool, out: DumpOutput) -> None:
    if is_sane:
        out.say(f"{path} passed sanity check.")
    else:
        out.fault("did not pass the sanity check; a broker would rebuild it")


def _check_length(data: bytes, entry_bytes: int, out: DumpOutput) -> None:
    if len(data) % entry_bytes:
        out.fault(f"{len(data)} bytes are not a whole number of entries of {entry_bytes}")


# --------------------------------------------------------------------------------------------------------- producers


def _dump_snapshot(path: Path, _: argparse.Namespace, out: DumpOutput) -> None:
    producers = decode_snapshot(_read(path))
    if producers is None:
        out.fault("is cut or does not match its crc")
        return
    for producer_id, producer in producers:
        out.entry("snapshot", _producer_fields(producer_id, producer))


def _producer_fields(producer_id: int, producer: Producer) -> Fields:
    txn_first_offset = producer.txn_first_offset
    fields: dict[str, object] = {
        "producerId": producer_id,
        "producerEpoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": OptionalLong(None if txn_first_offset < 0 else txn_first_offset),
        "lastTimestamp": producer.last_timestamp_ms,
    }
    if producer.batches:
        last = producer.batches[-1]
        fields |= {
            "firstSequence": last.first_sequence,
            "lastSequence": last.last_sequence,
            "lastOffset": last.last_offset,
            "offsetDelta": last.last_offset - last.base_offset,
            "timestamp": last.timestamp_ms,
        }
    return fields


def _dump_txn_index(path: Path, _: argparse.Namespace, out: DumpOutput) -> None:
    _check_length(_read(path), txn_index.ENTRY_BYTES, out)
    for aborted in txn_index.TxnIndex(Disk(), str(path)).entries:
        names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        out.entry("txnindex", dict(zip(names, (0, *aborted), strict=True)))


_DUMPERS = {
    LOG: _dump_log,
    INDEX: _dump_offset_index,
    TIMEINDEX: _dump_time_index,
    SNAPSHOT: _dump_snapshot,
    TXNINDEX: _dump_txn_index,
}
