"""Decides which batches of a Fetch response a reader may see, from the batch headers.

Control batches are never visible. With ``read_committed``, batches of aborted transactions are not visible either. The
broker lists the producer and the first offset of each aborted transaction. From that offset on, the transactional
batches of that producer are hidden, up to its next abort marker. Hidden batches still move the position. Only the one
record of a control batch is decompressed.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.protocol.record_body import ControlKind, decode_records, read_control_kind
from headrace.protocol.records import BatchHeader, iter_headers
from headrace.protocol.wire.consumer_fetch import AbortedTransaction


class FetchedBatch(NamedTuple):
    """One batch of a Fetch response."""

    header: BatchHeader
    #: The whole batch with its header: a view of the response.
    data: memoryview
    is_visible: bool


def read_batches(
    data: memoryview, aborted: Iterable[AbortedTransaction] | None, from_offset: int
) -> Iterator[FetchedBatch]:
    """Returns the complete batches that end at or behind an offset.

    :param aborted: the aborted transactions that the broker listed; None for ``read_uncommitted``.
    """
    to_come = sorted(aborted or (), key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    for at, header in iter_headers(data):
        batch = data[at : at + header.size_bytes]
        while to_come and to_come[-1].first_offset <= header.last_offset:
            aborting.add(to_come.pop().producer_id)
        is_visible = not header.is_control and not (header.is_transactional and header.producer_id in aborting)
        if header.is_control and header.producer_id in aborting and _is_abort(batch):
            aborting.discard(header.producer_id)
        if header.last_offset >= from_offset:
            yield FetchedBatch(header, batch, is_visible)


def _is_abort(batch: memoryview) -> bool:
    return read_control_kind(decode_records(batch)[0].key) == ControlKind.abort
