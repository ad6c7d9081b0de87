"""Log dirs on real folders with a clock that moves only when a test says so, and batches for them."""

from headrace.log.config import LogConfig
from headrace.log.log_manager import LogManager
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import Record
from headrace.protocol.records import iter_headers
from headrace.testing import ManualClock


def records(count=1, *, timestamp_ms=1_700_000_000_000, value=b"v" * 10, key=b"k", first=0):
    return [Record(first + number, timestamp_ms, key, value, ()) for number in range(count)]


def batch(count=1, *, timestamp_ms=1_700_000_000_000, value=b"v" * 10, key=b"k", base_offset=0, **fields):
    contents = records(count, timestamp_ms=timestamp_ms, value=value, key=key, first=base_offset)
    return build_batch(contents, base_offset=base_offset, **fields)


class LogHarness:
    """Opens, stops and kills log managers over the same folders."""

    def __init__(self, *folders, config=None, disk=None, clock=None):
        self.folders = list(folders)
        self.config = config or LogConfig()
        self.clock = clock or ManualClock()
        self.disk = disk
        self.went_offline = []
        self.report = None
        self.manager = None

    def open(self, *, disk=None, threads=1):
        self.manager = LogManager(
            self.folders,
            default_config=self.config,
            config_for=lambda topic: self.config,
            clock=self.clock,
            broker_id=1,
            cluster_id="cluster",
            disk=disk or self.disk,
            on_offline=lambda path, error: self.went_offline.append(path),
        )
        self.report = self.manager.load(threads=threads)
        return self.manager

    def log(self, topic="t", partition=0):
        return self.manager.get(topic, partition) or self.manager.create(topic, partition, None)

    def fresh(self):
        self.open()
        return self.log()

    def stop(self):
        self.manager.close()

    def kill(self):
        self.manager.abandon()

    def restarted(self):
        self.stop()
        return self.fresh()

    def reborn(self):
        self.kill()
        return self.fresh()


def append(log, count=1, *, leader_epoch=0, **fields):
    appended = log.append(batch(count, **fields), leader_epoch=leader_epoch)
    log.high_watermark = log.next_offset
    return appended


def headers(log, from_offset=None):
    """Every batch header that a reader gets, from an offset to the end."""
    found = []
    offset = log.log_start_offset if from_offset is None else from_offset
    while True:
        region = log.read(offset, 1 << 20, until_offset=log.next_offset).region
        if region is None:
            return found
        batches = [header for _, header in iter_headers(region.read())]
        found += batches
        offset = batches[-1].next_offset


def base_offsets(log):
    return [segment.base_offset for segment in log.segments]


def locate_time(log, timestamp_ms, *, until_offset):
    """The first record at or after a time, if its offset is below ``until_offset``."""
    return _run_search(log, log.search_time(timestamp_ms, until_offset=until_offset))


def locate_max_timestamp(log):
    return _run_search(log, log.search_max_timestamp())


def _run_search(log, search):
    """Runs a search and all its searches in batches on this thread."""
    found = None
    while True:
        try:
            found = log.continue_search(search, found).run()
        except StopIteration as done:
            return done.value
