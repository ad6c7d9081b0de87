"""Builds the batches that coordinators write: many short records with a key, without headers, and with one timestamp.

A record is ``length, attributes 0, timestamp delta 0, offset delta, key length, key, value length, value, header count
0``, with lengths and deltas as varints. All bytes except key and value depend on three small numbers: the offset delta
and the two lengths. So those bytes are cached. A commit of 100 offsets takes a fifth of the time that
``batch_building.py`` takes for the same bytes.
"""

from collections.abc import Sequence
from functools import lru_cache

from headrace.protocol.batch_building import assemble_batch
from headrace.protocol.records import MAGIC, NO_SEQUENCE, TRANSACTIONAL, BatchHeader, Codec
from headrace.protocol.wire.varints import write_varint

_NONE = -1
_UNLIKE_ANY = -2
_KEPT_LENGTHS, _KEPT_DELTAS = 256, 1000


def build_keyed_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    is_transactional: bool,
) -> bytes:
    """One batch of at least one record, from offset 0 on."""
    parts = _parts_alike(records) or _parts(records)
    header = BatchHeader(
        base_offset=0, batch_length=0, leader_epoch=-1, magic=MAGIC, crc=0,
        attributes=TRANSACTIONAL if is_transactional else 0, last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms, max_timestamp=timestamp_ms, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=NO_SEQUENCE, record_count=len(records),
    )  # fmt: skip
    return assemble_batch(header, b"".join(parts), codec=Codec.none)


def _parts_alike(records: Sequence[tuple[bytes, bytes | None]]) -> list[bytes] | None:
    """The parts of records whose keys have the same length, and whose values have the same length: five columns,
    without a loop over the records. None for other records."""
    keys, values = zip(*records, strict=True)
    if None in values or len(set(map(len, keys))) > 1 or len(set(map(len, values))) > 1:
        return None
    count = len(records)
    heads = _heads(len(keys[0]), len(values[0]))
    parts = [b"\x00"] * (5 * count)
    parts[0::5] = heads.first(count)
    parts[1::5] = keys
    parts[2::5] = [heads.between] * count
    parts[3::5] = values
    return parts


def _parts(records: Sequence[tuple[bytes, bytes | None]]) -> list[bytes]:
    parts: list[bytes] = []
    key_bytes = value_bytes = _UNLIKE_ANY
    for delta, (key, value) in enumerate(records):
        size_bytes = _NONE if value is None else len(value)
        if size_bytes != value_bytes or len(key) != key_bytes:
            key_bytes, value_bytes = len(key), size_bytes
            heads = _heads(key_bytes, value_bytes)
            between = heads.between
        parts += (heads[delta], key, between, value or b"", b"\x00")
    return parts


class _Heads(dict[int, bytes]):
    """The bytes before the key of a record, by its offset delta, for one length of keys and one length of values."""

    def __init__(self, key_bytes: int, value_bytes: int) -> None:
        self.between = write_varint(value_bytes)
        self._key_length = write_varint(key_bytes)
        self._others_bytes = key_bytes + len(self.between) + max(value_bytes, 0) + 1

    def first(self, count: int) -> list[bytes]:
        return list(map(self.__getitem__, range(count)))

    def __missing__(self, delta: int) -> bytes:
        before = b"\x00\x00" + write_varint(delta) + self._key_length
        head = write_varint(len(before) + self._others_bytes) + before
        if len(self) < _KEPT_DELTAS:
            self[delta] = head
        return head


@lru_cache(maxsize=_KEPT_LENGTHS)
def _heads(key_bytes: int, value_bytes: int) -> _Heads:
    return _Heads(key_bytes, value_bytes)
