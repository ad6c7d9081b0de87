"""Adapts the broker's log on disk to the replicas of ``replication_harness.py``. One record per batch."""

from headrace.log.partition_log import Origin, PartitionLog
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import iter_headers


class DiskLog:
    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.begin_epoch = log.begin_epoch
        self.truncate_to = log.truncate_to
        self.end_offset_for_epoch = log.end_offset_for_epoch

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._log.high_watermark = offset

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    @property
    def latest_epoch(self) -> int:
        return self._log.latest_epoch

    @property
    def epochs(self) -> list[tuple[int, int]]:
        return self._log.epochs.entries

    @property
    def records(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        while len(found) < self.next_offset:
            region = self._log.read(len(found), 1_000_000, until_offset=self.next_offset).region
            assert region is not None
            data = region.read()
            for position, header in iter_headers(data):
                batch = data[position : position + header.size_bytes]
                (record,) = decode_records(batch)
                assert record.value is not None
                found.append((header.leader_epoch, record.value.decode()))
        return found

    def append(self, records: list[tuple[int, str]]) -> None:
        for epoch, value in records:
            offset = self.next_offset
            record = Record(offset, 1_700_000_000_000, None, value.encode(), ())
            batch = build_batch([record], base_offset=offset, leader_epoch=epoch)
            self._log.append(batch, leader_epoch=epoch, origin=Origin.REPLICATION)
