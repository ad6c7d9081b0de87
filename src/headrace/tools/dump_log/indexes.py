"""Prints the files beside a ``.log`` for ``headrace dump-log``: indexes, producer snapshots, aborted transactions.

An Apache Kafka broker allocates the indexes of its active segment with their full length, so an index ends at the first
entry that is all zeros.
"""

from __future__ import annotations

from pathlib import Path

from headrace.log import offset_index, time_index, txn_index
from headrace.log.disk import Disk
from headrace.log.producer_state import Producer
from headrace.log.segment import LOG
from headrace.log.snapshots import decode_snapshot
from headrace.protocol.records import BatchHeader
from headrace.tools.dump_log.output import DumpOutput, Fields, OptionalLong
from headrace.tools.dump_log.segment import OpenLog


def check_index(path: Path, out: DumpOutput) -> None:
    """Checks whether a broker would accept an offset index."""
    log_bytes = path.with_suffix(LOG).stat().st_size
    _say_sanity(path, offset_index.OffsetIndex(Disk(), str(path)).load(log_bytes), out)


def check_time_index(path: Path, out: DumpOutput) -> None:
    """Checks whether a broker would accept a time index."""
    _say_sanity(path, time_index.TimeIndex(Disk(), str(path)).load(), out)


def dump_index(path: Path, base_offset: int, out: DumpOutput, *, shows_entries: bool) -> None:
    data = _read(path)
    if not data:
        out.say(f"{path} is empty.")
    _check_length(data, offset_index.ENTRY_BYTES, out)
    with OpenLog(path.with_suffix(LOG)) as log:
        for relative_offset, position in offset_index.read_entries(data):
            offset = base_offset + relative_offset
            if shows_entries:
                out.entry("index", {"offset": offset, "position": position})
            header = log.header_at(position)
            if header is None:
                out.fault(f"offset {offset} has an entry for position {position}, but no batch begins there")
            elif header.last_offset != offset:
                out.fault(
                    f"offset {offset} has an entry for position {position}, but the batch there ends with offset "
                    f"{header.last_offset}"
                )


def dump_time_index(path: Path, base_offset: int, out: DumpOutput, *, shows_entries: bool) -> None:
    data = _read(path)
    _check_length(data, time_index.ENTRY_BYTES, out)
    last_timestamp_ms = -1
    with OpenLog(path.with_suffix(LOG)) as log:
        headers = log.headers()
        header: BatchHeader | None = None
        for timestamp_ms, relative_offset in time_index.read_entries(data):
            offset = base_offset + relative_offset
            if shows_entries:
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
                out.fault(
                    f"offset {offset} has an entry with timestamp {timestamp_ms}, but the batch has timestamp "
                    f"{header.max_timestamp}"
                )


def _say_sanity(path: Path, is_sane: bool, out: DumpOutput) -> None:
    if out.as_json:
        out.entry(path.suffix.removeprefix("."), {"passedSanityCheck": is_sane})
    elif is_sane:
        out.say(f"{path} passed sanity check.")
    if not is_sane:
        out.fault("did not pass the sanity check; a broker would rebuild it")


def _check_length(data: bytes, entry_bytes: int, out: DumpOutput) -> None:
    if len(data) % entry_bytes:
        out.fault(f"{len(data)} bytes are not a whole number of entries of {entry_bytes}")


# --------------------------------------------------------------------------------------------------------- producers


def dump_snapshot(path: Path, out: DumpOutput) -> None:
    producers = decode_snapshot(_read(path))
    if producers is None:
        out.fault("is truncated or does not match its crc")
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


def dump_txn_index(path: Path, out: DumpOutput) -> None:
    _check_length(_read(path), txn_index.ENTRY_BYTES, out)
    for aborted in txn_index.TxnIndex(Disk(), str(path)).entries:
        names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        out.entry("txnindex", dict(zip(names, (0, *aborted), strict=True)))


def _read(path: Path) -> bytes:
    data = Disk().read_file(str(path))
    if data is None:
        raise FileNotFoundError(0, "", str(path))
    return data
