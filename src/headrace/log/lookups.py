"""Finds things in a log without changing it: records by time, aborted transactions by offset, the producers' states by
a replay of the batches; and reads whole logs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.control_marker import end_transaction
from headrace.log.producer_state import BATCHES_KEPT, KeptBatch, Producer, ProducerStates
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.record_body import Record, decode_records, iter_checked
from headrace.protocol.records import BatchHeader, iter_headers

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

_READ_BYTES = 1 << 20
#: How far back to look for a producer's batches. Batches that were in flight together lie close together.
_RECALL_BYTES = 4 << 20


class TimestampAndOffset(NamedTuple):
    """A record that a lookup has found."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class BatchSearch(NamedTuple):
    """The search for one record inside a batch. It needs nothing of the log, so it may run on another thread."""

    batch: bytes
    leader_epoch: int
    start_offset: int
    #: The first record at or after this time is searched; None: the first one with the largest timestamp.
    timestamp_ms: int | None

    def run(self) -> TimestampAndOffset | None:
        found: TimestampAndOffset | None = None
        for record in iter_checked(self.batch):
            if record.offset < self.start_offset or (found is not None and record.timestamp_ms <= found.timestamp_ms):
                continue
            if self.timestamp_ms is None or record.timestamp_ms >= self.timestamp_ms:
                found = TimestampAndOffset(record.offset, record.timestamp_ms, self.leader_epoch)
                if self.timestamp_ms is not None:
                    break
        return found


#: A search in a log. It yields searches in batches, is sent what each of them has found, and returns what it has found.
Search = Generator[BatchSearch, TimestampAndOffset | None, TimestampAndOffset | None]


def search_time(log: PartitionLog, timestamp_ms: int, until_offset: int) -> Search:
    """Searches the first record at or after a time. Segments whose largest timestamp is smaller are skipped; inside a
    segment the time index gives the place to start."""
    for segment in tuple(log.segments):
        if not segment.size_bytes or not _is_present(log, segment):
            continue
        if segment.largest_timestamp_ms() < timestamp_ms:
            continue
        # All records before the offset that the time index gives are older. The offset index gives its position.
        offsets = segment.loaded()
        start = offsets.lookup(max(segment.times().lookup(timestamp_ms), log.log_start_offset - segment.base_offset))
        for at, header in segment.headers(start):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= log.log_start_offset:
                found = yield _in_batch(log, segment, at, header, timestamp_ms)
                if found is not None:
                    return found if found.offset < until_offset else None
                if not _is_present(log, segment):
                    break
    return None


def search_max_timestamp(log: PartitionLog) -> Search:
    """Searches the first record with the largest timestamp, of those at or behind the log's start."""
    found: TimestampAndOffset | None = None
    for segment in sorted(log.segments, key=_max_record_timestamp, reverse=True):
        if not segment.size_bytes or not _is_present(log, segment):
            continue
        if found is not None and segment.max_timestamp_ms <= found.timestamp_ms:
            continue
        candidate = yield from _max_in_segment(log, segment)
        if candidate is None and _is_present(log, segment):
            candidate = yield from _max_behind_start(log, segment)
        if candidate is not None and (found is None or candidate.timestamp_ms > found.timestamp_ms):
            found = candidate
    return found


def _max_in_segment(log: PartitionLog, segment: Segment) -> Search:
    """The record that the segment's state names; None if that record is below the log's start."""
    for position, header in segment.headers(segment.position_of(segment.offset_of_max_timestamp)):
        return (yield _in_batch(log, segment, position, header, segment.max_timestamp_ms))
    return None


def _max_behind_start(log: PartitionLog, segment: Segment) -> Search:
    """Searches the rest of a segment whose newest record is below the log's start."""
    found: TimestampAndOffset | None = None
    for position, header in segment.headers(segment.position_of(max(log.log_start_offset, segment.base_offset))):
        if found is not None and header.max_timestamp <= found.timestamp_ms:
            continue
        candidate = yield _in_batch(log, segment, position, header, None)
        if candidate is not None and (found is None or candidate.timestamp_ms > found.timestamp_ms):
            found = candidate
        if not _is_present(log, segment):
            break
    return found


def _is_present(log: PartitionLog, segment: Segment) -> bool:
    """Whether a segment is still in the log. A search may wait for another thread, and segments may be deleted
    meanwhile."""
    return log.segments[log.segment_at(segment.base_offset)] is segment


