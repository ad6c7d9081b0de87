"""Reads and writes ``<offset>.snapshot``: the state of a partition's producers when the log ended at that offset.

::

    0  version  int16   1
    2  crc      uint32  crc32c of all that follows
    6  count    int32
       then for each producer:
         producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32,
         timestamp int64, coordinator_epoch int32, current_txn_first_offset int64

Of the last five batches only the last one is stored, as in Kafka. A snapshot is written at each roll and at a clean
stop. The state at a later offset is that of the newest snapshot, after a replay of the batch headers behind it. A
snapshot that is torn or damaged fails its crc; then the next older one is used.
"""

from collections.abc import Iterator
from logging import getLogger
from struct import Struct

from headrace.crc import crc32c
from headrace.log.disk import Disk
from headrace.log.producer_state import KeptBatch, Producer, ProducerStates
from headrace.log.segment import segment_name

logger = getLogger(__name__)

SNAPSHOT = ".snapshot"
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_STARTS_AT = 6
VERSION = 1


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{segment_name(offset)}{SNAPSHOT}"


def encode_snapshot(states: ProducerStates) -> bytes:
    body = [len(states.producers).to_bytes(4, "big")]
    for producer_id, producer in states.producers.items():
        last = producer.batches[-1] if producer.batches else KeptBatch(-1, -1, -1, -1, producer.last_timestamp_ms)
        body.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.last_offset - last.base_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        )
    data = b"".join(body)
    return VERSION.to_bytes(2, "big") + crc32c(data).to_bytes(4, "big") + data


def decode_snapshot(data: bytes) -> list[tuple[int, Producer]] | None:
    """The producers, or None if the bytes are not a snapshot."""
    if len(data) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION or crc != crc32c(data[_CRC_STARTS_AT:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        return None
    return list(_producers(data))


def _producers(data: bytes) -> Iterator[tuple[int, Producer]]:
    for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, txn_first_offset = fields
        producer = Producer(epoch)
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.txn_first_offset = txn_first_offset
        if offset >= 0:
            first_sequence = (sequence - delta) & 0x7FFFFFFF
            producer.batches.append(KeptBatch(first_sequence, sequence, offset - delta, offset, timestamp_ms))
            producer.has_last_batch_only = True
        yield producer_id, producer


def snapshot_offsets(disk: Disk, folder: str) -> list[int]:
    """The offsets of all snapshots in a folder, the lowest first."""
    names = (entry.name for entry in disk.list(folder))
    return sorted(
        int(name[: -len(SNAPSHOT)]) for name in names if name.endswith(SNAPSHOT) and name[: -len(SNAPSHOT)].isdigit()
    )


def write_snapshot(disk: Disk, folder: str, offset: int, states: ProducerStates) -> None:
    disk.write_file(snapshot_path(folder, offset), encode_snapshot(states))


def load_newest(disk: Disk, folder: str, until_offset: int, states: ProducerStates) -> int:
    """Fills the states from the newest readable snapshot at or below an offset; returns that snapshot's offset, or
    -1."""
    for offset in reversed(snapshot_offsets(disk, folder)):
        if offset > until_offset:
            continue
        entries = decode_snapshot(disk.read_file(snapshot_path(folder, offset)) or b"")
        if entries is not None:
            states.restore(entries)
            return offset
        logger.warning("producer snapshot %s is damaged; an older one is used instead", snapshot_path(folder, offset))
    return -1


def delete_snapshots(disk: Disk, folder: str, *, above: int) -> None:
    """Deletes the snapshots above an offset."""
    for offset in snapshot_offsets(disk, folder):
        if offset > above:
            disk.unlink(snapshot_path(folder, offset))
