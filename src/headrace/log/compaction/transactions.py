"""Transactions as compaction meets them, batch by batch in offset order: what was aborted, what may go.

Records of an aborted transaction go at once. A marker may go once nothing of its transaction was met before it, which
says that an earlier cleaning removed all of it; even then it waits for its delete horizon (the caller's part), so that
a reader that is half way sees how the transaction ended.
"""

from collections.abc import Iterable

from headrace.log.txn_index import AbortedTxn
from headrace.protocol.record_body import ControlKind, decompress_body, read_control_kind, slice_records
from headrace.protocol.records import BatchHeader, Buffer


class CleanedTransactions:
    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        #: Those not yet reached, the nearest last.
        self._ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTxn] = {}
        self._with_aborted_data: set[int] = set()
        self._with_committed_data: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a data batch were taken back by their producer."""
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
        """Take in a control batch: whether nothing needs it any more, and what the index must know if it stays."""
        self._reach(header.last_offset)
        if header.record_count == 0:
            return True, None  # kept only for the epoch in its header
        kind = read_control_kind(slice_records(header, decompress_body(header, batch))[0].key)
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
