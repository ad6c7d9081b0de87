"""One partition of an internal topic, as the coordinator that keeps its state there sees it.

A coordinator's state is what its records say, in order. It writes records here and then applies them; when it starts,
it applies all that are here. Both go through the same code, so that a restart finds the state that was left.

Records of a transaction (offsets committed within one) count only from its marker on: ``batches`` gives whole batches
with their headers, and leaves that to the reader.
"""

from collections.abc import Callable, Iterator, Sequence

from headrace.log.partition_log import Appended, Origin
from headrace.protocol.keyed_batch import build_keyed_batch
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import NO_PRODUCER_ID, BatchHeader, iter_headers
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

#: A record's key and value; a value of None takes back what the key said.
KeyValue = tuple[bytes, bytes | None]

_READ_BYTES = 1024 * 1024
_NO_EPOCH = -1


class Journal:
    def __init__(self, partition: Partition, clock: Clock, *, on_write: Callable[[], object] = lambda: None) -> None:
        """``on_write`` is called after each write: somebody may be waiting to read it."""
        self.partition = partition
        self._clock = clock
        self._on_write = on_write

    @property
    def index(self) -> int:
        return self.partition.log.partition

    def write(
        self, records: Sequence[KeyValue], *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = _NO_EPOCH
    ) -> Appended | None:
        """Appends the records as one batch, within a producer's transaction if it is given; None if there are none.

        :raises StorageError: if they could not be written. Then nothing was.
        """
        if not records:
            return None
        batch = build_keyed_batch(
            records,
            timestamp_ms=self._clock.wall_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer_id != NO_PRODUCER_ID,
        )
        appended = self.partition.append(batch, Origin.COORDINATOR)
        self._on_write()
        return appended

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """All batches from the log's start to its end, with their records; control batches too."""
        log = self.partition.log
        offset = log.log_start_offset
        while offset < log.next_offset:
            region = log.read(offset, _READ_BYTES, until_offset=log.next_offset).region
            if region is None:
                return
            data = region.read()
            for position, header in iter_headers(data):
                yield header, decode_records(memoryview(data)[position : position + header.size_bytes])
                offset = header.next_offset
