"""Reads the one record of a control batch, which says how a transaction ended.

::

    key    version int16, type int16 (0 abort, 1 commit)
    value  version int16, coordinator_epoch int32

Control batches are never compressed, so the record follows the batch header directly, in the usual encoding of records
(zigzag varints for lengths).
"""

from struct import error as struct_error
from typing import NamedTuple

from headrace.log.producer_state import CompletedTxn, ProducerStates
from headrace.protocol.errors import InvalidRecord
from headrace.protocol.record_body import CONTROL_KEY, CONTROL_VALUE, ControlKind
from headrace.protocol.records import HEADER_BYTES, BatchHeader, Buffer
from headrace.protocol.wire.varints import read_varint


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def read_marker(batch: Buffer) -> Marker | None:
    """None for a control record that does not end a transaction (other types exist, KIP-595).

    :raises InvalidRecord: if the batch has no such record.
    """
    try:
        _, at = read_varint(batch, HEADER_BYTES)
        _, at = read_varint(batch, at + 1)
        _, at = read_varint(batch, at)
        key_bytes, at = read_varint(batch, at)
        _, kind = CONTROL_KEY.unpack_from(batch, at)
        _, at = read_varint(batch, at + key_bytes)
        if kind not in (ControlKind.abort, ControlKind.commit):
            return None
        _, coordinator_epoch = CONTROL_VALUE.unpack_from(batch, at)
    except (IndexError, ValueError, struct_error) as error:
        raise InvalidRecord("the control batch has no marker that can be read") from error
    return Marker(kind == ControlKind.commit, coordinator_epoch)


def end_transaction(producers: ProducerStates, header: BatchHeader, batch: Buffer) -> CompletedTxn | None:
    """Updates the producers' states with a control batch; returns the transaction that it ended, if it ended one."""
    if not header.record_count:
        return None  # compaction kept only the header: all of the transaction is gone
    marker = read_marker(batch)
    if marker is None:
        return None
    return producers.note_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        header.last_offset,
        header.max_timestamp,
        marker.is_commit,
    )
