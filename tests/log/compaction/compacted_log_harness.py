"""A log dir with one compacted log in it, for tests of the cleaner."""

from headrace.log.compaction.cleaner import Cleaner
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.log_manager import LogManager
from headrace.log.partition_log import Origin
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.record_body import Record, decode_records
from headrace.protocol.records import Codec, iter_headers
from headrace.testing import ManualClock

DAY_MS = 86_400_000
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=1000, index_interval_bytes=100, min_cleanable_dirty_ratio=0.01
)


class CompactedLogHarness:
    """One log dir with one compacted log, and a cleaner."""

    def __init__(self, folder, config=COMPACTED, disk=None, cleaner_config=None):
        self.folder, self.config, self.disk = folder, config, disk or Disk()
        self.clock = ManualClock()
        self.cleaner_config = cleaner_config
        self.slept_s = []
        self.manager = None
        self.open()

    def open(self):
        self.manager = LogManager(
            [self.folder],
            default_config=self.config,
            clock=self.clock,
            broker_id=0,
            cluster_id="c",
            disk=self.disk,
        )
        self.manager.load()
        self.log = self.manager.get("t", 0) or self.manager.create("t", 0, None)
        self.log.high_watermark = self.log.next_offset
        self.cleaner = Cleaner(self.clock, self.cleaner_config, sleep=self._sleep)

    def _sleep(self, seconds):
        self.slept_s.append(seconds)
        self.clock.advance(int(seconds * 1000))

    def reopen(self, disk=None):
        self.manager.close()
        self.disk = disk or self.disk
        self.open()

    def put(self, *pairs, timestamp_ms=None, codec=Codec.none, origin=Origin.CLIENT, **fields):
        now_ms = self.clock.wall_ms() if timestamp_ms is None else timestamp_ms
        rows = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(pairs)]
        appended = self.log.append(build_batch(rows, codec=codec, **fields), leader_epoch=0, origin=origin)
        self.log.high_watermark = self.log.next_offset
        return appended.base_offset

    def end_transaction(self, kind, producer_id, epoch=0):
        marker = control_record(kind, 0, timestamp_ms=self.clock.wall_ms())
        batch = build_batch(
            [marker], producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True
        )
        self.log.append(batch, leader_epoch=0, origin=Origin.COORDINATOR)
        self.log.high_watermark = self.log.next_offset

    def clean(self):
        """Cleans everything except the active segment, which is rolled first, so that it is empty."""
        self.log.roll()
        return self.clean_closed()

    def clean_closed(self):
        plan = self.cleaner.plan(self.log)
        if plan is None:
            return None
        cleaned = self.cleaner.build(plan)
        self.cleaner.commit(self.log, cleaned)
        return cleaned

    def batches(self):
        """The headers and bytes of all batches, as a consumer gets them."""
        found, offset = [], self.log.log_start_offset
        while offset < self.log.next_offset:
            region = self.log.read(offset, 10_000, until_offset=self.log.next_offset).region
            if region is None:
                break
            data = region.read()
            for position, header in iter_headers(data):
                assert header.last_offset >= offset, "a batch that ends before the offset asked for"
                found.append((header, data[position : position + header.size_bytes]))
                offset = header.next_offset
        return found

    def records(self):
        return [record for header, batch in self.batches() if not header.is_control for record in decode_records(batch)]

    def view(self):
        """The last value of each key."""
        state = {}
        for record in self.records():
            state[record.key] = record.value
        return {key: value for key, value in state.items() if value is not None}

    def offsets(self):
        return [record.offset for record in self.records()]


def transaction(harness, kind, *pairs, producer_id=9, sequence=0):
    harness.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    if kind is not None:
        harness.end_transaction(kind, producer_id)


def committed_view(harness):
    """The last value of each key, as a read_committed consumer sees it."""
    log = harness.log
    aborted = log.aborted_transactions(log.log_start_offset, log.next_offset)
    state = {}
    for header, batch in harness.batches():
        is_aborted = header.is_transactional and any(
            txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in aborted
        )
        if not header.is_control and not is_aborted:
            state.update((record.key, record.value) for record in decode_records(batch))
    return {key: value for key, value in state.items() if value is not None}
