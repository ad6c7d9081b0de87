"""The records of a read_committed consumer: from any offset, with any fetch size, beside many producers."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_coordinator_harness import ABORT_KEY, T0, TransactionCoordinatorHarness

from headrace.log.config import LogConfig
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import iter_headers
from headrace.replication.partition import Isolation

PRODUCERS = 3

steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, PRODUCERS - 1), st.sampled_from(["write", "write", "commit", "abort"])),
        st.tuples(st.just(0), st.sampled_from(["restart"])),
    ),
    max_size=40,
)


class Story:
    """Producers that write to one partition, and what became of each value."""

    def __init__(self, harness):
        self.harness = harness
        self.producers = [harness.start(f"p{number}") for number in range(PRODUCERS)]
        #: (offset, value, producer); and for ended transactions: committed or not.
        self.written, self.open, self.outcome = [], {}, {}

    def write(self, number):
        producer, values = self.producers[number], self.open.setdefault(number, [])
        if not values:
            self.harness.add(producer, T0, name=f"p{number}", version=2)
        offset = self.harness.partitions.get(*T0).log.next_offset
        value = b"%d" % offset
        self.harness.write(producer, T0, value, sequence=len(values))
        self.written.append((offset, value))
        values.append(value)

    def commit(self, number):
        self._end(number, commit=True)

    def abort(self, number):
        self._end(number, commit=False)

    def _end(self, number, *, commit):
        values = self.open.pop(number, None)
        if values:
            name = f"p{number}"
            self.producers[number] = self.harness.end(self.producers[number], commit=commit, name=name, version=2)
            self.outcome.update(dict.fromkeys(values, commit))

    def restart(self, _):
        self.harness.restart()

    def expected(self, from_offset):
        """Up to the first value that is not decided."""
        found = []
        for offset, value in self.written:
            if value not in self.outcome:
                break
            if offset >= from_offset and self.outcome[value]:
                found.append(value)
        return found


def read(log, offset, fetch_bytes, end):
    """As a client does: aborted ranges of each answer, markers that end them, whole batches; on to the next fetch."""
    found = []
    while offset < end:
        region = log.read(offset, fetch_bytes, until_offset=end).region
        data = region.read()
        aborted = sorted((each.first_offset, each.producer_id) for each in log.aborted_transactions(offset, end))
        skipped = set()
        for position, header in iter_headers(data):
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            records = decode_records(data[position : position + header.size_bytes])
            if header.is_control:
                if records[0].key == ABORT_KEY:
                    skipped.discard(header.producer_id)
            elif header.producer_id not in skipped and header.base_offset >= offset:
                found += [record.value for record in records]
            following = header.next_offset
        offset = following
    return found


@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from([1, 100, 300, 10_000]), st.sampled_from([200, 400, 1 << 20]))
def test_it_never_sees_an_aborted_or_open_record(steps, fetch_bytes, segment_bytes):
    with TemporaryDirectory() as folder:
        harness = TransactionCoordinatorHarness(
            Path(folder) / "data", config=LogConfig(segment_bytes=segment_bytes)
        ).load()
        try:
            story = Story(harness)
            for number, step in steps:
                getattr(story, step)(number)
            partition = harness.partitions.get(*T0)
            end = partition.visible_end(Isolation.READ_COMMITTED)
            for offset in range(end):
                assert read(partition.log, offset, fetch_bytes, end) == story.expected(offset)
        finally:
            harness.kill()
