"""Batches of what coordinators write: many short records with a key, no headers, and one time for all.

A record is ``length, attributes 0, timestamp delta 0, offset delta, key length, key, value length, value, header count
0``, with the lengths and deltas as varints. But for key and value that depends on three small numbers only, so it is
kept for those that come again and again: a commit of 100 offsets takes a fifth of the general way's time
(``record_body.py``, whose bytes these are).
"""

from collections.abc import Sequence
from functools import lru_cache

from headrace.protocol.record_body import assemble_batch, write_varint
from headrace.protocol.records import MAGIC, NO_SEQUENCE, BatchHeader, Codec

_TRANSACTIONAL = 0x10
_NONE = -1
_KEPT = 50_000


def build_keyed_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    is_transactional: bool,
) -> bytes:
    """One batch of at least one record, from offset 0 on."""
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        if value is None:
            head, between = _framing(delta, len(key), _NONE)
            parts += (head, key, between, b"\x00")
        else:
            head, between = _framing(delta, len(key), len(value))
            parts += (head, key, between, value, b"\x00")
    header = BatchHeader(
        base_offset=0, batch_length=0, leader_epoch=-1, magic=MAGIC, crc=0,
        attributes=_TRANSACTIONAL if is_transactional else 0, last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms, max_timestamp=timestamp_ms, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=NO_SEQUENCE, record_count=len(records),
    )  # fmt: skip
    return assemble_batch(header, b"".join(parts), codec=Codec.none)


@lru_cache(maxsize=_KEPT)
def _framing(delta: int, key_bytes: int, value_bytes: int) -> tuple[bytes, bytes]:
    """What stands before a record's key, and what between key and value."""
    before = b"\x00\x00" + write_varint(delta) + write_varint(key_bytes)
    between = write_varint(value_bytes)
    size_bytes = len(before) + key_bytes + len(between) + max(value_bytes, 0) + 1
    return write_varint(size_bytes) + before, between
