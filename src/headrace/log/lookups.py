"""Finding records of a log by time, aborted transactions by offsets, producers by replay; and reading all of it.
Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.control_marker import end_transaction
from headrace.log.producer_state import BATCHES_KEPT, KeptBatch, Producer, ProducerStates
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import BatchHeader, iter_headers

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

_READ_BYTES = 1 << 20
#: How far back a producer's batches are looked for. Those in flight at once were written close together.
_RECALL_BYTES = 4 << 20


class Found(NamedTuple):
    offset: int
    timestamp_ms: int
    leader_epoch: int


def locate_time(log: PartitionLog, timestamp_ms: int, until_offset: int) -> Found | None:
    """The first record at or after a time: whole segments are passed by their largest timestamp, then by time index."""
    for segment in log.segments:
        if not segment.size_bytes or segment.largest_timestamp_ms() < timestamp_ms:
            continue
        # The time index says before which offset all is older; the offset index turns that into a place.
        offsets = segment.loaded()
        start = offsets.lookup(max(segment.times().lookup(timestamp_ms), log.log_start_offset - segment.base_offset))
        for at, header in segment.headers(start):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= log.log_start_offset:
                found = _first_in_batch(log, segment, at, header, timestamp_ms)
                if found is not None:
                    return found if found.offset < until_offset else None
    return None


def locate_max_timestamp(log: PartitionLog) -> Found | None:
    """Of records at or behind the log's start, the first that has the largest timestamp."""
    found: Found | None = None
    for segment in sorted(log.segments, key=_max_record_timestamp, reverse=True):
        if not segment.size_bytes or (found is not None and segment.max_timestamp_ms <= found.timestamp_ms):
            continue
        candidate = _max_in_segment(log, segment) or _max_behind_start(log, segment)
        if candidate is not None and (found is None or candidate.timestamp_ms > found.timestamp_ms):
            found = candidate
    return found


def _max_in_segment(log: PartitionLog, segment: Segment) -> Found | None:
    """By what the segment knows; None if that record lies below the log's start."""
    for position, header in segment.headers(segment.position_of(segment.offset_of_max_timestamp)):
        return _first_in_batch(log, segment, position, header, segment.max_timestamp_ms)
    return None


def _max_behind_start(log: PartitionLog, segment: Segment) -> Found | None:
    """By walking what is left of a segment whose youngest record was deleted."""
    from headrace.protocol.record_body import decode_records

    found: Found | None = None
    for position, header in segment.headers(segment.position_of(max(log.log_start_offset, segment.base_offset))):
        if found is not None and header.max_timestamp <= found.timestamp_ms:
            continue
        for record in decode_records(segment.read_bytes(position, header.size_bytes)):
            if record.offset >= log.log_start_offset and (found is None or record.timestamp_ms > found.timestamp_ms):
                found = Found(record.offset, record.timestamp_ms, header.leader_epoch)
    return found


def _max_record_timestamp(segment: Segment) -> int:
    segment.largest_timestamp_ms()
    return segment.max_timestamp_ms


def _first_in_batch(
    log: PartitionLog, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int
) -> Found | None:
    from headrace.protocol.record_body import decode_records

    for record in decode_records(segment.read_bytes(position, header.size_bytes)):
        if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
            return Found(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def aborted_transactions(log: PartitionLog, from_offset: int, until_offset: int) -> list[AbortedTxn]:
    """An aborted transaction is listed where its marker lies, so the search goes on until a marker tells that all
    before ``until_offset`` was decided by then."""
    found: list[AbortedTxn] = []
    for segment in log.segments[log.segment_at(from_offset) :]:
        for aborted in segment.aborted().entries:
            if aborted.last_offset >= from_offset and aborted.first_offset < until_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= until_offset:
                return found
    return found


def batches_from(log: PartitionLog, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Every batch that ends at or behind an offset: its segment, position and header."""
    for segment in log.segments[log.segment_at(offset) :]:
        if segment.size_bytes:
            start = segment.position_of(max(offset, segment.base_offset))
            for position, header in segment.headers(start):
                yield segment, position, header


def replay_producers(log: PartitionLog, states: ProducerStates, from_offset: int) -> None:
    """Bring states that are known at an offset to the log's end."""
    if from_offset >= log.next_offset:
        return
    for segment, position, header in batches_from(log, from_offset):
        if header.base_offset < from_offset or not header.has_producer:
            continue
        if header.is_control:
            end_transaction(states, header, segment.read_bytes(position, header.size_bytes))
        else:
            states.data(header.producer_id, header.producer_epoch, KeptBatch.of(header), header.is_transactional)


def recall_batches(log: PartitionLog, producer_id: int) -> bool:
    """Give producers that come from a snapshot their other batches again; whether this one has gained any.

    A snapshot has the last batch of a producer, but one that had five in flight when the broker died sends all five
    again. Apache Kafka refuses those that the snapshot left out; here they are looked for when one is missed, once
    after a start and for all producers at a time, in the last few MiB before what the snapshot had.
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
    """The headers in the last few MiB before an offset, in order."""
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
    """All batches from the log's start up to an offset that may grow meanwhile, with their records."""
    offset = log.log_start_offset
    while offset < end():
        region = log.read(offset, _READ_BYTES, until_offset=end()).region
        if region is None:
            return
        data = region.read()
        for position, header in iter_headers(data):
            yield header, decode_records(memoryview(data)[position : position + header.size_bytes])
            offset = header.next_offset
