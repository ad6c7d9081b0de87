"""Tells compaction, batch by batch in the order of offsets, which records were aborted and which markers are needed.

Records of an aborted transaction are dropped at once. A marker is not needed any more if no record of its transaction
came before it: an earlier cleaning has removed all of them. Even then the marker stays until its delete horizon (the
caller checks that), so that a reader in the middle of the transaction sees how it ended.
"""

from collections.abc import Iterable

from headrace.log.txn_index import AbortedTxn
from headrace.protocol.record_body import ControlKind, decompress_body, iter_slices, read_control_kind
from headrace.protocol.records import BatchHeader, Buffer


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: The aborted transactions that begin behind the current batch, the nearest last.
        self._ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTxn] = {}
        self._with_aborted_data: set[int] = set()
        self._with_committed_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a data batch belong to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        aborting = self._aborting.get(header.producer_id)
        if aborting is not None and header.last_offset <= aborting.last_offset:
            self._with_aborted_data.add(header.producer_id)
            return True
        self._with_committed_data.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, batch: Buffer) -> tuple[bool, AbortedTxn | None]:
        """Handles a control batch; returns whether it is needless, and the index entry to write if it stays."""
        self._reach(header.last_offset)
        if header.record_count == 0:
            return True, None  # it was kept only for the epoch in its header
        kind = read_control_kind(next(iter_slices(header, decompress_body(header, batch))).key)
        producer_id = header.producer_id
        if kind == ControlKind.abort:
            aborted = self._aborting.pop(producer_id, None)
            if producer_id in self._with_aborted_data:
                self._with_aborted_data.remove(producer_id)
                return False, aborted
            return True, None
        if kind == ControlKind.commit:
            had_data = producer_id in self._with_committed_data
            self._with_committed_data.discard(producer_id)
            return not had_data, None
        return False, None  # a kind of a later Kafka

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[-1].first_offset <= offset:
            txn = self._ahead.pop()
            self._aborting[txn.producer_id] = txn