def _max_record_timestamp(segment: Segment) -> int:
    segment.largest_timestamp_ms()
    return segment.max_timestamp_ms


def _in_batch(
    log: PartitionLog, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int | None
) -> BatchSearch:
    batch = segment.read_bytes(position, header.size_bytes)
    return BatchSearch(batch, header.leader_epoch, log.log_start_offset, timestamp_ms)


def aborted_transactions(log: PartitionLog, from_offset: int, until_offset: int) -> list[AbortedTxn]:
    """The aborted transactions that overlap a range of offsets.

    An index entry is in the segment that has the abort marker, which may be far behind the range. So the search goes on
    until an entry says that all transactions before ``until_offset`` had ended by then.
    """
    found: list[AbortedTxn] = []
    for segment in log.segments[log.segment_at(from_offset) :]:
        for aborted in segment.aborted().entries:
            if aborted.last_offset >= from_offset and aborted.first_offset < until_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= until_offset:
                return found
    return found


def batches_from(log: PartitionLog, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """The segment, position and header of every batch that ends at or behind an offset."""
    for segment in log.segments[log.segment_at(offset) :]:
        if segment.size_bytes:
            start = segment.position_of(max(offset, segment.base_offset))
            for position, header in segment.headers(start):
                yield segment, position, header


def replay_producers(log: PartitionLog, states: ProducerStates, from_offset: int, until_offset: int) -> None:
    """Brings states from the offset of a snapshot to a later offset, behind which no batch has a producer."""
    if from_offset >= until_offset:
        return
    for segment, position, header in batches_from(log, from_offset):
        if header.base_offset >= until_offset:
            break
        if header.base_offset < from_offset or not header.has_producer:
            continue
        if header.is_control:
            end_transaction(states, header, segment.read_bytes(position, header.size_bytes))
        else:
            states.note_batch(header.producer_id, header.producer_epoch, KeptBatch.of(header), header.is_transactional)


def recall_batches(log: PartitionLog, producer_id: int) -> bool:
    """Restores the last five batches of all producers whose state comes from a snapshot; returns whether the given
    producer has got any.

    A snapshot has only the last batch of a producer. A producer that had five batches in flight when the broker died
    sends all five again. Apache Kafka rejects those that the snapshot does not have. Headrace searches the log for them
    when the first one is missing: once per start, for all producers together, in the last few MiB before the batches of
    the snapshot.
    """
    producers = log.producers.producers
    wanted = {key: producer for key, producer in producers.items() if producer.has_last_batch_only and producer.batches}
    if producer_id not in wanted:
        return False
    kept_before = len(wanted[producer_id].batches)
    found: dict[int, list[KeptBatch]] = {key: [] for key in wanted}
    for header in _headers_before(log, max(producer.batches[0].base_offset for producer in wanted.values())):
        producer = wanted.get(header.producer_id)
        if producer is not None and _is_missing(producer, header):
            found[header.producer_id].append(KeptBatch.of(header))
    for key, producer in wanted.items():
        producer.has_last_batch_only = False
        producer.batches = (found[key] + producer.batches)[-BATCHES_KEPT:]
    return len(wanted[producer_id].batches) > kept_before


def _is_missing(producer: Producer, header: BatchHeader) -> bool:
    is_data = header.producer_epoch == producer.epoch and not header.is_control
    return is_data and header.base_offset < producer.batches[0].base_offset


def _headers_before(log: PartitionLog, offset: int) -> Iterator[BatchHeader]:
    """The headers of the batches in the last few MiB before an offset, in the order of the log."""
    number = log.segment_at(offset)
    end = log.segments[number].position_of(offset)
    left_bytes = _RECALL_BYTES
    while end < left_bytes and number > 0:
        left_bytes -= end
        number -= 1
        end = log.segments[number].size_bytes
    start = log.segments[number].loaded().last_position_within(max(0, end - left_bytes))
    for segment in log.segments[number:]:
        for _, header in segment.headers(start):
            if header.base_offset >= offset:
                return
            yield header
        start = 0


def decoded_batches(log: PartitionLog, end: Callable[[], int]) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """All batches with their records, from the log's start up to an offset that may grow during the iteration."""
    offset = log.log_start_offset
    while offset < end():
        region = log.read(offset, _READ_BYTES, until_offset=end()).region
        if region is None:
            return
        data = region.read()
        for position, header in iter_headers(data):
            yield header, decode_records(memoryview(data)[position : position + header.size_bytes])
            offset = header.next_offset
